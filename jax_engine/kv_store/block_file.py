"""The file of a KV block: a header that says all on which its bits depend, the bits, a checksum.

    magic | fingerprint | name | parent's name | lengths of tokens, salt and payload
    | tokens | salt | payload | CRC-32 of the payload

A reader knows the block that it wants, so it knows the header, byte for byte, and the size of the
file. Nothing that a file says is believed: a length in it is compared, never followed. Only at the
start, when nobody wants a block yet, are the tokens taken from a header, and then compared alike.

The fingerprint is of the weights and of all else that the bits depend on but for the tokens. A name
is a SHA-256 of the chain: the parent's name, the block's tokens, the salt. It names the same block
in each process, unlike Python's `hash`, and unlike vLLM's digest (`core.block_digest`), which the
variable PYTHONHASHSEED changes.
"""

import errno
import hashlib
import json
import os
import stat
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from jax_engine.core.prefix_cache import Node, Salt

MAGIC = b"JEKV\x00\x01\r\n"
ROOT = b"\0" * 32
SUFFIX = ".kv"
_FIXED = struct.Struct("<8s32s32s32sIIQ")
_CHECKSUM = struct.Struct("<I")
MAX_SALT = 1 << 16
# Neither follows a link nor waits for the other end of a pipe.
_READ = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


class BadFileError(Exception):
    """A file under a block's name is not this block's."""


def name_of(node: Node) -> bytes:
    """The name of a block's content, kept with the node. 32 bytes."""
    chain: list[Node] = []
    above: Node | None = node
    while above is not None and above.name is None:
        chain.append(above)
        above = above.parent
    name = ROOT if above is None or above.name is None else above.name
    for one in reversed(chain):
        written = name + _tokens(one.tokens) + _written(one.salt)
        name = one.name = hashlib.sha256(written).digest()
    return name


@dataclass(frozen=True, slots=True)
class BlockForm:
    """What all files of an engine have in common.

    Attributes:
        fingerprint: Names all that the bits depend on beside tokens and salt; 32 bytes.
        block_size: Tokens of a block.
        num_bytes: Bytes of a block in all layers.
    """

    fingerprint: bytes
    block_size: int
    num_bytes: int

    @property
    def prefix(self) -> str:
        """What the names of all its files begin with."""
        return self.fingerprint.hex()[:16] + "-"

    def file_name(self, node: Node) -> str:
        return f"{self.prefix}{name_of(node).hex()}{SUFFIX}"

    def header(self, node: Node) -> bytes:
        """All in front of the payload."""
        parent = ROOT if node.parent is None else name_of(node.parent)
        salt = _written(node.salt)
        fixed = _FIXED.pack(
            MAGIC, self.fingerprint, name_of(node), parent,
            len(node.tokens), len(salt), self.num_bytes,
        )  # fmt: skip
        return fixed + _tokens(node.tokens) + salt

    def file_size(self, node: Node) -> int:
        """Bytes of its file."""
        salt = len(_written(node.salt))
        return _FIXED.size + 4 * len(node.tokens) + salt + self.num_bytes + _CHECKSUM.size


def parts_of(form: BlockForm, node: Node, payload: np.ndarray) -> list[Any]:
    """What is written into the file of a block, one behind the other.

    Args:
        payload: The bytes of its contents, uint8.
    """
    return [form.header(node), payload.data, _CHECKSUM.pack(zlib.crc32(payload))]


def read_into(path: str, form: BlockForm, node: Node, out: np.ndarray) -> None:
    """Reads the contents of a block.

    Args:
        out: `form.num_bytes` of uint8.

    Raises:
        FileNotFoundError: There is no such file.
        BadFileError: It is not that of this block, or not whole.
        OSError: It cannot be read.
    """
    expected = form.header(node)
    descriptor = _open(path)
    try:
        _check_size(descriptor, form.file_size(node))
        head = bytearray(len(expected))
        last = bytearray(_CHECKSUM.size)
        _fill(descriptor, [memoryview(head), out.data, memoryview(last)])
    finally:
        os.close(descriptor)
    if head != expected:
        raise BadFileError("the header is of another block")
    if _CHECKSUM.unpack(last)[0] != zlib.crc32(out):
        raise BadFileError("the checksum differs")


@dataclass(frozen=True, slots=True)
class Described:
    """What a header says of its block."""

    name: bytes
    parent: bytes
    tokens: tuple[int, ...]
    salt: Salt


def describe(path: str, form: BlockForm) -> Described:
    """Reads a header whose block is not known; `read_into` then compares all of it.

    Raises:
        FileNotFoundError, BadFileError, OSError: As `read_into`.
    """
    descriptor = _open(path)
    try:
        fixed = bytearray(_FIXED.size)
        _fill(descriptor, [memoryview(fixed)])
        magic, mark, name, parent, count, length, num_bytes = _FIXED.unpack(fixed)
        if (magic, mark) != (MAGIC, form.fingerprint):
            raise BadFileError("the header is of another model")
        if (count, num_bytes) != (form.block_size, form.num_bytes) or length > MAX_SALT:
            raise BadFileError("the header has other sizes")
        tokens, salt = bytearray(4 * count), bytearray(length)
        _fill(descriptor, [memoryview(tokens), memoryview(salt)])
    finally:
        os.close(descriptor)
    found = tuple(np.frombuffer(tokens, "<i4").tolist())
    return Described(name, parent, found, _read_salt(bytes(salt)))


def _open(path: str) -> int:
    """Raises BadFileError for what is no file."""
    try:
        descriptor = os.open(path, _READ | getattr(os, "O_BINARY", 0))
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO, errno.EISDIR):
            raise BadFileError("it is no file") from None
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise BadFileError("it is no file")
    return descriptor


def _check_size(descriptor: int, expected: int) -> None:
    size = os.fstat(descriptor).st_size
    if size != expected:
        raise BadFileError(f"it has {size} bytes, {expected} are expected")


def _fill(descriptor: int, views: Sequence[memoryview]) -> None:
    """Reads what comes next into these, one behind the other."""
    with os.fdopen(descriptor, "rb", buffering=0, closefd=False) as file:
        for view in views:
            filled = 0
            while filled < len(view):
                count = file.readinto(view[filled:])
                if not count:
                    raise BadFileError("it ends too early")
                filled += count


def _tokens(tokens: tuple[int, ...]) -> bytes:
    return np.asarray(tokens, "<i4").tobytes()


def _written(salt: Salt) -> bytes:
    return b"" if salt is None else json.dumps(salt).encode()


def _read_salt(written: bytes) -> Salt:
    """Raises BadFileError if it is none."""
    try:
        found = json.loads(written) if written else None
    except (ValueError, RecursionError):
        raise BadFileError("the salt cannot be read") from None
    match found:
        case None | str():
            return found
        case [str() as adapter, None | str() as own]:
            return (adapter, own)
        case [None | str() as adapter, None | str() as own, str() as embeds]:
            return (adapter, own, embeds)
    raise BadFileError("the salt cannot be read")
