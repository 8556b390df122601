"""Quantised weights in the layout of a GPU's kernel: `pallas_kernels/quantized_matmul.py`.

The kernel receives the codes of all layers and a layer's number. So the scan slices nothing, and
no product writes a layer's numbers.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int

from jax_engine.weights.code_sources import ORDER, RowsOfCodes
from jax_engine.weights.coded import (
    CODES,
    MINIMUMS,
    SCALES,
    common_kind,
    converted,
    decoded,
    dtype_of,
)
from jax_engine.weights.codes import Kind
from jax_engine.weights.format import ArraySpec, Matrix, Weight, index_of
from pallas_kernels import quantized_matmul

BACKEND = "mosaic"  # on a CPU it is interpreted
LOWEST = -8  # what the kernel takes 0 to mean among codes of 4 bits
CENTRED = tuple(float(LOWEST + step) for step in range(16))
TILE = 64  # rows are filled up with zeros to a multiple of so many columns


@dataclass(frozen=True)
class CodedStacks(RowsOfCodes):
    """Codes [*stack, out, in], scales and minimums [*stack, groups, out] in float32.

    Two codes of 4 bits share a byte. Filled up columns have no scale and meet zeros of x.

    Attributes:
        kinds: the kinds of the checkpoint's rows.
        kind: the kind in which all rows are held; of 4 bits, only CENTRED.
        ordered: whether the columns lie in another order, which x is put into.
    """

    kinds: tuple[Kind, ...]
    kind: Kind
    ordered: bool = False

    indexed = True

    def arrays(self, matrix: Matrix) -> dict[str, ArraySpec]:
        *stack, rows, size = matrix.shape
        width = _filled_up(size) // (1 if self.kind.bits == 8 else 2)
        groups = (*stack, -(-_filled_up(size) // self.group(size)), rows)
        shared = ArraySpec(groups, jnp.dtype(jnp.float32))
        found = {CODES: ArraySpec((*stack, rows, width), dtype_of(self.kind))}
        found[SCALES] = shared
        if self.kind.minimums:
            found[MINIMUMS] = shared
        if self.ordered:
            found[ORDER] = ArraySpec((*stack, size), jnp.dtype(jnp.int32))
        return found

    def group(self, size: int) -> int:
        """How many columns share a scale in rows of `size` columns."""
        return self.kind.group if self.kind.group < size else _filled_up(size)

    def call(self, matrix: Matrix) -> tuple[jax.ShapeDtypeStruct, jax.ShapeDtypeStruct, int]:
        """x, codes and group of a product with one row of x, as shapes."""
        *_, rows, size = matrix.shape
        codes = self.arrays(matrix._replace(shape=(1, rows, size)))[CODES]
        x = jax.ShapeDtypeStruct((1, _filled_up(size)), matrix.dtype)
        return x, jax.ShapeDtypeStruct(codes.shape, codes.dtype), self.group(size)

    def store(self, rows: np.ndarray, held: Mapping[str, np.ndarray], matrix: Matrix) -> None:
        """Brings rows to one kind."""
        for name in (CODES, SCALES, MINIMUMS):
            if name in held:
                held[name][...] = 0
        for number, kind in enumerate(self.kinds):
            here = rows["kind"] == number
            if here.any():
                self._store(converted(rows[here], kind, self.kind), kind, held, here)

    def _store(
        self,
        found: dict[str, np.ndarray],
        kind: Kind,
        held: Mapping[str, np.ndarray],
        here: np.ndarray,
    ) -> None:
        """Writes rows. What 0 means more than `LOWEST` becomes part of the minimums."""
        codes, scales = found[CODES], found[SCALES]
        held[CODES][here, : codes.shape[1]] = codes
        groups = scales.shape[1]
        held[SCALES][:groups, here] = scales.T
        if MINIMUMS in held:
            lowest = found[MINIMUMS]
            if self.kind.bits == 4:
                with np.errstate(all="ignore"):  # infinite scales are what the file says
                    lowest = lowest + scales * np.float32(_first(kind) - LOWEST)
            held[MINIMUMS][:groups, here] = lowest.T

    def matmul(
        self,
        x: Float[Array, "T in"],
        weight: Weight,
        layer: Int[Array, ""] | None,
        num_rows: Int[Array, ""] | None,
        *,
        out_dtype: jnp.dtype,
    ) -> Float[Array, "T out"]:
        """Computes all rows of x. Weights are never rounded, only their products."""
        size = x.shape[1]
        index, arrays = index_of(layer), weight.arrays
        if layer is None:
            arrays = {name: held[None] for name, held in arrays.items()}
        if self.ordered:
            x = x[:, lax.dynamic_index_in_dim(arrays[ORDER], index, keepdims=False)]
        return quantized_matmul(
            jnp.pad(x, ((0, 0), (0, _filled_up(size) - size))),
            arrays[CODES],
            arrays[SCALES],
            arrays.get(MINIMUMS),
            layer=index,
            group=self.group(size),
            dtype=out_dtype,
            backend=BACKEND,
        )

    def take_rows(self, weight: Weight, ids: Int[Array, " T"]) -> Float[Array, "T in"]:
        assert not self.ordered
        size, dtype = weight.matrix.shape[-1], weight.matrix.dtype
        rows = {CODES: weight.arrays[CODES].at[ids].get(mode="clip")}
        for name in weight.arrays.keys() - rows:
            rows[name] = weight.arrays[name].at[:, ids].get(mode="clip").T
        return decoded(rows, self.kind, size, dtype)


def kind_in_stacks(kinds: Iterable[Kind]) -> Kind | None:
    """A kind of the kernel for the rows of all kinds; None: there is none.

    Codes of 4 bits that mean numbers one apart become CENTRED, with a minimum for their distance.
    """
    each = [
        kind._replace(code=CENTRED, minimums=kind.minimums or _first(kind) != LOWEST)
        if _is_even(kind)
        else kind
        for kind in kinds
    ]
    found = common_kind(each)
    if found is None or (found.bits == 4 and found.code != CENTRED):
        return None
    return found._replace(scale_dtype="float32")


def _is_even(kind: Kind) -> bool:
    """Whether codes of 4 bits mean numbers that are one apart."""
    if isinstance(kind.code, str):
        return False
    return kind.code == tuple(kind.code[0] + step for step in range(16))


def _first(kind: Kind) -> float:
    """What code 0 of 4 bits means."""
    assert not isinstance(kind.code, str)
    return kind.code[0]


def _filled_up(size: int) -> int:
    return -(-size // TILE) * TILE
