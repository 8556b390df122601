"""GGUF's quantised tensors: rows of blocks, a kind of block for each tensor."""

from types import ModuleType

import numpy as np
from jaxtyping import Float32, Shaped, UInt8

from reference.quantization import gguf_blocks, gguf_k

NAMES = (*gguf_blocks.KINDS, *gguf_k.KINDS)


def decode(data: UInt8[np.ndarray, "*rows B"], name: str) -> Float32[np.ndarray, "*rows K"]:
    """The numbers of a tensor whose rows are made of blocks of the kind.

    Raises ValueError if a row ends within a block.
    """
    blocks = _cut(data, _family(name).KINDS[name].num_bytes, f"bytes of {name}")
    weights = _family(name).decode(blocks, name)
    return np.asarray(weights.reshape(*data.shape[:-1], -1))


def quantise(x: Float32[np.ndarray, "*rows K"], name: str) -> UInt8[np.ndarray, "*rows B"]:
    """A tensor of that kind near x.

    Raises ValueError if a row is no multiple of a block.
    """
    blocks = _cut(x, _family(name).BLOCK, f"numbers of {name}")
    data = _family(name).quantise(blocks, name)
    return np.asarray(data.reshape(*x.shape[:-1], -1))


def _family(name: str) -> ModuleType:
    return gguf_k if name in gguf_k.KINDS else gguf_blocks


def _cut(rows: Shaped[np.ndarray, "*rows K"], size: int, what: str) -> Shaped[np.ndarray, "n B"]:
    if rows.shape[-1] % size:
        raise ValueError(f"a row of {rows.shape[-1]} {what}: it must be a multiple of {size}")
    return rows.reshape(-1, size)
