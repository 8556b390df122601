"""Products with weights in codes of 4 or 8 bits, which are decoded in registers.

Each product's sums run over a row in the same order, whatever the number of rows and of threads.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, UInt8

from cpu_kernels.compiling.jit import inner
from cpu_kernels.linear.chunks import Chunk, rows_in_groups
from cpu_kernels.linear.coded_kinds import (
    PanelKind,
    forms_of,
    padded,
    pairs_of,
    sums_group,
    tables_of,
)
from cpu_kernels.linear.coded_panels import num_panels
from cpu_kernels.linear.coded_sums import write_sums
from cpu_kernels.linear.coded_tiles import PAIRS_PANELS, PART_BYTES, multiply_of
from cpu_kernels.linear.product_kernel import product_kernel
from cpu_kernels.linear.weights import Weights, one_stack, words_of
from cpu_kernels.simd.structs import BFLOAT16
from cpu_kernels.simd.words import MULTIPLIES_PAIRS, Floats, Pairs

_multiply_floats = multiply_of(Floats)
_multiply_pairs = multiply_of(Pairs) if MULTIPLIES_PAIRS else _multiply_floats


@dataclass(frozen=True)
class CodedWeights(Weights):
    """Weights in codes. Products round x to `dtype`: float32, bfloat16 or float16.

    Attributes:
        panels: written by `pack`.
        places: where the panels are.
        kinds: the panels' kinds: see `panel_kinds`.
    """

    kernel = "cpu_kernels.products_of_codes"
    axes = 1
    panels: UInt8[Array, "*stack bytes"]
    places: Int[Array, "*stack panels 2"]
    kinds: Sequence[PanelKind]
    dtype: jnp.dtype

    def check(self, rows: int, size: int, parts: int) -> None:
        del size  # the bytes of a panel depend on its kind
        expected = (*self.stack, num_panels(rows, parts), 2)
        if self.places.shape != expected:
            raise ValueError(
                f"places of the panels {self.panels.shape} of weights with {rows} rows must be "
                f"{expected}, got {self.places.shape}"
            )

    def operands(self, x: Float[Array, "T in"], ends: Int[Array, " groups"]) -> Sequence[Array]:
        x = jnp.pad(x, ((0, 0), (0, padded(x.shape[1]) - x.shape[1])))
        forms, tables = forms_of(self.kinds), tables_of(self.kinds, pairs=pairs_of(self.dtype))
        stack = one_stack(self.panels, self.axes), one_stack(self.places, 2)
        return words_of(x, self.dtype), *stack, jnp.asarray(forms), jnp.asarray(tables)

    def results(self, x: Float[Array, "T in"]) -> Sequence[jax.ShapeDtypeStruct]:
        """Sums of x over groups of columns, for the minimums."""
        group = sums_group(self.kinds)
        groups = -(-padded(x.shape[1]) // group) if group else 0
        return (jax.ShapeDtypeStruct((x.shape[0], groups), jnp.float32),)


@inner
def _multiply(call: Any, chunk: Chunk, scratch: int) -> None:
    """All products of a chunk, in the dtype of x."""
    if call.x.dtype == BFLOAT16:
        _multiply_pairs(call, chunk, scratch)
    else:
        _multiply_floats(call, chunk, scratch)


@inner
def _write_sums(call: Any) -> None:
    write_sums(call, rows_in_groups(call))


@inner
def _part_bytes(call: Any) -> int:
    return PART_BYTES


product_kernel(
    CodedWeights.kernel,
    _multiply,
    operands="x panels places forms tables",
    results="sums",
    begin=_write_sums,
    scratch=_part_bytes,
    pairs_panels=PAIRS_PANELS,
)
