"""Kinds of personal data in a text: shapes, check digits, and the words around them.

Numbers are looked at only where there are enough digits. Phone numbers are judged by
libphonenumber, account and identity numbers by python-stdnum; what has no check digit needs a word
that says what it is. In doubt a kind is named: too strict a label costs less than a missing one.
"""

import re
import unicodedata
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

import phonenumbers
from stdnum import iban, luhn
from stdnum.br import cpf
from stdnum.ch import ssn as ahv
from stdnum.de import idnr
from stdnum.es import dni, nie
from stdnum.fr import nir
from stdnum.gb import nhs
from stdnum.in_ import aadhaar
from stdnum.it import codicefiscale
from stdnum.nl import bsn
from stdnum.pl import pesel
from stdnum.se import personnummer
from stdnum.us import ssn

RESTRICTED: Final = frozenset({"credit_card", "national_id"})
"""What alone lets somebody pose as another, or pay as them."""

_MOST_TRIED: Final = 50
# Nothing here asks for more digits than a payment card has.
_MOST_DIGITS: Final = 13
_AROUND: Final = 40

_DIGITS = re.compile(r"\d")
_EMAIL = re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@(?:[\w-]{1,63}\.)+[^\W\d_]{2,24}(?![\w-])")
_FOUR = re.compile(r"(?<![\d.])(?:\d{1,3}\.){3}\d{1,3}(?![\d.])")
_SIX = re.compile(
    r"(?<![0-9A-Fa-f:])(?:[0-9A-Fa-f]{1,4}:){2,7}(?::|[0-9A-Fa-f]{1,4}|:[0-9A-Fa-f]{1,4})"
)
_IBAN = re.compile(r"(?<![A-Z0-9])[A-Z]{2}\d{2}(?: ?[A-Z0-9]{2,4}){3,8}(?![A-Z0-9])", re.IGNORECASE)
_CARD = re.compile(r"(?<![\d.,-])[2-6](?:[ -]?\d){12,18}(?![\d-])")
_PHONE = re.compile(
    r"(?<![\w.,:/=#-])(?:\+|00)?\(?\d(?:[ ()/.\u2010-\u2013-]{0,2}\d){6,14}(?![\w]|[.,:/-]\d)"
)
_PHONE_WORD = re.compile(
    r"phone|mobile|cell|\bcall|\btel\b|\btel[.:]|\bfax|\bsms\b|\btext (?:me|him|her|us)|whatsapp"
    r"|signal\b|ring me|handy|telefon|téléphone|portable|teléfono|móvil|電話|电话|телефон",
    re.IGNORECASE,
)
_NORTH_AMERICAN = re.compile(r"\(?\d{3}\)?[-. ]\d{3}[-. ]\d{4}\Z")
_TRUNK = re.compile(r"\(?0\d")
# Where a number without a country is tried, most speakers first.
_REGIONS: Final = ("US", "GB", "DE", "FR", "IN", "ES", "IT", "BR", "NL", "CH")

_DATE = (
    r"(?:\d{1,4}[-./]\d{1,2}[-./]\d{1,4}"
    r"|\d{1,2}(?:st|nd|rd|th|\.)? (?:of )?[^\W\d_]{3,12},? \d{4}"
    r"|[^\W\d_]{3,12} \d{1,2}(?:st|nd|rd|th)?,? \d{4}"
    r"|\d{4}年\d{1,2}月\d{1,2}日)"
)
_BORN = re.compile(
    r"(?:\bborn\b|birth ?da(?:te|y)|date of birth|\bd\.?o\.?b\b|\bgeboren|geburtsdatum|\bnée?\b"
    r"|\bnacid[oa]\b|\bnat[oa] il\b|生まれ|生年月日|出生|родил)[^\n]{0,30}?"
    + _DATE
    + "|"
    + _DATE
    + r"[^\n]{0,6}?(?:生まれ|出生)",
    re.IGNORECASE,
)

_BORN_PIECES: Final = (
    "born", "birth", "dob", "d.o.b", "gebor", "geburt", "né", "nacid", "nat", "生", "родил",
)  # fmt: skip

