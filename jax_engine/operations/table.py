"""The table of operations, the choice of its row, and the formats of a model's weights.

Both are chosen by device: XLA, the kernels for a CPU, or those for a GPU. A GPU's row differs from
XLA's by the product with adapters, whose arguments and results are those of `xla.py`.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from jax_engine.operations import xla
from jax_engine.operations.device import this_device
from jax_engine.weights.coded import Coded, CodedByRows, common_kind
from jax_engine.weights.coded_stacks import BACKEND, CodedStacks, kind_in_stacks
from jax_engine.weights.codes import Kind
from jax_engine.weights.dense import Dense, IndexedDense, InvariantDense
from jax_engine.weights.format import Formats, Matrix, WeightFormat
from jax_engine.weights.low_rank import A, B, LowRank
from jax_engine.weights.panels import CodedPanels, Panels, most_bytes
from jax_engine.weights.w8a8 import IndexedW8A8Dense, W8A8Dense, W8A8Panels, is_w8a8
from pallas_kernels import low_rank
from pallas_kernels.backends import Backend, runs_cpu_kernels
from pallas_kernels.quantized_matmul import backend_for


def add_low_rank_on_gpu(
    out: Float[Array, "T out"], low: LowRank, backend: Backend = None
) -> Float[Array, "T out"]:
    """See `xla.add_low_rank`, which computes what the kernels lack, and on GPUs that have none.

    Args:
        backend: "mosaic" for the kernels, or an error if they lack the call.
    """
    a, b, halves = low.arrays[A], low.arrays[B], low.layout.halves
    if backend is None and not low_rank.has_kernel(out, low.x, a, b, halves):
        return xla.add_low_rank(out, low)
    slot, tiles = low.rows.slot, low.rows.tiles
    found: Array = low_rank.add_low_rank(
        out, low.x, a, b, slot, layer=low.layer, halves=halves, tiles=tiles, backend=backend
    )
    return found


# In what weights the kernels for a CPU multiply; other dtypes are left to XLA.
NUMBA_DTYPES = ("float32", "bfloat16", "float16")


class Operations(NamedTuple):
    """A row of the table; `xla.py` says what each operation does."""

    add_rms_norm: Callable[..., Any]
    add_layer_norm: Callable[..., Any]
    rms_norm: Callable[..., Any]
    layer_norm: Callable[..., Any]
    head_norm: Callable[..., Any]
    softmax: Callable[..., Any]
    logsumexp: Callable[..., Any]
    draw: Callable[..., Any]
    zeros: Callable[..., Any]
    add_low_rank: Callable[..., Any]


XLA = Operations(
    add_rms_norm=xla.add_rms_norm,
    add_layer_norm=xla.add_layer_norm,
    rms_norm=xla.rms_norm,
    layer_norm=xla.layer_norm,
    head_norm=xla.head_norm,
    softmax=xla.softmax,
    logsumexp=xla.logsumexp,
    draw=xla.draw,
    zeros=jnp.zeros,
    add_low_rank=xla.add_low_rank,
)


def device_operations(batch_invariant: bool = False) -> Operations:
    """What computes on this device.

    Args:
        batch_invariant: as in `make_batch`.
    """
    if batch_invariant:
        return _invariant()
    if not runs_cpu_kernels():
        return XLA._replace(add_low_rank=add_low_rank_on_gpu)
    # Imports Numba, which no GPU needs.
    from jax_engine.operations import numba

    return Operations(
        add_rms_norm=numba.add_rms_norm,
        add_layer_norm=numba.add_layer_norm,
        rms_norm=numba.rms_norm,
        layer_norm=numba.layer_norm,
        head_norm=numba.head_norm,
        softmax=numba.softmax,
        logsumexp=numba.logsumexp,
        draw=numba.draw,
        zeros=numba.zeros,
        add_low_rank=numba.add_low_rank,
    )


def _invariant() -> Operations:
    """XLA's row, but for what adds up rows."""
    # Imports Triton's dialect, which no CPU needs.
    from jax_engine.operations import invariant

    return XLA._replace(
        add_rms_norm=invariant.add_rms_norm,
        add_layer_norm=invariant.add_layer_norm,
        rms_norm=invariant.rms_norm,
        layer_norm=invariant.layer_norm,
        head_norm=invariant.head_norm,
        logsumexp=invariant.logsumexp,
    )


def on_numba(dtype: jnp.dtype) -> bool:
    """Whether the kernels for a CPU multiply with weights of a dtype on this device."""
    return dtype.name in NUMBA_DTYPES and runs_cpu_kernels()


def decodes_are_ragged(*, batch_invariant: bool) -> bool:
    """Whether rows of a step that only decodes may have several queries, as rows with guesses have.

    Attention then reads such a row's keys and values once.

    Args:
        batch_invariant: as in `make_batch`.
    """
    return runs_cpu_kernels() and not batch_invariant


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
        kinds: the kinds that occur in any row.
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
        if not _compiled("codes"):
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
    if isinstance(plain, Panels) and _compiled("W8A8"):
        return W8A8Panels()
    return IndexedW8A8Dense() if plain.indexed else W8A8Dense()


def _compiled(need: str) -> bool:
    """Compiles a CPU's kernels that are needed for this if that has not been done."""
    from cpu_kernels.compiling.availability import failure_on_demand

    return failure_on_demand(need) is None
