"""Where an import reads from: a file or pipe of JSON lines, or a folder of text and Markdown.

A source yields one `Entry` for each write to be made and for each thing that cannot be one, in an
order that is the same every time, and can go on behind any `Mark`. However large the source is,
one line or one file of it is in memory at a time.
"""

import json
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO, Final, NoReturn, Protocol

from noema.cli.output import CommandError, one_line
from noema.cli.pieces import Piece, markdown_pieces, plain_pieces

MAX_LINE_BYTES: Final = 8 * 1024 * 1024
MAX_FILE_BYTES: Final = 16 * 1024 * 1024
MARKDOWN: Final = ("md", "markdown")
TEXT: Final = ("txt", "text")
EXTENSIONS: Final = (*MARKDOWN, *TEXT)
_CHUNK: Final = 64 * 1024
_HEAD_BYTES: Final = 64 * 1024
_HEADING_CHARS: Final = 200
_BOM: Final = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A place in a source, behind `items` entries.

    `units` are lines read or files finished, `parts` the pieces taken of the file at hand, `offset`
    the bytes of all that is finished.
    """

    items: int = 0
    units: int = 0
    parts: int = 0
    offset: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One write to be made, or what is wrong with it; `mark` is behind it.

    `lane` names what must keep its order: entries of one lane are written one after another.
    """

    place: str
    mark: Mark
    body: Mapping[str, Any] | None = None
    problem: str | None = None
    lane: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What tells a source from another, and from itself before it was changed."""

    path: str
    size: int
    modified_ns: int
    digest: str


@dataclass(slots=True, kw_only=True)
class Passed:
    """What was left out on purpose."""

    empty: int = 0
    links: int = 0


class Source(Protocol):
    """Something that can be imported. Without an `identity` it cannot be resumed."""

    @property
    def size(self) -> int | None:
        """How many bytes there are, None where only the end will tell."""
        ...

    @property
    def identity(self) -> Identity | None: ...

    @property
    def passed(self) -> Passed: ...

    def entries(self, mark: Mark) -> Iterator[Entry]:
        """Yield what stands behind the mark."""
        ...

    def close(self) -> None: ...


class JsonLines:
    """Each line is the body of a write, or a bare string that is its text.

    `defaults` stand in for fields that a line leaves out.
    """

    def __init__(
        self,
        file: BinaryIO,
        *,
        name: str,
        path: Path | None,
        defaults: Mapping[str, Any],
    ) -> None:
        self._file, self._name, self._defaults = file, name, defaults
        self.passed = Passed()
        self.identity = None if path is None else _identity_of_file(file.fileno(), path)
        self.size = None if self.identity is None else self.identity.size

    def entries(self, mark: Mark) -> Iterator[Entry]:
        if mark.offset:
            self._file.seek(mark.offset)
        items, number, offset = mark.items, mark.units, mark.offset
        for line, length in _lines(self._file):
            number += 1
            raw = line.removeprefix(_BOM) if line is not None and offset == 0 else line
            offset += length
            if raw is not None and not raw.strip():
                self.passed.empty += 1
                continue
            items += 1
            here = Mark(items=items, units=number, offset=offset)
            yield self._entry(raw, f"{self._name}:{number}", here)

    def _entry(self, raw: bytes | None, place: str, mark: Mark) -> Entry:
        try:
            body = _body(raw)
        except _Malformed as exc:
            return Entry(place=place, mark=mark, problem=str(exc))
        body = {**self._defaults, **body}
        # An import waits for each answer as it is.
        body.pop("async", None)
        return Entry(place=place, mark=mark, body=body, lane=lane_of(body))

    def close(self) -> None:
        self._file.close()


class TextFiles:
    """Text and Markdown in one file, or in a folder and all folders below.

    Hidden names are left out and symbolic links are not followed. `limit` is how many characters
    a piece has at most; the source of each begins with `prefix`; `defaults` are fields of every
    write.
    """

    def __init__(
        self,
        root: Path,
        *,
        extensions: Sequence[str],
        limit: int,
        prefix: str = "",
        defaults: Mapping[str, Any],
    ) -> None:
        self._root, self._limit, self._prefix, self._defaults = root, limit, prefix, defaults
        self._extensions = tuple(extension.lower().lstrip(".") for extension in extensions)
        self.passed = Passed()
        self.size: int
        self.identity: Identity
        self.size, self.identity = self._survey()

    def entries(self, mark: Mark) -> Iterator[Entry]:
        items, offset = mark.items, mark.offset
        for number, found in enumerate(_files(self._root, self._extensions, self.passed)):
            if number < mark.units:
                continue
            done = mark.parts if number == mark.units else 0
            parts = self._parts(found)
            for part, (place, body, problem) in enumerate(parts, 1):
                if part <= done:
                    continue
                items += 1
                here = Mark(items=items, units=number, parts=part, offset=offset)
                yield Entry(place=place, mark=here, body=body, problem=problem)
            offset += found.size

    def _parts(self, found: "_Found") -> Iterator[tuple[str, dict[str, Any] | None, str | None]]:
        if found.problem is not None:
            yield found.name, None, found.problem
            return
        try:
            text = _text_of(found)
        except _Malformed as exc:
            yield found.name, None, str(exc)
            return
        is_empty = True
        for piece in self._pieces(found.name, text):
            is_empty = False
            place = source_of(found.name, piece)
            source = self._prefix + place
            yield place, {"text": piece.text, "source": source, **self._defaults}, None
        self.passed.empty += is_empty

    def _pieces(self, name: str, text: str) -> Iterator[Piece]:
        cut = markdown_pieces if _extension(name) in MARKDOWN else plain_pieces
        return cut(text, self._limit)

    def _survey(self) -> tuple[int, Identity]:
        digest, size, newest = sha256(), 0, 0
        count = 0
        for found in _files(self._root, self._extensions, Passed()):
            count += 1
            size += found.size
            newest = max(newest, found.modified_ns)
            digest.update(f"{found.name}\0{found.size}\0{found.modified_ns}\n".encode())
        if not count:
            wanted = ", ".join(f".{extension}" for extension in self._extensions)
            raise CommandError(
                f"Nothing in {self._root} ends in {wanted}; name other endings with --ext."
            )
        path = str(self._root.resolve())
        whole = digest.hexdigest()
        return size, Identity(path=path, size=size, modified_ns=newest, digest=whole)

    def close(self) -> None:
        return


class _Malformed(Exception):  # noqa: N818
    """Something that cannot be written; the message says why, to stand behind its place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    name: str
    path: Path
    size: int = 0
    modified_ns: int = 0
    problem: str | None = None


