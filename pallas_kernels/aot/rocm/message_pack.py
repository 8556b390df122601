"""Decodes MessagePack, in which compilers for AMD's GPUs describe the kernels of a code object.

What they never write is missing: floats, bytes, and extensions. Source: the format's specification.
"""

import struct
from typing import Any

# Kinds of one byte: the format of the number that follows, and what that number is the length of.
NUMBERS = {0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q"}
NUMBERS |= {0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q"}
LENGTHS = {0xD9: (">B", "text"), 0xDA: (">H", "text"), 0xDB: (">I", "text")}
LENGTHS |= {0xDC: (">H", "list"), 0xDD: (">I", "list")}
LENGTHS |= {0xDE: (">H", "map"), 0xDF: (">I", "map")}
# Kinds that hold their length in their lower bits: the first and last byte, and the bits.
SHORT = ((0x80, 0x8F, 0x0F, "map"), (0x90, 0x9F, 0x0F, "list"), (0xA0, 0xBF, 0x1F, "text"))
CONSTANTS = {0xC0: None, 0xC2: False, 0xC3: True}


def decode(data: bytes) -> Any:
    """The value that a message holds.

    Raises:
        ValueError: the message is cut off, has a kind that is missing here, or goes on behind its
            value.
    """
    try:
        value, end = _value(data, 0)
    except (IndexError, struct.error) as error:
        raise ValueError(f"a message of {len(data)} bytes is cut off") from error
    if end != len(data):
        raise ValueError(f"a message of {len(data)} bytes goes on behind its value at {end}")
    return value


def _value(data: bytes, at: int) -> tuple[Any, int]:
    """The value that begins at a byte, and where the next one begins."""
    kind, at = data[at], at + 1
    if kind < 0x80:
        return kind, at
    if kind >= 0xE0:
        return kind - 0x100, at
    if kind in CONSTANTS:
        return CONSTANTS[kind], at
    if kind in NUMBERS:
        return _number(data, at, NUMBERS[kind])
    for first, last, bits, what in SHORT:
        if first <= kind <= last:
            return _several(data, at, kind & bits, what)
    if kind in LENGTHS:
        form, what = LENGTHS[kind]
        length, at = _number(data, at, form)
        return _several(data, at, length, what)
    raise ValueError(f"a message has a value of the kind {kind:#x} at byte {at - 1}")


def _number(data: bytes, at: int, form: str) -> tuple[int, int]:
    (number,) = struct.unpack_from(form, data, at)
    return number, at + struct.calcsize(form)


def _several(data: bytes, at: int, length: int, what: str) -> tuple[Any, int]:
    if what == "text":
        if at + length > len(data):
            raise IndexError
        return data[at : at + length].decode(), at + length
    found = []
    for _ in range(length * (2 if what == "map" else 1)):
        value, at = _value(data, at)
        found.append(value)
    return dict(zip(found[::2], found[1::2], strict=True)) if what == "map" else found, at
