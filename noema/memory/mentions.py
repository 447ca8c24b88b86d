"""Names in a text, found without a model: what a memory speaks of.

Capital letters in the middle of a sentence, quoted titles, @handles, addresses, hosts, identifiers
such as `PaymentService` or `INC-1234`, names before an honorific in Japanese and Korean, and who
speaks. A word that is capital merely because a sentence begins with it is no name. What is found is
what one can be fairly sure of: a missed name costs a link, an invented one a wrong entity.
"""

import re
import unicodedata
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final, TypeAlias

MAX_MENTIONS: Final = 32
"""How many names one text may have; the first ones count."""

MAX_NAME_CHARS: Final = 120
SPEAKER_CONFIDENCE: Final = 1_000_000
_SCANNED_CHARS: Final = 8_192

# Where it starts and ends, the name, its kind, and how sure.
_Span: TypeAlias = tuple[int, int, str, str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mention:
    """One name: as it stands in the text, normalised, of what kind, and how sure (micro-units).

    Kinds are `person`, `handle`, `email`, `host`, `address`, `code`, `title` and `thing`.
    """

    text: str
    normal: str
    kind: str
    confidence: int


def normal_name(name: str) -> str:
    """Return the name as names compare: NFKC, casefold, single spaces, no outer punctuation."""
    folded = unicodedata.normalize("NFKC", name).casefold()
    return " ".join(folded.split()).strip(_OUTER)[:MAX_NAME_CHARS].strip()


_OUTER: Final = " .,;:!?\"'`´“”‘’«»„()[]{}<>*"  # noqa: RUF001


def _cased(*, is_upper: bool) -> str:
    # Latin, Greek, Cyrillic, Armenian, Georgian and the like; `re` knows no class of capitals.
    chars = (chr(code) for code in range(0x21, 0x2000))
    found = "".join(c for c in chars if (c.isupper() if is_upper else c.islower()))
    return "".join("\\" + c if c in "\\]^-[" else c for c in found)


_UP: Final = _cased(is_upper=True)
_WORD: Final = rf"[{_UP}][\w’'&-]{{0,40}}"
_LINK: Final = (
    r"(?:of|the|de|la|le|du|des|del|della|di|da|dos|van|von|der|den|ter|bin|ibn|al|el|y|e)"
)
_TITLE: Final = r"(?:Mr|Mrs|Ms|Dr|Prof|Sir|Herr|Frau|Mme|St)\.?[ ]"
_NAMES: Final = re.compile(
    rf"(?<![\w@#/\\.-])(?P<title>{_TITLE})?{_WORD}"
    rf"(?:[ ]{{1,2}}(?:{_LINK}[ ]){{0,2}}{_WORD}){{0,5}}"
)
# Any of these has to be there for anything to be found at all.
_HINT: Final = re.compile(rf"[{_UP}@“«„「『《\"_]|\w\.\w|\d:|[ァ-ヺ]|さん|様|氏|님|씨")
_AT: Final = re.compile(
    r"(?P<email>(?<![\w.+-])[\w.+-]{1,64}@(?:[\w-]{1,63}\.){1,6}[^\W\d_]{2,24}(?![\w-]))"
    r"|(?P<handle>(?<![\w@./])@[^\W_][\w-]{1,38}(?:\.[\w-]{1,20})?)"
)
_DOTTED: Final = re.compile(
    r"(?P<address>(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?![\w.]|\.\d))"
    r"|(?P<host>(?<![\w.@-])(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.){1,6}[a-z]{2,24}(?![\w@(-]))"
)
_COLONS: Final = re.compile(r"(?<![\w:])[0-9a-fA-F:]{2,39}(?![\w:])")
_QUOTED: Final = re.compile(
    r'"([^"\n]{2,80})"|“([^”\n]{2,80})”|„([^“”\n]{2,80})[“”]|«([^»\n]{2,80})»'
    r"|「([^」\n]{1,40})」|『([^』\n]{1,40})』|《([^》\n]{1,40})》"
)
_CODE: Final = re.compile(
    r"(?<![\w@.#/-])(?:"
    r"[A-Z]{2,10}-\d{1,8}"
    r"|[a-z](?:[A-Z][a-z0-9]{1,30}){1,6}"
    r"|[A-Za-z][a-z0-9]{1,30}(?:[A-Z][a-z0-9]{1,30}){1,6}[A-Z]{0,4}"
    r"|[A-Za-z][A-Za-z0-9]{0,30}(?:_[A-Za-z0-9]{1,30}){1,8}"
    r")(?![\w@-])"
)
_EASTERN: Final = re.compile(
    r"[一-鿿々]{1,4}(?=さん|様|氏|くん|ちゃん|先生)"
    r"|[가-힣]{2,4}(?=님|씨)"
    r"|[ァ-ヺー]{3,20}(?:・[ァ-ヺー]{2,20}){0,3}"
)
_EASTERN_HINT: Final = re.compile(r"[ァ-ヺ]|さん|様|氏|くん|ちゃん|先生|님|씨")
_POSSESSIVE: Final = re.compile(r"[’']s?(?= |$)")
_ENDS: Final = frozenset(".!?…\n\r\t。！？>*•|-–—")  # noqa: RUF001
_OPENS: Final = frozenset(" \"“„«'‘([{")  # noqa: RUF001


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# A host of two labels is one only under these; `main.py` and `end.Next` are not.
_TOP: Final = _words("""
    com org net edu gov mil int io dev app ai cloud info biz local internal lan home localhost
    eu de fr it es nl uk us ch at be pl se no fi dk cz ie pt gr ru ua jp cn kr in br mx ca au nz
""")
# Words that begin sentences: articles, pronouns, conjunctions, prepositions, auxiliaries; how
# people begin to speak; what people tell one to do; days and months; and what logs shout.
_COMMON: Final = _words("""
    a an the this that these those i i'm i'll i've i'd im me my mine we we're we'll we've our us
    you you're your yours he he's she she's it it's its they they're their his her who whose
    whom which what when where why how if then than and but or nor so yet for from to in on at
    by with without of off over under after before since until while during about as is are was
    were be been am do does did has have had can could may might must shall should will would
    not no yes none any all some each every both either neither one two three another other same
    such there here that's what's there's let let's isn't don't doesn't didn't can't won't
    hi hey hello thanks thank please sorry ok okay sure well oh ah wow yeah yep nope great good
    nice cool right maybe perhaps actually also just still now today tomorrow yesterday tonight
    later soon again first second third last next finally however therefore meanwhile because
    although though once only even very really absolutely definitely congrats congratulations
    dear regards everything everyone everybody something someone somebody nothing nobody
    anything anyone many much most more less few several
    add ask book build buy call change check clean close come contact create delete deploy do
    email escalate fix find follow get give go install keep look make meet merge move note
    notify open ping put read remember remind remove replace reply report reset restart restore
    review roll run schedule see send set show start stop take tell test try turn update upgrade
    use wait watch write
    monday tuesday wednesday thursday friday saturday sunday mon tue wed thu fri sat sun january
    february march april june july august september october november december jan feb mar apr
    jun jul aug sep sept oct nov dec am pm utc gmt cet est pst
    error err warn warning info debug trace fatal critical notice get put post patch delete head
    options http https tcp udp ip url uri id ids json xml html ok null nil true false todo fixme
    note nb ps fyi asap eta faq re fw tl dr lol omg btw imo
""")
# After these, the word that began the sentence was somebody.
_PERSONAL: Final = _words("""
    says said asked told thinks thought likes liked loves loved hates hated prefers preferred
    lives lived works worked wants wanted knows knew met married joined wrote bought teaches
    taught studies studied plays played speaks spoke owns moved called visited believes hopes
    enjoys wishes
""")


def mentions(text: str, *, speaker: str | None = None) -> list[Mention]:
    """Return the names of a text in their order, each once; whoever speaks comes first.

    At most `MAX_MENTIONS`, of the first 8,192 characters. Pure, and linear in the text.
    """
    found: dict[str, Mention] = {}
    if speaker is not None:
        _keep(found, speaker, "person", SPEAKER_CONFIDENCE)
    text = text[:_SCANNED_CHARS]
    if _HINT.search(text) is None:
        return list(found.values())
    spans = _certain(text)
    # Text that shouts, and a heading in capitals, says nothing by its capitals.
    if not text.isupper():
        more = [s for m in _NAMES.finditer(text) if _is_free(m, spans) for s in _capitals(text, m)]
        spans += more
    spans.sort(key=lambda span: span[:2])
    for _, _, name, kind, confidence in spans:
        if len(found) >= MAX_MENTIONS:
            break
        _keep(found, name, kind, confidence)
    return list(found.values())


def _certain(text: str) -> list[_Span]:
    spans: list[_Span] = []
    if "@" in text:
        spans += [
            (m.start(), m.end(), m.group(), m.lastgroup or "handle", 950_000)
            for m in _AT.finditer(text)
        ]
    if "." in text:
        spans += _dotted(text)
    if ":" in text:
        spans += _six(text)
    spans += _quoted(text)
    spans += [(m.start(), m.end(), m.group(), "code", 750_000) for m in _CODE.finditer(text)]
    if not text.isascii() and _EASTERN_HINT.search(text):
        spans += [
            (m.start(), m.end(), m.group(), "thing", 600_000)
            for m in _EASTERN.finditer(text)
            if _is_free(m, spans)
        ]
    return spans


def _is_free(m: re.Match[str], spans: list[_Span]) -> bool:
    return not any(m.start() < end and start < m.end() for start, end, *_ in spans)


def _keep(found: dict[str, Mention], name: str, kind: str, confidence: int) -> None:
    name = name.strip()[:MAX_NAME_CHARS]
    normal = normal_name(name)
    if normal and normal not in found:
        found[normal] = Mention(text=name, normal=normal, kind=kind, confidence=confidence)


def _dotted(text: str) -> list[_Span]:
    found = []
    for m in _DOTTED.finditer(text):
        name = m.group()
        if m.lastgroup == "address":
            if all(int(part) <= 255 for part in name.split(".")):
                found.append((m.start(), m.end(), name, "address", 950_000))
        elif name.count(".") >= 2 or name.rpartition(".")[2] in _TOP:
            labels = name.split(".")
            # Abbreviations such as e.g. and i.e. are made of single letters.
            if any(len(label) > 1 for label in labels[:-1]):
                found.append((m.start(), m.end(), name, "host", 900_000))
    return found


def _six(text: str) -> list[_Span]:
    found = []
    for m in _COLONS.finditer(text):
        name = m.group()
        if name.count(":") < 2 or name.strip(":") == "":
            continue
        try:
            ip_address(name)
        except ValueError:
            continue
        found.append((m.start(), m.end(), name, "address", 950_000))
    return found


def _quoted(text: str) -> list[_Span]:
    found = []
    for m in _QUOTED.finditer(text):
        name = (m.group(m.lastindex or 0) or "").strip()
        words = name.split()
        is_title = (
            0 < len(words) <= 8
            and name[-1] not in ".!?…,"
            and all(w[0].isupper() or w[0].isdigit() or len(w) <= 3 for w in words)
            and words[-1].casefold() not in _COMMON
        )
        # Scripts without capitals give titles their own quotation marks.
        if (is_title and any(c.isupper() for c in name)) or m.group()[0] in "「『《":
            found.append((m.start(), m.end(), name, "title", 600_000))
    return found


def _capitals(text: str, m: re.Match[str]) -> list[_Span]:
    start = m.start()
    if m.group("title"):
        name = _POSSESSIVE.sub("", m.group()[len(m.group("title")) :])
        return [(start, m.end(), name, "person", 900_000)]
    is_start = _begins_sentence(text, start)
    found = []
    for piece in _POSSESSIVE.split(m.group()):
        at = start + m.group().find(piece)
        name, is_cut = _without_common(piece.strip())
        if not name:
            is_start = False
            continue
        is_owner = m.group()[at - start + len(piece) :].startswith(("'", "’"))
        is_alone = " " not in name
        unsure = is_start and not is_cut and is_alone and not is_owner
        if unsure and not (_is_acronym(name) or _is_followed_by_deed(text, m.end())):
            is_start = False
            continue
        is_start = False
        if is_alone and len(name) < 2:
            continue
        found.append((at, at + len(piece), name, "thing", 700_000 if is_alone else 850_000))
    return found


def _without_common(piece: str) -> tuple[str, bool]:
    words = piece.split()
    first, last = 0, len(words)
    while first < last and words[first].casefold().replace("’", "'") in _COMMON:
        first += 1
    while last > first and words[last - 1].casefold().replace("’", "'") in _COMMON:
        last -= 1
    return " ".join(words[first:last]), first > 0


def _is_acronym(name: str) -> bool:
    return 2 <= len(name) <= 8 and name.isupper()


def _is_followed_by_deed(text: str, at: int) -> bool:
    following = text[at : at + 24].split(None, 1)
    return bool(following) and following[0].strip(",.;:!?") in _PERSONAL


def _begins_sentence(text: str, start: int) -> bool:
    at = start - 1
    while at >= 0 and text[at] in _OPENS:
        at -= 1
    return at < 0 or text[at] in _ENDS
