"""Quantised weights for XLA: arrays of codes, scales and minimums.

A product decodes a layer's matrix and multiplies by it: XLA writes the numbers, then reads them.
Kernels have formats of their own: a CPU's is `CodedPanels` in `panels.py`, a GPU's `CodedStacks`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jax_engine.weights.code_sources import ORDER, RowsOfCodes
from jax_engine.weights.codes import E4M3, INT8, Kind, groups_of, meaning
from jax_engine.weights.dense import Dense, IndexedDense
from jax_engine.weights.format import ArraySpec, Matrix, Weight

CODES, SCALES, MINIMUMS = "codes", "scales", "minimums"


@dataclass(frozen=True)
class Coded(RowsOfCodes, Dense):
    """Codes [*stack, out, in], with scales [*stack, out, groups] and minimums alike.

    Attributes:
        kinds: the kinds of the checkpoint's rows.
        kind: the kind in which all rows are held.
        ordered: whether the columns lie in another order, which x is put into.
    """

    kinds: tuple[Kind, ...]
    kind: Kind
    ordered: bool = False

    unchanged = False

    def arrays(self, matrix: Matrix) -> dict[str, ArraySpec]:
        *stack, rows, size = matrix.shape
        groups = (*stack, rows, self.kind.groups(size))
        scale = jnp.dtype(self.kind.scale_dtype)
        held = (*stack, rows, size if self.kind.bits == 8 else -(-size // 2))
        found = {CODES: ArraySpec(held, dtype_of(self.kind)), SCALES: ArraySpec(groups, scale)}
        if self.kind.minimums:
            found[MINIMUMS] = ArraySpec(groups, scale)
        if self.ordered:
            found[ORDER] = ArraySpec((*stack, size), jnp.dtype(jnp.int32))
        return found

    def store(self, rows: np.ndarray, held: Mapping[str, np.ndarray], matrix: Matrix) -> None:
        """Brings rows to one kind."""
        for number, kind in enumerate(self.kinds):
            here = rows["kind"] == number
            if here.any():
                for name, values in converted(rows[here], kind, self.kind).items():
                    held[name][here] = values

    def _one_layer(self, weight: Weight, layer: Int[Array, ""] | None) -> Float[Array, "..."]:
        """The numbers of the layer, which the scan has sliced."""
        return self._decoded(weight.arrays, weight.matrix)

    def _decoded(self, held: Mapping[str, Array], matrix: Matrix) -> Float[Array, "*rows in"]:
        return decoded(held, self.kind, matrix.shape[-1], matrix.dtype)

    def matmul(
        self,
        x: Float[Array, "T in"],
        weight: Weight,
        layer: Int[Array, ""] | None,
        num_rows: Int[Array, ""] | None,
        *,
        out_dtype: jnp.dtype,
    ) -> Float[Array, "T out"]:
        if self.ordered:
            x = x[:, weight.arrays[ORDER]]
        return super().matmul(x, weight, layer, num_rows, out_dtype=out_dtype)

    def take_rows(self, weight: Weight, ids: Int[Array, " T"]) -> Float[Array, "T in"]:
        assert not self.ordered
        rows = {name: held.at[ids].get(mode="clip") for name, held in weight.arrays.items()}
        return self._decoded(rows, weight.matrix)


@dataclass(frozen=True)
class CodedByRows(Coded):
    """`Coded` for a CPU without kernels."""

    _multiply = IndexedDense._multiply


def decoded(
    held: Mapping[str, Array], kind: Kind, size: int, dtype: jnp.dtype
) -> Float[Array, "*rows in"]:
    """The numbers of rows, rounded once. Scales and minimums are [*rows, groups]."""
    codes = held[CODES]
    if kind.bits == 4:
        codes = jnp.stack([codes & 15, codes >> 4], axis=-1).reshape(*codes.shape[:-1], -1)
    out = _meaning(codes[..., :size], kind) * _spread(held[SCALES], kind.group, size)
    if kind.minimums:
        out = out + _spread(held[MINIMUMS], kind.group, size)
    return out.astype(dtype)


def converted(rows: np.ndarray, kind: Kind, to: Kind) -> dict[str, np.ndarray]:
    """The arrays, in kind `to`, of rows of another kind, which stand for the same numbers."""
    size = rows.dtype[CODES].shape[0]
    codes, scales, lowest = rows[CODES], *groups_of(rows, kind)
    if to.code == INT8 and kind.code != INT8:
        codes = meaning(codes, kind).astype(np.int8)
    if to.bits == 4:
        codes = np.pad(codes, [(0, 0), (0, size % 2)])
        codes = codes[:, ::2] | codes[:, 1::2] << 4
    found = {CODES: codes.view(dtype_of(to))}
    times, groups = kind.group // to.group, to.groups(size)
    found[SCALES] = np.repeat(scales, times, axis=-1)[:, :groups]
    if to.minimums:
        lowest = np.zeros_like(scales) if lowest is None else lowest
        found[MINIMUMS] = np.repeat(lowest, times, axis=-1)[:, :groups]
    return found


def common_kind(kinds: Iterable[Kind]) -> Kind | None:
    """A kind for the rows of all kinds, without an outer scale; None: there is none."""
    each = [_folded(kind) for kind in kinds]
    codes = {kind.code for kind in each}
    group = min(kind.group for kind in each)
    if len({kind.activations for kind in each}) > 1 or any(one.group % group for one in each):
        return None
    if len(codes) > 1 and not all(_is_whole(kind) for kind in each):
        return None
    return Kind(
        codes.pop() if len(codes) == 1 else INT8,
        group,
        any(kind.minimums for kind in each),
        "float16" if all(kind.scale_dtype == "float16" for kind in each) else "float32",
        activations=each[0].activations,
    )


def _folded(kind: Kind) -> Kind:
    return kind._replace(outer=0, scale_dtype="float32") if kind.outer else kind


def _is_whole(kind: Kind) -> bool:
    """Whether codes mean whole numbers of 8 bits."""
    if isinstance(kind.code, str):
        return kind.code == INT8
    return all(number == int(number) and -128 <= number < 128 for number in kind.code)


def dtype_of(kind: Kind) -> jnp.dtype:
    """The dtype of arrays of codes."""
    if kind.code == E4M3:
        return jnp.dtype(jnp.float8_e4m3fn)
    return jnp.dtype(jnp.int8 if kind.code == INT8 else jnp.uint8)


def _meaning(codes: Array, kind: Kind) -> Float[Array, "..."]:
    if isinstance(kind.code, str):
        return codes.astype(jnp.float32)
    first = kind.code[0]
    if kind.code == tuple(first + step for step in range(16)):
        return codes.astype(jnp.float32) + first
    return jnp.array(kind.code, jnp.float32)[codes]


def _spread(shared: Array, group: int, size: int) -> Float[Array, "... in"]:
    """One number for each column, from those of groups."""
    wide = jnp.broadcast_to(shared[..., None].astype(jnp.float32), (*shared.shape, group))
    return wide.reshape(*shared.shape[:-1], -1)[..., :size]
