"""Libraries in the place of ROCm's, so that JAX's plugin can be loaded to compile, not to run.

The plugin links to libraries that come with AMD's driver and are in no package index. To compile
it calls a few of their functions at most. So a stand-in has every symbol that the plugin expects,
and each function returns an error. They are written byte by byte: no compiler is needed, and what
the loader finds is what this file says. Source: as for `elf`, and ELF's supplement for x86-64.
"""

import ctypes
import re
import struct
import tempfile
from collections.abc import Iterable
from mmap import ACCESS_READ, mmap
from pathlib import Path

from pallas_kernels.aot.rocm.elf import HEADER, Needs, needs

# Unversioned symbols of the interpreter and of C++, which are in the process already.
THERE = re.compile(r"_?Py|_ZN?K?S[at]|_ZT[ISV]")
PAGE = 4096
HEADERS = 64 + 4 * 56  # the file's, and one for each of four segments
NO_DEVICE = 100  # hipErrorNoDevice
# Returns that; minus one; the address that is a number of bytes behind the instruction.
ERROR = b"\xb8" + struct.pack("<I", NO_DEVICE) + b"\xc3"
MINUS_ONE = b"\x83\xc8\xff\xc3"
ADDRESS = b"\x48\x8d\x05%b\xc3"
# What does not return an error: handles of code that the plugin registers when it is loaded, the
# count of memory nodes, and texts.
REGISTERS = ("__hipRegisterFatBinary",)
NO_NUMA = ("numa_available",)
TEXTS = re.compile(r"hip(Drv)?GetError(Name|String)|hipKernelName|.*_(status|error)_(to_)?string")


def load(files: Iterable[Path]) -> list[str]:
    """Loads stand-ins for the libraries that some files need and this machine lacks.

    Returns:
        The names of the libraries that were lacking. Who loads the files later finds them in the
        process, by their names.

    Raises:
        OSError: the loader of this system refuses them.
    """
    needed = Needs({}, {})
    for path in files:
        with path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as content:
            found = needs(content)
        for all_of, some in zip(needed, found, strict=True):
            for name, words in some.items():
                all_of.setdefault(name, set()).update(words)
    lacking = [name for name in needed.versions if not _is_there(name)]
    with tempfile.TemporaryDirectory() as folder:
        for name in lacking:
            path = Path(folder) / name
            path.write_bytes(stand_in(name, needed))
            ctypes.CDLL(str(path))
    return lacking


