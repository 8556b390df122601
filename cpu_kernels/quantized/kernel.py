"""The kernel of products with codes: plain ones, and those of gated networks with their gate.

One kernel serves both, because each of them would have all micro-kernels compiled anew.
"""

from typing import Any

from cpu_kernels.calls.kernel import cpu_kernel
from cpu_kernels.compiling.jit import inner
from cpu_kernels.linear.chunks import Share, num_chunks, rows_in_groups, share_of
from cpu_kernels.linear.gated_linear import (
    PARTS,
    STEP,
    add_adapters,
    bias_of,
    gate_pair,
    gated_bytes,
)
from cpu_kernels.low_rank.gate import OPERANDS
from cpu_kernels.quantized.sums import write_sums
from cpu_kernels.quantized.tiles import PAIRS_PANELS, PART_BYTES, PLACE_BYTES, Chunk, multiply_of
from cpu_kernels.simd.micro_kernel import COLUMNS
from cpu_kernels.simd.structs import BFLOAT16
from cpu_kernels.simd.widen import item_bytes
from cpu_kernels.simd.words import MULTIPLIES_PAIRS, Floats, Pairs

NAME = "cpu_kernels.coded_linear_with_adapters"
PLAIN = -1  # in place of an activation's index: the products are the result
_multiply_floats = multiply_of(Floats)
_multiply_pairs = multiply_of(Pairs) if MULTIPLIES_PAIRS else _multiply_floats


@inner
def _is_gated(call: Any) -> bool:
    return call.activation.int32[0] != PLAIN


@inner
def _parts(call: Any) -> int:
    """Panels that stay in one chunk: of gate and up, or those that one row is multiplied with."""
    paired = PAIRS_PANELS and rows_in_groups(call) == 1
    return PARTS if _is_gated(call) or paired else 1


@inner
def _units(call: Any) -> int:
    """Number of a weight's panels, those counted once that stay in one chunk."""
    parts = _parts(call)
    return (call.places.shape[1] + parts - 1) // parts


@inner
def _chunk_of(call: Any, share: Share, parts: int, scratch: int) -> Chunk:
    """The chunk of a work item; `parts` panels stay in one chunk."""
    places, out, groups = call.places, call.out, call.ends.shape[0]
    item, first = item_bytes(out.dtype), parts * share.panel
    column = COLUMNS * (share.panel if _is_gated(call) else first)
    x_step, sums_step = item_bytes(call.x.dtype) * call.x.shape[1], 4 * call.sums.shape[1]
    layer = min(max(call.layer.int32[0], 0), places.shape[0] // groups - 1)
    matrix = layer * groups + share.group
    return Chunk(
        call.panels.address + matrix * call.panels.shape[1],
        places.address + PLACE_BYTES * (matrix * places.shape[1] + first),
        call.forms.address,
        call.tables.address,
        min(parts * (share.last - share.panel), places.shape[1] - first),
        share.followed,
        call.x.address + share.row * x_step,
        call.sums.address + share.row * sums_step,
        out.address + item * (share.row * out.shape[1] + column),
        call.x.shape[1],
        out.shape[1] - column,
        share.end - share.row,
        x_step,
        sums_step,
        item * out.shape[1],
        scratch,
    )


@inner
def _multiply(call: Any, chunk: Chunk) -> None:
    """All products of a chunk, in the dtype of x."""
    if call.x.dtype == BFLOAT16:
        _multiply_pairs(chunk)
    else:
        _multiply_floats(chunk)


@inner
def _multiply_gated(call: Any, chunk: Chunk, share: Share, products: int) -> None:
    """Multiplies and gates pairs of panels, with the products in the thread's own memory."""
    bias, pairs = bias_of(call, share), chunk.num_panels // PARTS
    for pair in range(pairs):
        both = Chunk(
            chunk.panels,
            chunk.places + PLACE_BYTES * PARTS * pair,
            chunk.forms,
            chunk.tables,
            PARTS,
            chunk.goes_on or pair + 1 < pairs,
            chunk.x,
            chunk.sums,
            products,
            chunk.size,
            PARTS * COLUMNS,
            chunk.tokens,
            chunk.x_step,
            chunk.sums_step,
            STEP,
            chunk.scratch,
        )
        _multiply(call, both)
        add_adapters(call, share, pair, products)
        gate_pair(call, chunk, bias, pair, products)


@inner
def _chunks(call: Any) -> int:
    write_sums(call, rows_in_groups(call))
    return num_chunks(call, _units(call))


@inner
def _scratch(call: Any) -> int:
    """Bytes for part of a decoded panel, and for a chunk's products before the gate."""
    return PART_BYTES + (gated_bytes(call) if _is_gated(call) else 0)


@cpu_kernel(
    NAME,
    operands=f"x panels places forms tables layer ends bias activation {OPERANDS}",
    results="out sums",
    items=_chunks,
    scratch=_scratch,
    neighbours=True,
)
@inner
def _chunk(call: Any, item: int, scratch: int) -> None:
    share = share_of(call, item, _units(call))
    chunk = _chunk_of(call, share, _parts(call), scratch)
    if _is_gated(call):
        _multiply_gated(call, chunk, share, scratch + PART_BYTES)
    else:
        _multiply(call, chunk)
