"""The formats of a model's weights."""

from collections.abc import Sequence

import jax.numpy as jnp

from jax_engine.operations.device import this_device
from jax_engine.operations.table import on_numba
from jax_engine.weights.coded import Coded, CodedByRows, common_kind
from jax_engine.weights.coded_panels import CodedPanels, most_bytes
from jax_engine.weights.coded_stacks import BACKEND, CodedStacks, kind_in_stacks
from jax_engine.weights.codes import Kind
from jax_engine.weights.dense import Dense, IndexedDense
from jax_engine.weights.format import Formats, Matrix, WeightFormat
from jax_engine.weights.invariant_dense import InvariantDense
from jax_engine.weights.panels import Panels
from jax_engine.weights.w8a8 import W8A8Panels, is_w8a8
from jax_engine.weights.w8a8_dense import IndexedW8A8Dense, W8A8Dense
from pallas_kernels.quantized_matmul import backend_for


def formats_for(dtype: jnp.dtype, batch_invariant: bool = False) -> Formats:
    """The formats for weights of a dtype on this device.

    Args:
        batch_invariant: as in `make_batch`.
    """
    if batch_invariant:
        return Formats(InvariantDense(), Dense())
    if on_numba(dtype):
        return Formats(Panels(), Dense())
    if this_device().slices_are_copied:
        return Formats(IndexedDense(), Dense())
    return Formats(Dense(), Dense())


def coded_format(
    kinds: tuple[Kind, ...],
    layers: Sequence[Sequence[tuple[Kind, int]]],
    matrix: Matrix,
    plain: WeightFormat,
    *,
    ordered: bool,
) -> WeightFormat | None:
    """The format for a weight whose rows are codes.

    Args:
        kinds: of all rows.
        layers: the kinds of each layer's matrix, and how many rows of each follow each other.
        matrix: one of the stack.
        plain: the format that it would have as numbers.
        ordered: whether its columns are in another order.

    Returns:
        None if no format holds such rows, or their kernels do not run here: then they are decoded
        when they are read.
    """
    if not ordered and all(is_w8a8(kind, matrix.shape[-1]) for kind in kinds):
        return w8a8_format(plain)
    if isinstance(plain, Panels):
        if not _compiled("cpu_kernels.quantized"):
            return None
        num_bytes = most_bytes(kinds, layers, matrix)
        return None if num_bytes is None else CodedPanels(kinds, num_bytes, ordered)
    stacks = _stacks(kinds, matrix, ordered)
    if stacks is not None and backend_for(*stacks.call(matrix)) == BACKEND:
        return stacks
    kind = common_kind(kinds)
    if kind is None:
        return None
    return (CodedByRows if plain.indexed else Coded)(kinds, kind, ordered)


def _stacks(kinds: tuple[Kind, ...], matrix: Matrix, ordered: bool) -> CodedStacks | None:
    """The format for a GPU's kernel, which has no products by experts."""
    kind = kind_in_stacks(kinds) if len(matrix.shape) == 2 else None
    return None if kind is None else CodedStacks(kinds, kind, ordered)


def w8a8_format(plain: WeightFormat) -> WeightFormat:
    """The format for integer products of a weight that would have this one as numbers."""
    if isinstance(plain, Panels) and _compiled("cpu_kernels.w8a8"):
        return W8A8Panels()
    return IndexedW8A8Dense() if plain.indexed else W8A8Dense()


def _compiled(package: str) -> bool:
    """Compiles the kernels of a package if that has not been done."""
    from cpu_kernels.compiling.availability import failure_on_demand

    return failure_on_demand(package) is None
