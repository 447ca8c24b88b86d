"""How a text or Markdown file becomes pieces, each small enough to be one memory.

Nothing is dropped but white space around a piece: every line of a file stands in one of its pieces,
in order. Line ends become LF.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from markdown_it import MarkdownIt

_BLANK_LINES: Final = re.compile(r"\n[ \t\f\v]*\n\s*")
_SENTENCE_END: Final = re.compile(r"[.!?…]['\")\]]?\s|[\u3002\uff01\uff1f]")
_SPACE: Final = re.compile(r"\s")
_GAP: Final = "\n\n"
_FRONT: Final = "---"


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A passage with the heading that it stands under, empty where there is none."""

    heading: str
    text: str


@dataclass(slots=True)
class _Section:
    """Headings that follow one another directly, the deepest last, and the blocks below them."""

    heading: str = ""
    level: int = 0
    titles: list[str] = field(default_factory=list)
    blocks: list[str] = field(default_factory=list)


def plain_pieces(text: str, limit: int) -> Iterator[Piece]:
    """Yield the paragraphs of a text, as many together as fit into `limit` characters."""
    for packed in _packed(_BLANK_LINES.split(_with_line_feeds(text)), limit):
        yield Piece(heading="", text=packed)


def markdown_pieces(text: str, limit: int) -> Iterator[Piece]:
    """Yield the sections of a Markdown text; one over `limit` characters comes in several pieces.

    Each piece begins with its heading, so that it can be understood, and found, alone. A heading
    with nothing below it but a deeper one goes with that one. Blocks (paragraphs, lists, tables,
    fenced code) stay whole where they fit.
    """
    for section in _sections(_with_line_feeds(text)):
        title = _GAP.join(section.titles)
        if not section.blocks or 2 * len(title) > limit:
            for packed in _packed([title, *section.blocks], limit):
                yield Piece(heading=section.heading, text=packed)
            continue
        above = title + _GAP if title else ""
        for packed in _packed(section.blocks, limit - len(above)):
            yield Piece(heading=section.heading, text=above + packed)


def _sections(text: str) -> Iterator[_Section]:
    front, body = _front_matter(text)
    section = _Section(blocks=[front] if front else [])
    for level, heading, block in _blocks(body):
        if level == 0:
            section.blocks.append(block)
        elif not section.blocks and section.level < level:
            section.heading, section.level = heading, level
            section.titles.append(block)
        else:
            yield section
            section = _Section(heading=heading, level=level, titles=[block])
    if section.titles or section.blocks:
        yield section


def _blocks(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield the outermost blocks: level and text of a heading, else 0 and nothing; the source."""
    lines = text.split("\n")
    parser = MarkdownIt("commonmark").enable("table")
    # Only where blocks begin and end is wanted.
    parser.core.ruler.enableOnly(["normalize", "block"])
    tokens = parser.parse(text)
    # Where a block begins, the one before has ended: what makes no token of its own (a definition
    # of a link) is not lost.
    bounds: list[tuple[int, int, str]] = []
    for number, token in enumerate(tokens):
        if token.level or token.nesting < 0 or token.map is None:
            continue
        start, end = token.map
        if token.type == "heading_open":
            bounds.append((start, int(token.tag[1:]), tokens[number + 1].content))
            bounds.append((end, 0, ""))
        else:
            bounds.append((start, 0, ""))
    starts = [start for start, _, _ in bounds] + [len(lines)]
    yield from _block(lines[: starts[0]], 0, "")
    for number, (start, level, heading) in enumerate(bounds):
        yield from _block(lines[start : starts[number + 1]], level, heading)


def _block(lines: list[str], level: int, heading: str) -> Iterator[tuple[int, str, str]]:
    block = _trimmed("\n".join(lines))
    if block:
        yield level, " ".join(heading.split()), block


def _front_matter(text: str) -> tuple[str, str]:
    """Return what stands between two lines of dashes at the very start, and the rest."""
    lines = text.split("\n")
    if lines[0].rstrip() == _FRONT:
        for number, line in enumerate(lines[1:], 1):
            if line.rstrip() in (_FRONT, "..."):
                return "\n".join(lines[: number + 1]), "\n".join(lines[number + 1 :])
    return "", text


def _packed(blocks: Iterable[str], limit: int) -> Iterator[str]:
    """Yield the blocks, several together while they fit, one alone in parts where it does not."""
    packed = ""
    for block in map(_trimmed, blocks):
        if not block:
            continue
        if packed and len(packed) + len(_GAP) + len(block) <= limit:
            packed += _GAP + block
            continue
        if packed:
            yield packed
        *whole, packed = _fitting(block, limit)
        yield from whole
    if packed:
        yield packed


def _fitting(text: str, limit: int) -> list[str]:
    """Return the text in parts of at most `limit` characters, cut where it hurts least."""
    parts = []
    while len(text) > limit:
        cut = _cut(text, limit)
        part, text = text[:cut].rstrip(), text[cut:].lstrip("\n").rstrip()
        if part.strip():
            parts.append(part)
    return [*parts, text] if text.strip() or not parts else parts


def _cut(text: str, limit: int) -> int:
    """Return where to cut: behind a line, a sentence or a word, else between two characters."""
    least = limit // 2
    line = text.rfind("\n", least, limit)
    if line >= 0:
        return line + 1
    for pattern in (_SENTENCE_END, _SPACE):
        ends = [match.end() for match in pattern.finditer(text, least, limit)]
        if ends:
            return ends[-1]
    cut = limit
    # Never between a letter and its accent, or inside an emoji made of several.
    while cut > least and (_joins(text[cut]) or text[cut - 1] == "\u200d"):
        cut -= 1
    return cut


def _joins(char: str) -> bool:
    return char == "\u200d" or unicodedata.category(char) in ("Mn", "Mc", "Me")


def _trimmed(block: str) -> str:
    """Return the block without white space around it; its first line stays indented."""
    return re.sub(r"\A(?:[^\S\n]*\n)+", "", block).rstrip()


def _with_line_feeds(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")
