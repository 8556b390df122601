"""The name of a block's content in other processes: vLLM's hash of the block, byte for byte.

Python's `hash` names nothing outside of its process. A digest is SHA-256 of the parent's digest,
the block's tokens, and the keys by which equal tokens are kept apart. A router that has computed
the hashes of a prompt's blocks for vLLM finds these blocks here under the same names.
"""

import hashlib
import os
import pickle
from collections.abc import Callable
from typing import Any, Literal

from jax_engine.core.prefix_cache import Node, Salt, salt_parts

Algorithm = Literal["sha256", "sha256_cbor"]
SEED = "vllm-none-hash"
type Key = tuple[str, str | bytes]
type Block = tuple[bytes, tuple[int, ...], tuple[Key, ...] | None]


def digest_function(algorithm: Algorithm) -> Callable[[Node], bytes]:
    """What gives a node's digest, and keeps it there.

    Args:
        algorithm: How a block is written before it is hashed: pickled by Python ("sha256"), or in
            canonical CBOR ("sha256_cbor"), which other languages write as well.
    """
    written = _pickled if algorithm == "sha256" else _cbor
    root = _sha256(written(os.environ.get("PYTHONHASHSEED", SEED)))

    def digest(node: Node) -> bytes:
        # In a loop: a chain may be longer than Python's recursion limit. Each parent is read once:
        # the engine's thread may put an equal one without a digest in its place.
        chain: list[Node] = []
        above: Node | None = node
        name = root
        while above is not None:
            if above.digest is not None:
                name = above.digest
                break
            chain.append(above)
            above = above.parent
        for one in reversed(chain):
            keys = block_keys(one.salt, is_first=one.parent is None)
            block: Block = (name, one.tokens, keys or None)
            name = one.digest = _sha256(written(block))
        return name

    return digest


def block_keys(salt: Salt, *, is_first: bool) -> tuple[Key, ...]:
    """What keeps a block apart from others with the same tokens: adapter, salt, embeddings.

    A chain's salt is in its first block; the adapter is in all, named by its digest.
    """
    adapter, own, embeds = salt_parts(salt)
    keys: list[Key] = [] if adapter is None else [("lora", adapter)]
    if is_first and own is not None:
        keys.append(("cache_salt", own))
    if embeds is not None:
        keys.append(("prompt_embeds", bytes.fromhex(embeds)))
    return tuple(keys)


def _sha256(written: bytes) -> bytes:
    return hashlib.sha256(written).digest()


def _pickled(value: Block | str) -> bytes:
    return pickle.dumps(value, protocol=5)


def _cbor(value: Any) -> bytes:
    """RFC 8949's deterministic encoding of what blocks are made of."""
    if value is None:
        return b"\xf6"
    if isinstance(value, int):
        return _head(0, value)
    if isinstance(value, bytes):
        return _head(2, len(value)) + value
    if isinstance(value, str):
        text = value.encode()
        return _head(3, len(text)) + text
    return _head(4, len(value)) + b"".join([_cbor(one) for one in value])


def _head(kind: int, size: int) -> bytes:
    """The major type, and a number in as few bytes as hold it."""
    if size < 24:
        return bytes([kind << 5 | size])
    width = next(width for width in range(4) if size < 1 << (8 << width))
    return bytes([kind << 5 | 24 + width]) + size.to_bytes(1 << width, "big")
