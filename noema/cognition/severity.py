"""How loud a text is, by the words people and programs use for trouble."""

import re
from typing import Final

PLAIN: Final = 100_000
"""What a text without any such word gets: a little, so that it is not the same as silence."""

_LEVELS: Final = {
    1_000_000: """emerg emergency panic fatal catastrophic segfault deadlock breach corrupt
        corruption""",
    850_000: """alert crit critical severe crash crashed crashes aborted died killed oom oops attack
        outage unrecoverable dead lost violation""",
    700_000: """err error errors exception exceptions fail failed fails failure failures failing
        fault faults unable cannot broken abnormally broke""",
    450_000: """warn warning warnings denied deny refused rejected reject timeout timeouts timed
        invalid illegal unauthorized forbidden unexpected unreachable unavailable disconnect
        disconnected dropped dropping retry retries retrying missing reset overflow overload
        exceeded mismatch degraded expired interrupted""",
    250_000: """notice slow delayed deprecated shutdown restart restarted stopped closed removed""",
    50_000: """debug trace verbose""",
}
_BY_WORD: Final = {word: level for level, words in _LEVELS.items() for word in words.split()}
# Of these the single letter or short word in front says that there was none of it.
_NEGATIONS: Final = frozenset(("no", "without", "zero", "not", "0"))
_WORD = re.compile(r"[a-z]+|(?<![\w.])0(?![\w.])")
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")
_EXAMINED: Final = 512


def intensity(text: str) -> int:
    """Return 0 to 1,000,000: the level of the loudest word in the first 512 characters.

    The words are grouped in fixed steps (1.0 panic, 0.85 critical, 0.7 error, 0.45 warning,
    0.25 notice, 0.05 debug); a text with none of them gets `PLAIN`, an empty one 0. A word right
    behind a negation ("no errors", "0 failures") does not count. Parts of a camel-case name count
    as words, so `IOException` is an exception.
    """
    head = text[:_EXAMINED]
    if not head.strip():
        return 0
    loudest = 0
    before = ""
    for word in _WORD.findall(_CAMEL.sub(" ", head).lower()):
        level = _BY_WORD.get(word, 0)
        if level > loudest and before not in _NEGATIONS:
            loudest = level
        before = word
    return loudest or PLAIN
