"""Products with weights in float32, bfloat16 or float16.

Every sum runs over a row in the same order, so a row's products depend neither on the other rows
nor on the number of threads.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from cpu_kernels.compiling.jit import inner
from cpu_kernels.linear.chunks import Chunk
from cpu_kernels.linear.product_kernel import product_kernel
from cpu_kernels.linear.tiles import MOST_LEAVES, SLOTS_BYTES, multiply_of
from cpu_kernels.linear.weights import Weights, check_words, one_stack, words_of
from cpu_kernels.simd.structs import BFLOAT16, FLOAT16
from cpu_kernels.simd.words import BFLOAT16_WORDS, Floats, WidenedHalves

_LEAVES = tuple(2**power for power in range(MOST_LEAVES.bit_length()))
_multiply_float32 = multiply_of(Floats)
_multiply_bfloat16 = multiply_of(BFLOAT16_WORDS)
_multiply_float16 = multiply_of(WidenedHalves)


@dataclass(frozen=True)
class FloatWeights(Weights):
    """Weights of numbers. Products round x to their dtype.

    Attributes:
        panels: float32, bfloat16 or float16, packed by `pack_panels`.
        leaves: a power of two up to MOST_LEAVES: each row of x is cut into so many parts, whose
            sums are added as a tree. Their sizes must be even.
    """

    kernel = "cpu_kernels.products_of_floats"
    axes = 3
    panels: Float[Array, "*stack panels words columns"]
    leaves: int = 1

    def check(self, rows: int, size: int, parts: int) -> None:
        check_words(self.panels, rows, size, parts)
        leaves = self.leaves
        if leaves not in _LEAVES or (leaves > 1 and size % (2 * leaves)):
            raise ValueError(
                f"leaves must be one of {_LEAVES}, of even sizes, got {leaves} of {size} numbers"
            )

    def operands(self, x: Float[Array, "T in"], ends: Int[Array, " groups"]) -> Sequence[Array]:
        words = words_of(x, self.panels.dtype)
        return words, one_stack(self.panels, self.axes), jnp.int32(self.leaves)


@inner
def _multiply(call: Any, chunk: Chunk, slots: int) -> None:
    """All products of a chunk, in the dtype of the weights."""
    if call.panels.dtype == BFLOAT16:
        _multiply_bfloat16(call, chunk, slots)
    elif call.panels.dtype == FLOAT16:
        _multiply_float16(call, chunk, slots)
    else:
        _multiply_float32(call, chunk, slots)


@inner
def _slots_bytes(call: Any) -> int:
    return SLOTS_BYTES if call.leaves.int32[0] > 1 else 0


product_kernel(FloatWeights.kernel, _multiply, operands="x panels leaves", scratch=_slots_bytes)
