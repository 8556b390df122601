"""Reads 64-bit little-endian ELF files: sections, notes, and what a library needs of others.

Source: System V ABI, chapters 4 and 5; Linux Standard Base, "Symbol Versioning".
"""

import struct
from collections.abc import Iterator
from mmap import mmap
from typing import NamedTuple

HEADER = b"\x7fELF\x02\x01"
DYNAMIC, NOTE, DYNAMIC_SYMBOLS = 6, 7, 11
VERSIONS_NEEDED, SYMBOL_VERSIONS = 0x6FFFFFFE, 0x6FFFFFFF
NEEDED = 1  # the tag of an entry that names a library
WEAK = 2

File = bytes | mmap


class Section(NamedTuple):
    """A section.

    Attributes:
        kind: one of the numbers above, or another one.
        data: where its bytes are in the file.
        link: the number of the section that it refers to, for example that of its strings.
    """

    kind: int
    data: slice
    link: int


class Needs(NamedTuple):
    """What a library takes from others.

    Attributes:
        versions: by the file name of the other, the names of its symbols' versions.
        symbols: by the same, the names of the symbols; under "" those that have no version.
    """

    versions: dict[str, set[str]]
    symbols: dict[str, set[str]]


def sections(file: File) -> list[Section]:
    """All sections of a file, by number.

    Raises:
        ValueError: this is no ELF file, or another kind of it.
    """
    if file[: len(HEADER)] != HEADER:
        raise ValueError(f"no 64-bit little-endian ELF file: it begins with {file[:6]!r}")
    (start,) = struct.unpack_from("<Q", file, 40)
    size, number = struct.unpack_from("<HH", file, 58)
    found = []
    for place in range(start, start + size * number, size):
        _, kind, _, _, offset, length, link = struct.unpack_from("<IIQQQQI", file, place)
        found.append(Section(kind, slice(offset, offset + length), link))
    return found


def notes(file: File) -> Iterator[tuple[str, int, bytes]]:
    """All notes of a file: name of the owner, kind, content.

    Raises:
        ValueError: as for `sections`.
    """
    for section in sections(file):
        place = section.data.start
        while section.kind == NOTE and place < section.data.stop:
            name, size, kind = struct.unpack_from("<III", file, place)
            begin = place + 12 + _padded(name)
            owner = file[place + 12 : place + 12 + name].rstrip(b"\0").decode()
            yield owner, kind, file[begin : begin + size]
            place = begin + _padded(size)


def needs(file: File) -> Needs:
    """The libraries that a library names, and the symbols that it expects of them.

    Raises:
        ValueError: as for `sections`.
    """
    parts = sections(file)
    data = {section.kind: file[section.data] for section in parts}
    dynamic = next(section for section in parts if section.kind == DYNAMIC)
    strings = file[parts[dynamic.link].data]
    needed = Needs({}, {"": set()})
    for tag, value in struct.iter_unpack("<QQ", data[DYNAMIC]):
        if tag == NEEDED:
            needed.versions[_string(strings, value)] = set()
            needed.symbols[_string(strings, value)] = set()
    versions = dict(_versions(data.get(VERSIONS_NEEDED, b""), strings))
    for library, version in versions.values():
        needed.versions[library].add(version)
    entries = list(struct.iter_unpack("<IBBHQQ", data[DYNAMIC_SYMBOLS]))
    numbers = struct.iter_unpack("<H", data.get(SYMBOL_VERSIONS, bytes(2 * len(entries))))
    for (number,), (name, info, _, section, _, _) in zip(numbers, entries, strict=True):
        if name and section == 0 and info >> 4 != WEAK:
            library, _ = versions.get(number, ("", ""))
            needed.symbols[library].add(_string(strings, name))
    return needed


def _string(strings: bytes, place: int) -> str:
    return strings[place : strings.index(b"\0", place)].decode()


def _versions(data: bytes, strings: bytes) -> Iterator[tuple[int, tuple[str, str]]]:
    """The number that a symbol's entry has, with the library and the version that it stands for."""
    place, further = 0, len(data)
    while further:
        _, number, library, first, further = struct.unpack_from("<HHIII", data, place)
        entry = place + first
        for _ in range(number):
            _, _, index, name, following = struct.unpack_from("<IHHII", data, entry)
            yield index, (_string(strings, library), _string(strings, name))
            entry += following
        place += further


def _padded(size: int) -> int:
    return -(-size // 4) * 4
