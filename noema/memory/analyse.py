"""From text to search terms, the same way for what is stored and for what is asked.

Deterministic and without a language to be told: Latin and Greek lose their accents, English and
Russian words are stemmed (Snowball), scripts that put no spaces between words are cut into
overlapping pairs of characters, and identifiers are kept whole beside their parts.
"""

import re
import unicodedata
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from snowballstemmer.english_stemmer import EnglishStemmer
from snowballstemmer.russian_stemmer import RussianStemmer

MAX_TERM_CHARS: Final = 64
# Compatibility forms may grow eighteenfold; a tsvector holds one mebibyte, and this stays below.
_MAX_CHARS: Final = 65_536

_STOP: Final = """
    a about above after again against all also am an and any are as at be because been before being
    below between both but by can cannot could did do does doing down during each few for from
    further had has have having he her here hers herself him himself his how i if in into is it its
    itself just let me more most my myself no nor not now of off on once only or other ought our
    ours ourselves out over own same she should so some such than that the their theirs them
    themselves then there these they this those through to too under until up very was we were what
    when where which while who whom why will with would you your yours yourself yourselves
    http https www
"""
STOP_WORDS: Final = frozenset(_STOP.split())
# What is left of "don't" and "won't"; without the apostrophe, Don and won are words.
_BEFORE_NOT: Final = """
    ain aren couldn didn doesn don hadn hasn haven isn mightn mustn needn shan shouldn wasn weren
    won wouldn
"""
_NEGATED: Final = frozenset(_BEFORE_NOT.split())
# What follows an apostrophe and says nothing about what a word means.
_CLITICS: Final = frozenset({"s", "t", "d", "m", "re", "ve", "ll"})

# No spaces between words, and one character may be a word.
_CJK: Final = (
    "\u1100-\u11ff\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3031-\u3035\u303b\u3041-\u3096"
    "\u3099\u309a\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u3105-\u312f\u3131-\u318e\u31a0-\u31bf"
    "\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua000-\ua4cf\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff"
    "\U0001aff0-\U0001b16f\U00020000-\U0003ffff"
)
# No spaces between words either, but letters are sounds: Thai, Lao, Tibetan, Burmese, Khmer.
_RUN_ON: Final = "\u0e01-\u0e3a\u0e40-\u0eff\u0f40-\u0fbc\u1000-\u109f\u1780-\u17d3\u17d7-\u17e9"
# Vowel signs of South Asia are marks, which \w leaves out; only the dandas are not of a word.
_INDIC: Final = "\u0900-\u0963\u0966-\u0df3"
_EMOJI: Final = (
    "\u203c\u2049\u2190-\u21ff\u2300-\u23ff\u24c2\u25a0-\u27bf\u2900-\u297f\u2b00-\u2bff\u3030"
    "\U0001f000-\U0001f1e5\U0001f200-\U0001faff"
)
_FLAG: Final = "\U0001f1e6-\U0001f1ff"
_LETTER: Final = rf"(?:[^\W{_CJK}{_RUN_ON}]|[{_INDIC}])"

_PLAIN: Final = re.compile(r"[a-z]+")
_TOKEN: Final = re.compile(
    r"(?P<url>[a-z][a-z0-9+.-]{1,15}://[^\s<>\"\x00-\x1f\x7f\ud800-\udfff]+)"
    r"|(?P<sharp>(?<!\w)[a-z](?:\+\+|\#)(?!\w))"
    rf"|(?P<word>{_LETTER}+(?:(?:[.'@:/\\+-]|(?<=\d),(?=\d)){_LETTER}+)*)"
    rf"|(?P<cjk>[{_CJK}]+)"
    rf"|(?P<run>[{_RUN_ON}]+)"
    rf"|(?P<emoji>[{_FLAG}]{{2}}|[{_FLAG}{_EMOJI}](?:\u200d[{_EMOJI}])*)"
)
_PART: Final = re.compile(rf"(?:(?!_){_LETTER})+|[{_CJK}]+|[{_RUN_ON}]+")
_IDENTIFIER: Final = re.compile(r"[\d_@.]")
_GROUPED: Final = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?")
_CYRILLIC: Final = re.compile(r"[\u0400-\u04ff]+")

# Accents of Latin, Greek and Cyrillic (й is a letter of its own), vowel points of Arabic and
# Hebrew, tatweel, soft hyphens and other characters nobody sees, variation selectors, skin tones.
_UNSEEN: Final = re.compile(
    "[\u0300-\u0305\u0307-\u036f\u0591-\u05bd\u05bf-\u05c7\u0640\u064b-\u065f\u0670\u06d6-\u06ed"
    "\u00ad\u061c\u180e\u200b\u200c\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufe00-\ufe0f"
    "\ufeff\U0001f3fb-\U0001f3ff]|(?<!\u0438)\u0306"
)
_LONE_JOINER: Final = re.compile(rf"(?<![{_EMOJI}])\u200d|\u200d(?![{_EMOJI}])")
# Letters that Unicode does not decompose, and quotation marks people write for an apostrophe.
_LETTERS: Final = str.maketrans(
    {"ø": "o", "ł": "l", "đ": "d", "ð": "d", "æ": "ae", "œ": "oe", "þ": "th", "ħ": "h",
     "\u0131": "i", "ŧ": "t", "ŋ": "n", "\u2019": "'", "\u02bc": "'", "\uff07": "'"}
)  # fmt: skip