_NO = r"\d{1,5}[a-zA-Z]?"
# By the pieces one of which must be there: trying the patterns everywhere costs far more.
_ADDRESSES: Final = tuple(
    (pieces, re.compile(pattern, re.IGNORECASE))
    for pieces, pattern in (
        (
            (" st", " av", " r", " la", " ln", " dr", " b", " way", " c", " p", " sq", " te", " h"),
            (
                rf"(?<!\w){_NO} (?:[^\W\d_][\w.'’-]{{0,20}} ){{1,4}}"
                r"(?:street|st|avenue|ave|road|rd|lane|ln|drive|dr|boulevard|blvd|way|court|ct|place|pl"
                r"|square|sq|terrace|crescent|close|highway|parkway|pkwy)\b"
            ),
        ),
        (
            ("straße", "strasse", "str.", "gasse", "allee", "platz", "weg", "straat", "laan"),
            (
                r"\b[^\W\d_][\w-]{0,30}"
                rf"(?:straße|strasse|str\.|gasse|allee|platz|weg|straat|laan) {_NO}\b"
            ),
        ),
        (
            ("rue ", "avenue ", "boulevard ", "chemin ", "impasse ", "allée "),
            rf"(?<!\w){_NO},? (?:bis |ter )?(?:rue|avenue|boulevard|chemin|impasse|allée) [^\W\d_]",
        ),
        (
            ("calle ", "avenida ", "paseo ", "via ", "viale ", "piazza ", "rua "),
            (
                r"\b(?:calle|avenida|paseo|via|viale|piazza|rua) "
                rf"(?:[^\W\d_][\w.'’-]{{0,20}},? ){{1,4}}{_NO}\b"
            ),
        ),
        (
            ("ул.", "улица", "проспект"),
            rf"\b(?:ул\.|улица|проспект) [^\W\d_][\w -]{{2,30}},? (?:д\. ?)?{_NO}\b",
        ),
        (
            ("〒", "都", "道", "府", "県", "市", "区", "町", "村"),
            r"〒 ?\d{3}-\d{4}|[都道府県市区町村][^\s\d]{1,12}\d{1,3}[-丁]\d",
        ),
    )
)

# Shape and check. Those of the second list are too common to count without a word that names them.
_ID_WORD = re.compile(
    r"\bssn\b|social security|national (?:id|insurance)|\bnino\b|\bnhs\b|\bbsn\b|\bpesel\b|\bcpf\b"
    r"|aadhaar|personnummer|steuer-?id|tax id|identifikationsnummer|\bdni\b|\bnie\b|\bnir\b|\bahv\b"
    r"|sécurité sociale|codice fiscale|burgerservicenummer|identity (?:card|number)|ausweis",
    re.IGNORECASE,
)


def _by_shape(_: str) -> bool:
    return True


_IDS: Final[tuple[tuple[re.Pattern[str], Callable[[str], bool]], ...]] = (
    (re.compile(r"(?<![\d-])\d{3}-\d{2}-\d{4}(?![\d-])"), _by_shape),
    (
        re.compile(r"\b[A-CEGHJ-PR-TW-Z]{2} ?\d{2} ?\d{2} ?\d{2} ?[A-D]\b"),
        lambda number: number[:2] not in {"BG", "GB", "NK", "KN", "TN", "NT", "ZZ"},
    ),
    (
        re.compile(r"\b[A-Z]{6}\d{2}[A-Z]\d{2}[A-Z]\d{3}[A-Z]\b", re.IGNORECASE),
        codicefiscale.is_valid,
    ),
    (re.compile(r"\b\d{8}-?[A-Z]\b"), dni.is_valid),
    (re.compile(r"\b[XYZ]-?\d{7}-?[A-Z]\b"), nie.is_valid),
    (
        re.compile(r"(?<!\d)[12] ?\d{2} ?\d{2} ?\d[\dAB] ?\d{3} ?\d{3} ?\d{2}(?!\d)"),
        nir.is_valid,
    ),
    (re.compile(r"(?<!\d)\d{3}\.\d{3}\.\d{3}-\d{2}(?!\d)"), cpf.is_valid),
    (re.compile(r"(?<!\d)756\.?\d{4}\.?\d{4}\.?\d{2}(?!\d)"), ahv.is_valid),
    (re.compile(r"(?<![\d-])[2-9]\d{3} \d{4} \d{4}(?![\d-])"), aadhaar.is_valid),
    (re.compile(r"(?<!\d)(?:\d{2})?\d{6}[-+]\d{4}(?!\d)"), personnummer.is_valid),
)
_NAMED_IDS: Final[tuple[tuple[re.Pattern[str], Callable[[str], bool]], ...]] = (
    (re.compile(r"(?<!\d)\d{3}[ -]?\d{2}[ -]?\d{4}(?!\d)"), ssn.is_valid),
    (re.compile(r"(?<!\d)\d{3}[ -]?\d{3}[ -]?\d{4}(?!\d)"), nhs.is_valid),
    (re.compile(r"(?<!\d)\d{8,9}(?!\d)"), bsn.is_valid),
    (re.compile(r"(?<!\d)\d{11}(?!\d)"), pesel.is_valid),
    (re.compile(r"(?<!\d)\d{2} ?\d{3} ?\d{3} ?\d{3}(?!\d)"), idnr.is_valid),
    (re.compile(r"(?<!\d)\d{11}(?!\d)"), cpf.is_valid),
    (re.compile(r"(?<!\d)\d{12}(?!\d)"), aadhaar.is_valid),
    (re.compile(r"(?<!\d)\d{10}(?!\d)"), personnummer.is_valid),
)
_PASSPORT = re.compile(
    r"(?:passport|reisepass|passeport|pasaporte|паспорт)[^\n]{0,20}?\b(?=[A-Z0-9]*\d)[A-Z0-9]{6,9}\b",
    re.IGNORECASE,
)  # fmt: skip