def lane_of(body: Mapping[str, Any]) -> str | None:
    """Return what of a write depends on those before it: its conversation, or what it replaces."""
    if isinstance(body.get("conversation"), str):
        return f"conversation {body['conversation']}"
    if body.get("supersedes") is not None:
        return f"memory {body['supersedes']}"
    if body.get("refresh"):
        return f"source {body.get('source')}"
    return None


def source_of(name: str, piece: Piece) -> str:
    """Return where a piece comes from: the file, and the heading where it has one."""
    return f"{name}#{piece.heading[:_HEADING_CHARS]}" if piece.heading else name


def _body(raw: bytes | None) -> dict[str, Any]:
    if raw is None:
        raise _Malformed(f"is longer than {MAX_LINE_BYTES // 1024 // 1024} MiB")
    try:
        value = json.loads(raw.decode(), parse_constant=_refuse_constant)
    except UnicodeDecodeError as exc:
        raise _Malformed(_not_utf8(exc)) from None
    except (ValueError, RecursionError) as exc:
        nested = isinstance(exc, RecursionError)
        reason = "nested too deeply" if nested else getattr(exc, "msg", None) or str(exc)
        raise _Malformed(f"is not JSON ({one_line(reason)})") from None
    if isinstance(value, str):
        value = {"text": value}
    if not isinstance(value, dict):
        raise _Malformed("is neither an object nor a string")
    has_text = isinstance(value.get("text"), str)
    has_messages = isinstance(value.get("messages"), list)
    if has_text == has_messages:
        both = "both a" if has_text else "neither a"
        raise _Malformed(f'has {both} "text" and "messages"; a write has one of them')
    return value