def terms(text: str) -> list[str]:
    """Return the terms of a text in their order, with repeats: what is stored and counted.

    Each has 1 to 64 characters, never white space, and never begins with `@`. Stop words are left
    out, unless the text consists of nothing else.
    """
    return _terms(text, is_query=False)


def query_terms(text: str) -> list[str]:
    """Return the distinct terms to look for, in order of first mention.

    As `terms`, without the single characters inside a longer run: their pairs say it better.
    """
    return list(dict.fromkeys(_terms(text, is_query=True)))


def _terms(text: str, *, is_query: bool) -> list[str]:
    tokens = _tokens(_normal(text))
    found: list[str] = []
    for kind, token in tokens:
        if not _is_stop(token):
            found.extend(_expanded(kind, token, is_query=is_query))
    if not found:
        for kind, token in tokens:
            found.extend(_expanded(kind, token, is_query=is_query))
    return found


def _normal(text: str) -> str:
    if text.isascii():
        return text[:_MAX_CHARS].lower()
    folded = unicodedata.normalize("NFKC", text[:_MAX_CHARS]).casefold().translate(_LETTERS)
    bare = _UNSEEN.sub("", unicodedata.normalize("NFKD", folded))
    return _LONE_JOINER.sub("", unicodedata.normalize("NFC", bare))[:_MAX_CHARS]


def _tokens(text: str) -> list[tuple[str, str]]:
    return [(match.lastgroup or "", match.group()) for match in _TOKEN.finditer(text)]


def _is_stop(token: str) -> bool:
    if token in STOP_WORDS:
        return True
    base, apostrophe, clitic = token.rpartition("'")
    return bool(apostrophe) and (
        (base in STOP_WORDS and clitic in _CLITICS) or (base in _NEGATED and clitic == "t")
    )


def _expanded(kind: str, token: str, *, is_query: bool) -> Iterable[str]:
    if kind in {"cjk", "run"}:
        return _pairs(token, singles=kind == "cjk" and not is_query)
    if len(token) <= MAX_TERM_CHARS:
        return _cached(kind, token)
    return _uncached(kind, token)


def _pairs(run: str, *, singles: bool) -> list[str]:
    if len(run) == 1:
        return [run]
    pairs = [run[at : at + 2] for at in range(len(run) - 1)]
    return [*run, *pairs] if singles else pairs


@lru_cache(maxsize=65_536)
def _cached(kind: str, token: str) -> tuple[str, ...]:
    return tuple(_uncached(kind, token))


def _uncached(kind: str, token: str) -> list[str]:
    if kind == "word":
        return _word(token)
    if kind == "url":
        return _url(token)
    if kind == "emoji":
        signs = token.split("\u200d")
        return [*signs, "".join(signs)[:MAX_TERM_CHARS]] if len(signs) > 1 else signs
    return [token]


def _url(token: str) -> list[str]:
    whole = token.rstrip(".,;:!?)]}'")
    rest = whole.split("://", 1)[1]
    host = re.split(r"[/?#]", rest, maxsplit=1)[0]
    found = [whole[:MAX_TERM_CHARS]]
    if host and not host.startswith("@"):
        found.append(host[:MAX_TERM_CHARS])
    for match in _TOKEN.finditer(rest):
        found.extend(_expanded(match.lastgroup or "", match.group(), is_query=False))
    return list(dict.fromkeys(term for term in found if term not in STOP_WORDS))


def _word(token: str) -> list[str]:
    if _PLAIN.fullmatch(token):
        return [_stem(token)]
    if _GROUPED.fullmatch(token):
        return [token.replace(",", "")[:MAX_TERM_CHARS]]
    base, apostrophe, clitic = token.rpartition("'")
    if apostrophe and clitic in _CLITICS:
        return _word(base)
    parts = [part for part in _PART.findall(token) if part not in _CLITICS or part == token]
    found = [_stem(part) for part in parts if part not in STOP_WORDS]
    if len(parts) > 1 or "_" in token:
        joined = token.replace("'", "")
        if _IDENTIFIER.search(token) or "'" in token:
            found.insert(0, joined[:MAX_TERM_CHARS])
    return found


def _stem(word: str) -> str:
    if _PLAIN.fullmatch(word):
        return _english(word[:MAX_TERM_CHARS])
    if _CYRILLIC.fullmatch(word):
        return _russian(word[:MAX_TERM_CHARS])
    return word[:MAX_TERM_CHARS]


# A stemmer keeps the word it is at inside itself, so it is made anew: threads may analyse at once.
@lru_cache(maxsize=65_536)
def _english(word: str) -> str:
    return str(EnglishStemmer().stemWord(word))


@lru_cache(maxsize=65_536)
def _russian(word: str) -> str:
    return str(RussianStemmer().stemWord(word))
