"""MXFP4: blocks of 32 numbers in E2M1 that share a power of two.

    blocks  uint8[*rows, K / 32, 16]  two codes a byte, the first one in the low nibble
    scales  uint8[*rows, K / 32]      E8M0

A weight is its E2M1 number times 2^(scale - 127). gpt-oss has it for its experts
(`mlp1_weight.blocks` and `.scales` in its own checkpoints, `gate_up_proj_blocks` and `_scales` in
those of transformers), where the rows of gate and up take turns; that is the model's order, not
the format's. compressed-tensors calls it mxfp4-pack-quantized, and has the blocks of a row side by
side.

The format is that of the OCP Microscaling Formats specification 1.0; the layout is that
of gpt-oss (`gpt_oss/torch/weights.py` in its repository).
"""

import numpy as np
from jaxtyping import Float32, UInt8

from reference.quantization.bits import pack_stream, unpack_stream
from reference.quantization.small_floats import E2M1, E8M0, nearest

BLOCK = 32
LARGEST_EXPONENT = 2  # of E2M1, whose largest number is 1.5 * 2^2
BYTE = np.dtype(np.uint8)


def decode(
    blocks: UInt8[np.ndarray, "*rows B 16"], scales: UInt8[np.ndarray, "*rows B"]
) -> Float32[np.ndarray, "*rows K"]:
    """The numbers of each row.

    >>> block = np.array([[0x21] + [0xF7] * 15], np.uint8)
    >>> decode(block, np.array([128], np.uint8))[:4].tolist()
    [1.0, 2.0, 12.0, -12.0]
    """
    numbers = E2M1[unpack_stream(blocks, 4)] * E8M0[scales][..., None]
    return np.asarray(numbers.reshape(*scales.shape[:-1], -1))


def quantise(
    x: Float32[np.ndarray, "*rows K"],
) -> tuple[UInt8[np.ndarray, "*rows B 16"], UInt8[np.ndarray, "*rows B"]]:
    """Blocks and scales near x, as the specification has it: the largest number of a block and the
    largest of E2M1 get the same power of two. So it may be up to 8 steps of 1, and becomes 6.

    Raises ValueError if a row is no multiple of 32.
    """
    if x.shape[-1] % BLOCK:
        raise ValueError(f"rows of {x.shape[-1]} numbers: they must be a multiple of {BLOCK}")
    grouped = x.reshape(*x.shape[:-1], -1, BLOCK)
    _, exponents = np.frexp(np.abs(grouped).max(axis=-1))  # x = m 2^e with 0.5 <= m < 1
    scales = (exponents - 1 - LARGEST_EXPONENT + 127).clip(0, 254).astype(np.uint8)
    codes = nearest(grouped / E8M0[scales][..., None], E2M1)
    return pack_stream(codes, 4, BYTE), scales
