"""Weights of W8A8 for tests of its kernels: made by the oracle, packed, and multiplied by both."""

from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cpu_kernels.linear.w8a8_weights import codes_shape, pack_codes, pack_scales, scales_shape
from reference.quantization import smoothquant
from reference.quantization.compressed_tensors import Integers


def numbers(seed: int, *shape: int) -> np.ndarray:
    """Random rows of very different sizes. Of every second row half are close to half a step."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape) * 10.0 ** rng.integers(-6, 7, (*shape[:-1], 1))
    near = x[..., ::2, :]
    steps = np.abs(near).max(axis=-1, keepdims=True) / 127
    near[..., 1::2] = ((rng.integers(-126, 126, near.shape) + 0.5) * steps)[..., 1::2]
    near[..., :1] = 127 * steps
    return x.astype(np.float32)


def weights(seed: int, *shape: int) -> tuple[np.ndarray, np.ndarray]:
    """Codes int8 [*stack, rows, size], of which -128 is one, and scales [*stack, rows]."""
    rng = np.random.default_rng(seed)
    scales = rng.uniform(1e-4, 1e-1, shape[:-1]).astype(np.float32)
    return rng.integers(-128, 128, shape).astype(np.int8), scales


def packed(codes: np.ndarray, scales: np.ndarray, parts: int = 1) -> tuple[jax.Array, jax.Array]:
    """A weight in panels, packed into memory that held other numbers."""
    *stack, rows, size = codes.shape
    words = np.full((*stack, *codes_shape(rows, size, parts)), 77, np.uint8)
    steps = np.full((*stack, *scales_shape(rows, parts)), np.nan, np.float32)
    pack_codes(codes, words, parts=parts)
    pack_scales(scales, steps, parts=parts)
    return jnp.asarray(words), jnp.asarray(steps)


def by_oracle(x: Any, codes: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """The oracle's products with one weight."""
    wide = np.asarray(x).astype(np.float32)
    return smoothquant.linear(wide, Integers(codes, scales[:, None]))


def by_groups(x: Any, codes: np.ndarray, scales: np.ndarray, rows: list[int]) -> np.ndarray:
    """The oracle's products of rows in groups, each with its own weight; zeros after them."""
    out = np.zeros((len(x), codes.shape[1]), np.float32)
    ends = np.cumsum([0, *rows])
    for group, (start, end) in enumerate(pairwise(ends)):
        if end > start:
            out[start:end] = by_oracle(x[start:end], codes[group], scales[group])
    return out


def relu_gated(products: np.ndarray, bias: np.ndarray | None = None) -> np.ndarray:
    """A gate of which every step is exact or rounded once, so that results can be equal."""
    gate, up = np.split(products if bias is None else products + bias, 2, axis=1)
    found: np.ndarray = np.maximum(gate, 0) * up
    return found
