"""The members of a zip archive, mapped into memory.

An archive ends with a directory of its members. PyTorch stores members as they are, so that each is
a part of the mapped file. A member that another program compressed is decompressed when it is read,
in the size that the directory says. Nothing is written to a disk: a name is only looked up.
"""

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

_END = struct.Struct("<4s4H2LH")  # ... entries, size and start of the directory, comment
_LOCATOR = struct.Struct("<4sLQL")  # ... start of the 64-bit end
_END64 = struct.Struct("<4sQ2H2L4Q")
_ENTRY = struct.Struct("<4s6H3L5H2L")
_LOCAL = struct.Struct("<4s5H3L2H")
_U16, _U32 = 0xFFFF, 0xFFFFFFFF  # a number that stands elsewhere, in 64 bits
_ENCRYPTED, _STORED, _DEFLATED = 1, 0, 8
_MAX_DIRECTORY = 64 << 20  # bytes; an entry has about 100
_MAX_RATIO = 1032  # deflate's best


class Member(NamedTuple):
    """A member of an archive.

    Attributes:
        start: where its bytes begin in the file.
        held: how many bytes it takes there.
        size: how many bytes it has.
        crc: their checksum.
    """

    start: int
    held: int
    size: int
    method: int
    crc: int


def bytes_of(source: Path | bytes) -> np.ndarray:
    """A file's bytes, mapped into memory, or those that are there. Raises OSError, ValueError."""
    if isinstance(source, bytes):
        return np.frombuffer(source, np.uint8)
    return np.memmap(source, np.uint8, "r").view(np.ndarray)


class ZipArchive:
    """An archive, whose directory was checked against the file's size.

    Args:
        source: Its file, or its bytes.

    Attributes:
        members: by name.

    Raises:
        OSError, ValueError: it is unreadable, cut off, encrypted, or its directory contradicts the
            file, has a name twice, or one that leads out of the archive.
    """

    def __init__(self, source: Path | bytes) -> None:
        self._bytes = bytes_of(source)
        self.members: dict[str, Member] = {}
        try:
            for name, member in self._entries():
                if name in self.members:
                    raise ValueError(f"the member {name!r} is there twice")
                self.members[name] = member
        except (struct.error, UnicodeDecodeError) as error:
            raise ValueError(f"the directory of the zip archive is damaged: {error}") from error

    def read(self, name: str, *, check: bool = True) -> np.ndarray:
        """A member's bytes, which cannot be written to. Raises ValueError if they are damaged.

        Args:
            check: compare their checksum, for which all of them are read.
        """
        member = self.members[name]
        held = self._bytes[member.start : member.start + member.held]
        if member.method == _DEFLATED:
            held = _inflated(name, held, member.size)
        if check and zlib.crc32(held) != member.crc:
            raise ValueError(
                f"the member {name!r} is damaged: its checksum is not that of the directory"
            )
        held.flags.writeable = False
        return held

    def _entries(self) -> Iterator[tuple[str, Member]]:
        count, size, start = self._directory()
        if size > _MAX_DIRECTORY:
            raise ValueError(f"its directory has {size} bytes; at most {_MAX_DIRECTORY} are read")
        data, position = self._part(start, size, "the directory"), 0
        for _ in range(count):
            *fields, name_size, extra_size, comment = _ENTRY.unpack_from(data, position)[:13]
            offset = _ENTRY.unpack_from(data, position)[16]
            if fields[0] != b"PK\1\2":
                raise ValueError("the directory of the zip archive is damaged")
            position += _ENTRY.size
            name = data[position : position + name_size].decode()
            extra = data[position + name_size : position + name_size + extra_size]
            position += name_size + extra_size + comment
            held, length = fields[8], fields[9]
            length, held, offset = _in_64_bits(extra, length, held, offset)
            if not name.endswith("/"):
                yield name, self._member(name, offset, held, length, fields)

    def _member(self, name: str, offset: int, held: int, size: int, fields: list[int]) -> Member:
        flags, method, crc = fields[3], fields[4], fields[7]
        if name.startswith("/") or "\\" in name or ".." in name.split("/"):
            raise ValueError(f"the member {name!r} leads out of the archive")
        if flags & _ENCRYPTED or method not in (_STORED, _DEFLATED):
            raise ValueError(f"the member {name!r} is encrypted, or compressed in an unknown way")
        if size != held if method == _STORED else size > held * _MAX_RATIO:
            raise ValueError(f"the member {name!r} has {held} bytes and says that it has {size}")
        local = _LOCAL.unpack(self._part(offset, _LOCAL.size, f"the member {name!r}"))
        if local[0] != b"PK\3\4":
            raise ValueError(f"the member {name!r} is not where the directory says")
        start = offset + _LOCAL.size + local[9] + local[10]
        self._check(start, held, f"the member {name!r}")
        return Member(start, held, size, method, crc)

    def _directory(self) -> tuple[int, int, int]:
        """How many entries it has, its size and where it begins."""
        total = len(self._bytes)
        tail_start = max(0, total - _END.size - _U16)
        tail = self._part(tail_start, total - tail_start, "its end")
        at = tail.rfind(b"PK\5\6")
        if at < 0:
            raise ValueError("it is no whole zip archive: its end is missing")
        end = _END.unpack_from(tail, at)
        count, size, start = end[4:7]
        if (count, size, start) != (_U16, _U32, _U32) and _U32 not in (size, start):
            return count, size, start
        at_locator = tail_start + at - _LOCATOR.size
        locator = _LOCATOR.unpack(self._part(at_locator, _LOCATOR.size, "its end"))
        end64 = _END64.unpack(self._part(locator[2], _END64.size, "its end"))
        if locator[0] != b"PK\6\7" or end64[0] != b"PK\6\6":
            raise ValueError("the end of the zip archive is damaged")
        return end64[7], end64[8], end64[9]

    def _part(self, start: int, size: int, what: str) -> bytes:
        self._check(start, size, what)
        return self._bytes[start : start + size].tobytes()

    def _check(self, start: int, size: int, what: str) -> None:
        if start < 0 or start + size > len(self._bytes):
            raise ValueError(
                f"it is cut off or damaged: {what} is in bytes {start} to {start + size} of "
                f"{len(self._bytes)}"
            )


def _in_64_bits(extra: bytes, size: int, held: int, offset: int) -> tuple[int, int, int]:
    """Takes numbers that are too large for 32 bits from an entry's extra fields."""
    numbers = [size, held, offset]
    if _U32 not in numbers:
        return size, held, offset
    position = 0
    while position < len(extra):
        kind, length = struct.unpack_from("<2H", extra, position)
        position += 4
        if kind == 1:
            wide = [number for number, one in enumerate(numbers) if one == _U32]
            for place, one in enumerate(wide):
                (numbers[one],) = struct.unpack_from("<Q", extra, position + 8 * place)
            break
        position += length
    return numbers[0], numbers[1], numbers[2]


def _inflated(name: str, held: np.ndarray, size: int) -> np.ndarray:
    """What was compressed, of exactly this size. Raises ValueError."""
    try:
        stream = zlib.decompressobj(-zlib.MAX_WBITS)
        data = stream.decompress(held.tobytes(), size + 1)
    except zlib.error as error:
        raise ValueError(f"the member {name!r} is damaged: {error}") from error
    if len(data) != size or not (stream.eof or size == 0):
        raise ValueError(
            f"the member {name!r} says that it has {size} bytes, and has {len(data)} or more"
        )
    return np.frombuffer(data, np.uint8)
