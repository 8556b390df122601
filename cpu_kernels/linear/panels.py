"""Weights in panels, as the micro-kernel reads them: COLUMNS rows side by side (packing).

A panel holds the first word of each of its rows, then the second of each, and so on: memory is
read in order, whatever the number of rows on the left. A weight is packed once, when it is loaded
(Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication", 2008, pack each time).
"""

import functools
import math
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Int
from numba import njit

from cpu_kernels.calls.threads import range_of
from cpu_kernels.compiling.jit import cached
from cpu_kernels.simd.micro_kernel import COLUMNS, VECTORS
from cpu_kernels.simd.packing import pack
from cpu_kernels.simd.vectors import BYTES, LANES

WORD_BYTES = 4
STEP = WORD_BYTES * COLUMNS  # bytes from a word's columns to the next word's


def panel_shape(rows: int, size: int, dtype: DTypeLike, parts: int = 1) -> tuple[int, int, int]:
    """Shape of a weight [rows, size] in panels: [panels, words, COLUMNS * numbers per word].

    Args:
        rows: rows of the weight.
        size: numbers in a row.
        dtype: float32, bfloat16 or float16.
        parts: number of matrices with equally many rows that the weight consists of.
    """
    numbers = WORD_BYTES // np.dtype(dtype).itemsize
    words = -(-size // (numbers * LANES)) * LANES  # packed 16 at a time
    return parts * -(-rows // (parts * COLUMNS)), words, COLUMNS * numbers


def pack_panels(weight: np.ndarray, out: np.ndarray | None = None, *, parts: int = 1) -> np.ndarray:
    """Packs a weight [*stack, rows, size] into panels [*stack, *panel_shape(...)], on all cores.

    Columns beyond the last row repeat it; words beyond the end of a row are zeros.

    Args:
        weight: float32, bfloat16 or float16.
        out: the array to write to; None makes a new one.
        parts: number of matrices with equally many rows that the weight consists of. Their panels
            alternate: the first of each, then the second of each, and so on.
    """
    *stack, rows, size = weight.shape
    if out is None:
        out = np.empty((*stack, *panel_shape(rows, size, weight.dtype, parts)), weight.dtype)
    numbers = WORD_BYTES // weight.itemsize
    if size % numbers:
        rest = [(0, 0)] * (weight.ndim - 1) + [(0, -size % numbers)]
        weight = np.pad(weight, rest)
    weight = np.ascontiguousarray(weight)
    panels, words = out.shape[-3], -(-size // numbers)
    total, threads = math.prod(out.shape[:-2]), os.cpu_count() or 1
    sizes = (rows // parts, words, parts, panels, STEP * out.shape[-2])
    places = (weight.ctypes.data, out.ctypes.data, *sizes)
    with ThreadPoolExecutor(threads) as pool:
        shares = [
            pool.submit(_pack_range, *places, *range_of.py_func(total, i, threads))
            for i in range(threads)
        ]
        for share in shares:
            share.result()
    return out


@cached(functools.partial(njit, nogil=True), f"void({', '.join(['int64'] * 9)})")
def _pack_range(
    weight: int,
    out: int,
    rows: int,
    words: int,
    parts: int,
    panels: int,
    panel_bytes: int,
    first: int,
    last: int,
) -> None:
    """Packs panels `first` to `last - 1` of a stack, without Python's lock.

    Each part has `rows` rows of `words` words.
    """
    step = WORD_BYTES * words
    for number in range(first, last):
        layer, panel = number // panels, number % panels
        part, row = layer * parts + panel % parts, panel // parts * COLUMNS
        for vector in range(VECTORS):
            start = row + vector * LANES
            source = weight + (part * rows + start) * step
            place = out + number * panel_bytes + vector * BYTES
            pack(source, step, rows - 1 - start, words, place, STEP)


def take_rows(
    panels: Float[Array, "panels words columns"], rows: Int[Array, " T"], size: int
) -> Float[Array, "T size"]:
    """Rows of a weight in panels; row numbers are clipped to the weight's rows.

    Copies of the last row fill the last panel, so a number within that panel needs no clipping.
    """
    words = panels.reshape(*panels.shape[:2], COLUMNS, -1)
    rows = jnp.clip(rows, 0, panels.shape[0] * COLUMNS - 1)
    found: Any = words[rows // COLUMNS, :, rows % COLUMNS]
    return found.reshape(len(rows), -1)[:, :size]