def _is_there(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def stand_in(name: str, needed: Needs) -> bytes:
    """A shared library of this name with the symbols that are needed of it.

    Symbols without a version may be any library's, so every stand-in has them.
    """
    unversioned = {one for one in needed.symbols[""] if not THERE.match(one)}
    return library(name, sorted(needed.symbols[name] | unversioned), sorted(needed.versions[name]))


def library(name: str, symbols: list[str], versions: list[str]) -> bytes:
    """A shared library for x86-64 under Linux: its name, its functions, and its versions."""
    strings = _Strings()
    tables = {
        4: _hashes(symbols),  # DT_HASH
        6: b"",  # DT_SYMTAB, whose numbers follow from where the functions are
        0x6FFFFFF0: struct.pack(f"<{1 + len(symbols)}H", 0, *[1] * len(symbols)),  # DT_VERSYM
        0x6FFFFFFC: _versions([name, *versions], strings),  # DT_VERDEF
    }
    names = [strings.place(symbol) for symbol in symbols]
    texts, places = _functions(symbols)
    begins, at = {}, HEADERS + _padded(len(texts))
    for tag, table in tables.items():
        begins[tag], at = at, at + _padded(len(table) or 24 * (1 + len(symbols)))
    entries = zip(names, places, strict=True)
    tables[6] = bytes(24) + b"".join(
        struct.pack("<IBBHQQ", of_name, 0x12, 0, 1, HEADERS + place, 0)
        for of_name, place in entries
    )
    begins[5] = at  # DT_STRTAB
    tags = [*begins.items(), (10, len(strings.data)), (11, 24), (14, strings.place(name))]
    tags += [(0x6FFFFFFD, 1 + len(versions)), (0, 0)]
    tables[5] = bytes(strings.data)
    readable = texts.ljust(_padded(len(texts)), b"\0")
    for table in tables.values():
        readable += table.ljust(_padded(len(table)), b"\0")
    dynamic = b"".join(struct.pack("<qq", *tag) for tag in tags)
    return _file(readable, dynamic)


def _file(readable: bytes, dynamic: bytes) -> bytes:
    """The file of two segments: what is read and executed, and what the loader writes to."""
    end = HEADERS + len(readable)
    begin = -(-end // PAGE) * PAGE
    segments = [
        (1, 5, 0, end, PAGE),  # PT_LOAD, readable and executable
        (1, 6, begin, len(dynamic), PAGE),  # PT_LOAD, readable and writable
        (2, 6, begin, len(dynamic), 8),  # PT_DYNAMIC
        (0x6474E551, 6, 0, 0, 16),  # PT_GNU_STACK: the stack is not executed
    ]
    header = HEADER + bytes(10)
    header = header.replace(b"\x02\x01\0", b"\x02\x01\x01", 1)  # the version of the format
    header += struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, 0, 0, 64, 56, len(segments), 0, 0, 0)
    for kind, flags, place, size, align in segments:
        header += struct.pack("<IIQQQQQQ", kind, flags, place, place, place, size, size, align)
    return (header + readable).ljust(begin, b"\0") + dynamic


class _Strings:
    """A table of strings."""

    def __init__(self) -> None:
        self.data = bytearray(b"\0")

    def place(self, text: str) -> int:
        """Where a string begins; it is added."""
        self.data += text.encode() + b"\0"
        return len(self.data) - len(text) - 1


def _functions(symbols: Iterable[str]) -> tuple[bytes, list[int]]:
    """Code and constants, and where in them each symbol's function begins."""
    zeros = bytes(64)
    text = b"a stand-in for ROCm, which only compiles".ljust(64, b"\0")
    kinds = [ERROR, MINUS_ONE]
    begins = [len(zeros + text), len(zeros + text) + len(ERROR)]
    at = begins[-1] + len(MINUS_ONE)
    for target in (0, len(zeros)):
        kinds.append(ADDRESS % struct.pack("<i", target - (at + 7)))
        begins.append(at)
        at += len(kinds[-1])
    return zeros + text + b"".join(kinds), [begins[_kind(symbol)] for symbol in symbols]


def _kind(symbol: str) -> int:
    if symbol in REGISTERS:
        return 2
    if symbol in NO_NUMA:
        return 1
    return 3 if TEXTS.match(symbol) else 0


def _hashes(symbols: list[str]) -> bytes:
    """The table by which the loader finds a symbol: a list of those with one remainder each."""
    size = 1 + len(symbols)
    buckets, chains = [0] * size, [0] * size
    for number, symbol in enumerate(symbols, 1):
        bucket = hash_of(symbol) % size
        buckets[bucket], chains[number] = number, buckets[bucket]
    return struct.pack(f"<{2 + 2 * size}I", size, size, *buckets, *chains)


def _versions(names: list[str], strings: _Strings) -> bytes:
    """Definitions of versions; the first one is the library itself, and is all symbols' version.

    The loader takes a symbol of the library itself for one of any version.
    """
    found = b""
    for index, name in enumerate(names, 1):
        following = 28 if index < len(names) else 0
        of_library = int(index == 1)
        found += struct.pack("<HHHHIII", 1, of_library, index, 1, hash_of(name), 20, following)
        found += struct.pack("<II", strings.place(name), 0)
    return found


def hash_of(name: str) -> int:
    """ELF's hash of a symbol or a version."""
    value = 0
    for byte in name.encode():
        value = (value << 4) + byte
        value = (value ^ (value >> 24 & 0xF0)) & 0x0FFFFFFF
    return value


def _padded(size: int) -> int:
    return -(-size // 8) * 8