def kinds(text: str) -> tuple[str, ...]:
    """Return the kinds of personal data in the text, sorted, each once.

    `address`, `birth_date`, `credit_card`, `email`, `iban`, `ip`, `national_id`, `passport`,
    `phone`.
    """
    # Digits of other scripts and full-width letters are the same data.
    plain = text if text.isascii() else unicodedata.normalize("NFKC", text)
    return tuple(sorted(set(_found(plain))))


def _found(text: str) -> Iterator[str]:
    if "@" in text and _EMAIL.search(text):
        yield "email"
    if text.count(":") >= 2 and any(_is_address(m.group()) for m in _SIX.finditer(text)):
        yield "ip"
    if _DIGITS.search(text) is None:
        return
    low = text.lower()
    if any(p.search(text) for pieces, p in _ADDRESSES if any(piece in low for piece in pieces)):
        yield "address"
    digits = sum(1 for _ in islice(_DIGITS.finditer(text), _MOST_DIGITS))
    if digits >= 4:
        if text.count(".") >= 3 and any(_is_address(m.group()) for m in _FOUR.finditer(text)):
            yield "ip"
        if any(piece in low for piece in _BORN_PIECES) and _BORN.search(text):
            yield "birth_date"
    if digits >= 5:
        if _PASSPORT.search(text):
            yield "passport"
        yield from _numbers(text, digits)


def _numbers(text: str, digits: int) -> Iterator[str]:
    if digits >= 6:
        if any(map(_is_iban, _tried(_IBAN, text))):
            yield "iban"
        if _is_id_in(text):
            yield "national_id"
    if digits >= 7 and any(_is_phone(m, text) for m in _matches(_PHONE, text)):
        yield "phone"
    if digits >= 13 and any(map(_is_card, _tried(_CARD, text))):
        yield "credit_card"


def _matches(pattern: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    # Bounded: a table of a thousand numbers is told from its first fifty.
    for number, match in enumerate(pattern.finditer(text)):
        if number >= _MOST_TRIED:
            return
        yield match


def _tried(pattern: re.Pattern[str], text: str) -> Iterator[str]:
    return (match.group() for match in _matches(pattern, text))


def _is_address(text: str) -> bool:
    if ":" in text:
        return "::" in text or text.count(":") == 7
    parts = text.split(".")
    return all(int(part) <= 255 and str(int(part)) == part for part in parts)


def _is_iban(text: str) -> bool:
    words = text.upper().split(" ")
    # The words that follow may have been taken for more of it.
    return any(iban.is_valid("".join(words[:end])) for end in range(len(words), 0, -1))


def _is_card(text: str) -> bool:
    digits = re.sub(r"\D", "", text)
    return len(set(digits)) > 1 and bool(luhn.is_valid(digits))


def _is_id_in(text: str) -> bool:
    if any(check(number) for shape, check in _IDS for number in _tried(shape, text)):
        return True
    fits = any(check(number) for shape, check in _NAMED_IDS for number in _tried(shape, text))
    return fits and _ID_WORD.search(text) is not None


def _is_phone(match: re.Match[str], text: str) -> bool:
    number = match.group()
    if number.startswith("00"):
        number = "+" + number[2:]
    if number.startswith("+"):
        return _is_valid_phone(number, None)
    around = text[max(0, match.start() - _AROUND) : match.end() + _AROUND // 2]
    if _NORTH_AMERICAN.match(number):
        return _is_valid_phone(number, "US")
    is_called = _PHONE_WORD.search(around) is not None
    is_spaced = _TRUNK.match(number) is not None and len(re.findall(r"\D+", number)) >= 1
    if not is_called and not is_spaced:
        return False
    return any(_is_valid_phone(number, region) for region in _REGIONS)


def _is_valid_phone(number: str, region: str | None) -> bool:
    try:
        return phonenumbers.is_valid_number(phonenumbers.parse(number, region))
    except phonenumbers.NumberParseException:
        return False
