"""The topic of a line: what is left when everything that varies is masked.

`topic_key` is what habits are counted under, so both of its errors cost. A key that keeps a port
number makes every line of a flood a new topic; a key that masks too much hides the one rare line
among the common ones. The rule that serves both is lexical, not learned: a *piece* (a run of ASCII
characters between white space, brackets, quotes and `, ; = |`) is masked when it carries a digit
or has the shape of a path, URL, e-mail, host name or hex string; words stay. A learned template
would change with what came before, and then a replay could not recompute it from the line alone.

Masked by shape:

- any piece with a digit (`blk_388`, `0x7f`, `10.0.0.1:22`, `R02-M1`, `v1.2`); of `name:12` the name
  stays, since that is a label with its value;
- paths, URLs, e-mails, host names with a known ending, hex of eight letters or more;
- a quoted single word after a word (`user "ann"`), the value of a key that names someone or some
  place (`user=`, `rhost=`, `path=`), and the name after `user`;
- of an HTTP status the class stays, in words, because a flood of 200s must not hide a 500.

What stands before the first word (time, process number, node) is dropped, the month and week day
of a time included, so that a line with its time and the same line with the time cut off are one
topic.
"""

import re
from hashlib import blake2b
from typing import Final

MASK: Final = "*"
MAX_KEY: Final = 160
"""Longest key, in characters."""

_EXAMINED: Final = 2048
_KEPT: Final = 320
_DIGEST: Final = 12

# Characters of a piece. Everything else ends one; non-ASCII text does too, so that a number inside
# a sentence without spaces (Chinese, Japanese) masks the number and not the sentence.
_W = r"[!\#$%&*+\-./0-9:?@A-Z\\^_a-z~]"
# A piece up to the next `::` of a qualified name, so that `Brcm43xx::suspend` and
# `Brcm43xx::resume` stay two; with digits, and the digitless beginning of one.
_BIT = r"[!\#$%&*+\-./0-9?@A-Z\\^_a-z~]*+"
_REST = rf"{_BIT}(?::(?!:[A-Za-z_~]{{4}}){_BIT})*+"
_BARE = _REST.replace("0-9", "")
_LABEL = r"[A-Za-z0-9\-]"
_ENDINGS = "com|net|org|edu|gov|mil|io|info|biz|local|internal|localdomain|lan|arpa"

# Repetitions over open-ended classes are possessive and start only where a piece starts, so the
# time is linear whatever the line.
_VARYING = re.compile(
    rf"""
    (?:(?<!{_W})|(?<=::))(?:
        (?![A-Za-z_]{{3,}}+:[-+]?[0-9]){_BARE}[0-9]{_REST}  # carries a digit
      | (?:~|\.\.?)?/{_W}++                                  # /path ./path ~/path
      | [A-Za-z]:[\\/]{_W}*+ | \\\\{_W}++                    # C:\path \\server\share
      | [A-Za-z]{{2,12}}+://{_W}*+                           # URL
      | [A-Za-z._%+\-]++@{_W}++                              # e-mail
      | [A-Za-z._\-]++/[A-Za-z._\-]++/{_W}++                 # some/relative/path
      | (?:{_LABEL}++\.)+(?:{_ENDINGS})(?!\.?{_LABEL}){_W}*+ # host.example.com
      | (?:{_LABEL}++\.){{2,}}[a-z]{{2}}(?!\.?{_LABEL}){_W}*+ # host.example.de
      | (?:[a-f]{{8,}}+|[A-F]{{8,}}+)(?!{_W})                # hex without a digit
      | [A-Fa-f]{{2}}(?::[A-Fa-f]{{2}}){{5}}(?!{_W})         # hardware address without one
    )
    | (?<=[A-Za-z_]{{3}}:)[-+]?[0-9]{_REST}                  # name:12
    | [^\x00-\x7f\D]++                                       # digits of other scripts
    """,
    re.VERBOSE,
)
_KEYS = (
    *("user", "name", "host", "addr", "client", "server", "peer", "src", "dst"),
    *("path", "file", "uri", "url", "device", "session"),
)
# The literal comes first and the look behind it second, so that the search jumps from one `=` to
# the next.
_NAMED = re.compile(
    "=(?:" + "|".join(rf"(?<={key}=)" for key in _KEYS) + r")[^\s,;()\[\]{}\"'|&*]++"
)
_USER = re.compile(r"ser (?<=[Uu]ser )[A-Za-z][\w.\-]*+(?![:\w=])")
_QUOTED = re.compile(r"""(?<=[\w:] )(?:"[^"\s,:{}]++"|'[^'\s,:{}]++'|`[^'`\s]++['`])(?![\w:])""")
_STATUS = re.compile(r"(HTTP/[\d.]+\"? (?:status: ?)?)([1-5])\d\d(?!\S)")
_CLASS = {"1": "informed", "2": "succeeded", "3": "redirected", "4": "refused", "5": "broke"}
_RUN = re.compile(r"\*(?:[\s,;:]*+\*)++")
# What a time in front leaves when no space follows it: `[*]`, or `*` and separators.
_STUCK = re.compile(r"(?:\[\*?\]|[*|,;])+")
# The names of a date, in front of its masked number or time. A class of first letters, then a look
# back at the name, lets the search skip most of the line.
_MONTH = r"[ADFJMNOS][a-z]{2}(?<=Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
_DATE = re.compile(
    r"[ADFJMNOSTW][a-z]{2}"
    r"(?<=Mon|Tue|Wed|Thu|Fri|Sat|Sun|Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
    rf"(?<!\w...),?(?:[ ]+{_MONTH})?[ ]+\*(?![\w:])"
)


def topic_key(text: str) -> str:
    """Return the topic of the line: its words, with `*` for what varies; never empty.

    At most `MAX_KEY` characters; a longer one is cut and ends in `~` and a digest of what was
    examined, so that two long topics with a like beginning stay two. The first 2,048 characters
    of the text are examined, of which at most 320 masked ones count. Any string is accepted;
    lone surrogates and NUL are kept as they are.
    """
    head = text[:_EXAMINED]
    if "HTTP/" in head:
        head = _STATUS.sub(_status_class, head)
    if '"' in head or "'" in head:
        head = _QUOTED.sub(MASK, head)
    masked = _VARYING.sub(MASK, head)
    if "=" in masked:
        masked = _NAMED.sub("=" + MASK, masked)
    if "ser " in masked:
        masked = _USER.sub("ser " + MASK, masked)
    masked = _RUN.sub(MASK, _without_lead(_DATE.sub(MASK, masked)))
    if len(masked) <= MAX_KEY:
        return masked
    kept = masked[:_KEPT].encode("utf-8", "surrogatepass")
    digest = blake2b(kept, digest_size=_DIGEST // 2).hexdigest()
    return f"{masked[: MAX_KEY - _DIGEST - 1]}~{digest}"


def _without_lead(masked: str) -> str:
    tokens = masked.split()
    last = len(tokens) - 1
    start = 0
    while start < last and not _has_word(tokens[start]):
        start += 1
    if not tokens:
        return MASK
    stuck = _STUCK.match(tokens[start])
    if stuck and stuck.end() < len(tokens[start]):
        tokens[start] = tokens[start][stuck.end() :]
    return " ".join(tokens[start:])


def _has_word(token: str) -> bool:
    # The first character settles nearly every token.
    return token[0].isalpha() or token[-1].isalpha() or any(map(str.isalpha, token))


def _status_class(match: re.Match[str]) -> str:
    return match[1] + _CLASS[match[2]]