def _lines(file: BinaryIO) -> Iterator[tuple[bytes | None, int]]:
    """Yield each line and how many bytes it takes; None for one that is too long."""
    while line := _read_line(file, MAX_LINE_BYTES + 1):
        length = len(line)
        if length <= MAX_LINE_BYTES or line.endswith(b"\n"):
            yield line, length
            continue
        while more := _read_line(file, _CHUNK):
            length += len(more)
            if more.endswith(b"\n"):
                break
        yield None, length


def _read_line(file: BinaryIO, limit: int) -> bytes:
    try:
        return file.readline(limit)
    except OSError as exc:
        raise CommandError(f"Cannot go on reading: {exc.strerror}.") from exc


def _files(root: Path, extensions: Sequence[str], passed: Passed) -> Iterator[_Found]:
    """Yield the files to read, by name within each folder; a file that is named alone is itself."""
    if not root.is_dir():
        status = root.stat()
        yield _Found(
            name=printable(root.name),
            path=root.resolve(),
            size=status.st_size,
            modified_ns=status.st_mtime_ns,
        )
        return
    try:
        waiting = [iter(_listed(root))]
    except OSError as exc:
        raise CommandError(f"Cannot read {root}: {exc.strerror}.") from exc
    while waiting:
        entry = next(waiting[-1], None)
        if entry is None:
            waiting.pop()
            continue
        path = Path(entry.path)
        name = printable(path.relative_to(root).as_posix())
        if entry.name.startswith("."):
            continue
        if entry.is_symlink():
            passed.links += 1
        elif entry.is_dir(follow_symlinks=False):
            try:
                waiting.append(iter(_listed(path)))
            except OSError as exc:
                yield _Found(name=name, path=path, problem=f"cannot be read: {exc.strerror}")
        elif entry.is_file(follow_symlinks=False) and _extension(entry.name) in extensions:
            yield _found(entry, name, path)


def _found(entry: os.DirEntry[str], name: str, path: Path) -> _Found:
    try:
        status = entry.stat(follow_symlinks=False)
    except OSError as exc:
        return _Found(name=name, path=path, problem=f"cannot be read: {exc.strerror}")
    return _Found(name=name, path=path, size=status.st_size, modified_ns=status.st_mtime_ns)


def _listed(folder: Path) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        return sorted(entries, key=lambda entry: os.fsencode(entry.name))


def _text_of(found: _Found) -> str:
    # O_NOFOLLOW: what was a file a moment ago may have become a link to another.
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        with os.fdopen(os.open(found.path, flags), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise _Malformed("is not a file any more")
            raw = file.read(MAX_FILE_BYTES + 1)
    except OSError as exc:
        raise _Malformed(f"cannot be read: {exc.strerror}") from None
    if len(raw) > MAX_FILE_BYTES:
        raise _Malformed(f"is larger than {MAX_FILE_BYTES // 1024 // 1024} MiB; split it")
    try:
        return raw.removeprefix(_BOM).decode()
    except UnicodeDecodeError as exc:
        raise _Malformed(_not_utf8(exc)) from None


def _identity_of_file(fd: int, path: Path) -> Identity:
    status = os.fstat(fd)
    return Identity(
        path=str(path.resolve()),
        size=status.st_size,
        modified_ns=status.st_mtime_ns,
        digest=sha256(os.pread(fd, _HEAD_BYTES, 0)).hexdigest(),
    )


def _not_utf8(exc: UnicodeDecodeError) -> str:
    return f"is not UTF-8 (byte 0x{exc.object[exc.start]:02x} at {exc.start})"


def printable(name: str) -> str:
    """Return the name of a file as text, bytes that are not UTF-8 as escapes."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def _extension(name: str) -> str:
    return name.rpartition(".")[2].lower()


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number in JSON")
