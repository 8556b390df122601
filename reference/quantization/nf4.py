"""NF4 of bitsandbytes: each code stands for one of 16 numbers, times the largest of its block.

    weight            uint8[N K / 2, 1]  all rows in one run, two codes a byte, the first one in
                                         the high nibble
    absmax            float32[blocks]    for each run of 64 numbers
    quant_map         float32[16]        the numbers: here `NF4`, with fp4 others

With double quantisation `absmax` is uint8: codes of a table of 256 numbers, `nested_quant_map`,
which are multiplied by `nested_absmax`, one for 256 of them, and added to `nested_offset`. What is
no tensor (shape, block sizes, offset) stands in the JSON of `quant_state.bitsandbytes__nf4`.

The layout is that of bitsandbytes 0.50.2 (`QuantState` in `functional.py`); the numbers of NF4 are
those of Dettmers et al., "QLoRA" (2023), equally probable in a normal distribution.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float32, UInt8

BLOCK, NESTED_BLOCK = 64, 256
NF4 = np.array(
    [
        *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453),
        *(-0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0),
        *(0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224),
        *(0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
    ],
    np.float32,
)


class Nested(NamedTuple):
    """What the codes in `absmax` stand for, with double quantisation."""

    absmax: Float32[np.ndarray, "nested_blocks"]
    quant_map: Float32[np.ndarray, "256"]
    offset: np.float32


class Tensors(NamedTuple):
    """A matrix as a checkpoint has it."""

    weight: UInt8[np.ndarray, "bytes 1"]
    absmax: Float32[np.ndarray, "blocks"] | UInt8[np.ndarray, "blocks"]
    quant_map: Float32[np.ndarray, "16"]
    shape: tuple[int, int]
    nested: Nested | None = None


def decode(tensors: Tensors) -> Float32[np.ndarray, "N K"]:
    """The matrix. The last block may be shorter than others.

    >>> weight, absmax = np.array([[0x7F], [0x0F]], np.uint8), np.array([3.0], np.float32)
    >>> decode(Tensors(weight, absmax, NF4, (1, 3))).tolist()  # a fourth code fills the last byte
    [[0.0, 3.0, -3.0]]
    """
    absmax, nested = tensors.absmax, tensors.nested
    if nested is not None:
        absmax = _in_blocks(nested.quant_map[absmax], nested.absmax, NESTED_BLOCK) + nested.offset
    codes = np.concatenate([tensors.weight >> 4, tensors.weight & np.uint8(15)], axis=-1).ravel()
    numbers = tensors.quant_map[codes[: tensors.shape[0] * tensors.shape[1]]]
    return _in_blocks(numbers, absmax, BLOCK).reshape(tensors.shape)


def quantise(x: Float32[np.ndarray, "N K"], *, nested: bool = False) -> Tensors:
    """A matrix near x, with double quantisation if `nested`."""
    codes, absmax = _quantise(x.ravel(), NF4, BLOCK)
    codes = np.pad(codes, (0, len(codes) % 2), constant_values=7).reshape(-1, 2)
    weight = codes[:, :1] << np.uint8(4) | codes[:, 1:]
    shape = (x.shape[0], x.shape[1])
    if not nested:
        return Tensors(weight, absmax, NF4, shape)
    offset, quant_map = np.float32(absmax.mean()), dynamic_map()
    absmax_codes, nested_absmax = _quantise(absmax - offset, quant_map, NESTED_BLOCK)
    return Tensors(weight, absmax_codes, NF4, shape, Nested(nested_absmax, quant_map, offset))


def dynamic_map() -> Float32[np.ndarray, "256"]:
    """The table for double quantisation: 0, 1, and seven decades of both signs down to 10^-7.

    A decade has twice as many numbers as the one below, 64 in the uppermost: the middles of equal
    parts (Dettmers, "8-Bit Approximations for Parallelism in Deep Learning", 2015).

    >>> [f"{x:.5g}" for x in dynamic_map()[[0, 127, 128, 254, 255]]]
    ['-0.99297', '0', '5.5e-07', '0.99297', '1']
    """
    numbers = [0.0, 1.0]
    for exponent in range(7):
        ends = np.linspace(0.1, 1.0, 2**exponent + 1)
        middles = (ends[1:] + ends[:-1]) / 2 * 10.0 ** (exponent - 6)
        numbers += [*middles, *-middles]
    return np.array(sorted(numbers), np.float32)


def _quantise(
    x: Float32[np.ndarray, "n"], table: Float32[np.ndarray, "codes"], block: int
) -> tuple[UInt8[np.ndarray, "n"], Float32[np.ndarray, "blocks"]]:
    """The nearest number of the table for each, of two as near the lower one; and largest sizes."""
    absmax = np.maximum.reduceat(np.abs(x), np.arange(0, len(x), block))
    inverse = 1 / np.maximum(absmax, np.float32(1e-38))
    middles = (table[1:] + table[:-1]) / 2
    return np.searchsorted(middles, _in_blocks(x, inverse, block)).astype(np.uint8), absmax


def _in_blocks(
    x: Float32[np.ndarray, "n"], factors: Float32[np.ndarray, "blocks"], block: int
) -> Float32[np.ndarray, "n"]:
    """Each number times the factor of its block."""
    return np.asarray(x * np.repeat(factors, block)[: len(x)])
