"""Cuts a product's work into chunks, the work items of the kernels for products.

The rows of x lie in groups, and each group has a weight of its own: the experts of a mixture. An
ordinary product has one group. A group without rows costs nothing, and its weight is not read.

A call has the operands x, panels (a stack of packed weights: those of a layer's groups, layer after
layer), layer (an index into the layers) and ends (where each group's rows end), and the result out.
How the weights are packed makes no difference here.
"""

from typing import Any, NamedTuple

from cpu_kernels.calls.threads import is_followed, range_of
from cpu_kernels.compiling.jit import inner
from cpu_kernels.simd.memory import clear
from cpu_kernels.simd.micro_kernel import COLUMNS, ROWS
from cpu_kernels.simd.widen import item_bytes

# Cut the panels of all groups into about 64 chunks: enough to balance the cores, few enough that
# claiming one is cheap. But cut each group's into a few, since one may have most of the rows.
PANEL_CHUNKS, GROUP_CHUNKS = 64, 4
# Most bytes of x in a chunk: they stay in the second-level cache beside two panels. But a chunk may
# have MIN_TOKENS rows of x, so that reading a panel pays.
X_BYTES, MIN_TOKENS = 384 * 1024, 4 * ROWS


class Share(NamedTuple):
    """What a work item multiplies: some panels of a group's weight with some of its rows.

    Attributes:
        group: the group's index.
        row, end: the first of the rows, and the one after the last.
        panel, last: the same of the panels, or of pairs: see `num_chunks`.
        followed: whether the same thread probably continues with the group's next panels.
    """

    group: int
    row: int
    end: int
    panel: int
    last: int
    followed: bool


class Chunk(NamedTuple):
    """A share, by addresses.

    Attributes:
        weight: number of the group's weight, among those of all layers.
        panel, num_panels: number of the first panel, among those of all weights, and how many.
        goes_on: whether the same thread probably multiplies the panel after the last one.
        row, tokens: the first row of x, and how many.
        x, x_step: address of the first row, and bytes from row to row.
        out, out_step: the same of the products.
        columns: number of columns of out from the first panel to the weight's end.
    """

    weight: int
    panel: int
    num_panels: int
    goes_on: bool
    row: int
    tokens: int
    x: int
    x_step: int
    out: int
    out_step: int
    columns: int


@inner
def _end_of(call: Any, group: int, row: int) -> int:
    """Where a group's rows end that begin at `row`: neither before it nor beyond x."""
    return min(max(call.ends.int32[group], row), call.x.shape[0])


@inner
def rows_in_groups(call: Any) -> int:
    """Number of rows of x that are in a group: those of no group are at the end."""
    row = 0
    for group in range(call.ends.shape[0]):
        row = _end_of(call, group, row)
    return row


@inner
def _x_step(call: Any) -> int:
    """Bytes from one row of x to the next."""
    return item_bytes(call.x.dtype) * call.x.shape[1]


@inner
def most_rows(call: Any) -> int:
    """The most rows of x in a chunk."""
    return max(X_BYTES // max(_x_step(call), 1) // ROWS * ROWS, MIN_TOKENS)


@inner
def _panel_chunks(call: Any, panels: int) -> int:
    """Number of chunks that the panels of each group with rows are cut into."""
    busy, row = 0, 0
    for group in range(call.ends.shape[0]):
        end = _end_of(call, group, row)
        if end > row:
            busy += 1
        row = end
    each = max(PANEL_CHUNKS // max(busy, 1), GROUP_CHUNKS)
    return min(panels, each)


@inner
def num_chunks(call: Any, panels: int) -> int:
    """Number of work items. Writes zeros to the rows of no group, which are at the end.

    Args:
        call: the call.
        panels: number of a weight's panels; or of pairs, if panels of gate and up alternate. Both
            of a pair stay in one chunk.
    """
    each, most = _panel_chunks(call, panels), most_rows(call)
    chunks, row = 0, 0
    for group in range(call.ends.shape[0]):
        end = _end_of(call, group, row)
        chunks += each * ((end - row + most - 1) // most)
        row = end
    size = item_bytes(call.out.dtype) * call.out.shape[1]
    clear(call.out.address + size * row, size * (call.out.shape[0] - row))
    return chunks


@inner
def share_of(call: Any, number: int, panels: int) -> Share:
    """What work item number `number` multiplies; `panels` as in `num_chunks`."""
    each, most = _panel_chunks(call, panels), most_rows(call)
    group, row, end, of_x = 0, 0, 0, 1
    chunks, place, start = 0, 0, 0
    for one in range(call.ends.shape[0]):
        until = _end_of(call, one, start)
        if until > start:
            count = (until - start + most - 1) // most
            if chunks <= number < chunks + each * count:
                group, row, end, of_x, place = one, start, until, count, number - chunks
            chunks += each * count
            start = until
    panel, last = range_of(panels, place % each, each)
    first, after = range_of(end - row, place // each, of_x)
    followed = place % each + 1 < each and is_followed(number, chunks)
    return Share(group, row + first, row + after, panel, last, followed)


@inner
def chunk_of(call: Any, share: Share, parts: int, panels: int, gated: bool) -> Chunk:
    """The chunk of a work item.

    Args:
        parts: number of panels that stay in one chunk.
        panels: number of a weight's panels.
        gated: whether panels of gate and up alternate: then a pair of them has one column of out.
    """
    out, groups, first = call.out, call.ends.shape[0], parts * share.panel
    column = COLUMNS * (share.panel if gated else first)
    x_step, out_step = _x_step(call), item_bytes(out.dtype) * out.shape[1]
    layer = min(max(call.layer.int32[0], 0), call.panels.shape[0] // groups - 1)
    weight = layer * groups + share.group
    return Chunk(
        weight,
        weight * panels + first,
        min(parts * (share.last - share.panel), panels - first),
        share.followed,
        share.row,
        share.end - share.row,
        call.x.address + share.row * x_step,
        x_step,
        out.address + share.row * out_step + item_bytes(out.dtype) * column,
        out_step,
        out.shape[1] - column,
    )
