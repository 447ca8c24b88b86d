"""Amazon's binary event streams: frames of headers and a payload, each with two checksums.

A frame is: its whole length and that of its headers, four bytes each, big-endian; the CRC-32 of
these eight bytes; the headers; the payload; the CRC-32 of everything before. A header is the length
of its name in a byte, the name, a byte for the type of its value, and the value.
"""

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final
from zlib import crc32

_PRELUDE: Final = struct.Struct("!III")
_CRC: Final = struct.Struct("!I")
_LENGTH: Final = struct.Struct("!H")
_LONGEST_HEADERS: Final = 128 * 1024
_LONGEST_FRAME: Final = 16 * 1024 * 1024
# The types of values by their number: of these the length is fixed, two more say theirs.
_FIXED: Final[Mapping[int, int]] = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}
_BYTES: Final = 6
_STRING: Final = 7


class DamagedStream(ValueError):  # noqa: N818
    """What came is no event stream, or not whole. Says what is wrong, and quotes nothing."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One event. Of the headers only those that are text are kept."""

    headers: Mapping[str, str]
    payload: bytes


class Frames:
    """Cuts bytes that come in pieces into frames, and checks each.

    A frame longer than 16 MiB is refused as soon as its length is known.
    """

    def __init__(self) -> None:
        self._waiting = bytearray()
        self._needed = _PRELUDE.size

    def feed(self, piece: bytes) -> Iterator[Frame]:
        """Take the next piece; give the frames that it completes. Raises DamagedStream."""
        self._waiting += piece
        while len(self._waiting) >= self._needed:
            total, headers = self._prelude()
            self._needed = total
            if len(self._waiting) < total:
                return
            raw = bytes(self._waiting[:total])
            del self._waiting[:total]
            self._needed = _PRELUDE.size
            yield _frame(raw, headers)

    def end(self) -> None:
        """Raise DamagedStream where the end cut a frame off."""
        if self._waiting:
            raise DamagedStream("it ends within an event")

    def _prelude(self) -> tuple[int, int]:
        total, headers, checksum = _PRELUDE.unpack_from(self._waiting)
        if crc32(self._waiting[: _PRELUDE.size - _CRC.size]) != checksum:
            raise DamagedStream("the checksum of a length is wrong")
        shortest = _PRELUDE.size + headers + _CRC.size
        if headers > _LONGEST_HEADERS or not shortest <= total <= _LONGEST_FRAME:
            raise DamagedStream("the length of an event is impossible")
        return total, headers


def _frame(raw: bytes, headers: int) -> Frame:
    end = len(raw) - _CRC.size
    if crc32(raw[:end]) != _CRC.unpack_from(raw, end)[0]:
        raise DamagedStream("the checksum of an event is wrong")
    start = _PRELUDE.size + headers
    return Frame(_headers(raw[_PRELUDE.size : start]), raw[start:end])


def _headers(raw: bytes) -> dict[str, str]:
    found: dict[str, str] = {}
    at = 0
    try:
        while at < len(raw):
            name_end = at + 1 + raw[at]
            name, kind = raw[at + 1 : name_end].decode("utf-8"), raw[name_end]
            at = name_end + 1
            if kind in _FIXED:
                at += _FIXED[kind]
            elif kind in (_BYTES, _STRING):
                start = at + _LENGTH.size
                at = start + _LENGTH.unpack_from(raw, at)[0]
                if kind == _STRING:
                    found[name] = raw[start:at].decode("utf-8")
            else:
                raise DamagedStream("a header is of an unknown type")
    except (IndexError, UnicodeDecodeError, struct.error):
        raise DamagedStream("a header cannot be read") from None
    if at != len(raw):
        raise DamagedStream("a header is cut off")
    return found
