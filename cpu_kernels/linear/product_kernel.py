"""What the kernels of products with weights in panels share, whatever the kind of the weights.

A kernel multiplies some panels of a weight with some rows of x: a chunk, which is a work item.
In a gated network's first product the panels of gate and up alternate. A thread multiplies one of
each and gates the products while they are in its own cache. Two kernels would write the products to
memory and read them again: 25 MB for 2,048 rows of SmolLM2.

One kernel serves plain products and those with a gate, because each of them would have all
micro-kernels compiled anew.
"""

from collections.abc import Callable
from typing import Any

from cpu_kernels.calls.kernel import cpu_kernel
from cpu_kernels.compiling.jit import inner
from cpu_kernels.linear.chunks import (
    Chunk,
    Share,
    chunk_of,
    most_rows,
    num_chunks,
    rows_in_groups,
    share_of,
)
from cpu_kernels.linear.gates import PARTS, STEP, gate_pair
from cpu_kernels.low_rank import gate as adapters
from cpu_kernels.simd.micro_kernel import COLUMNS

PLAIN = -1  # in place of an activation's index: the products are the result
# Behind the operands of a kind of weights. Plain products pass none behind `activation`: each
# takes time, even an empty one.
OPERANDS = f"layer ends activation bias {adapters.OPERANDS}"


@inner
def _nothing(call: Any) -> None:
    pass


@inner
def _no_bytes(call: Any) -> int:
    return 0


def product_kernel(
    name: str,
    multiply: Callable[[Any, Chunk, int], None],
    *,
    operands: str,
    results: str = "",
    begin: Callable[[Any], None] = _nothing,
    scratch: Callable[[Any], int] = _no_bytes,
    pairs_panels: bool = False,
) -> None:
    """Declares the kernel of products with a kind of weights. The functions must be `@inner`.

    Args:
        name: as in `cpu_kernel`.
        multiply: writes all products of a chunk. It gets the call, the chunk and the address of the
            kind's scratch.
        operands: names of the kind's own operands, before OPERANDS: `x`, `panels` and others.
        results: names of results behind `out`.
        begin: runs once, before the call's work begins.
        scratch: returns the bytes that `multiply` needs in each thread.
        pairs_panels: whether one row of x is multiplied with two panels at once.
    """

    @inner
    def parts(call: Any) -> int:
        """Panels that stay in one chunk: of gate and up, or those that one row meets at once."""
        paired = pairs_panels and rows_in_groups(call) == 1
        return PARTS if _is_gated(call) or paired else 1

    @inner
    def chunks(call: Any) -> int:
        begin(call)
        return num_chunks(call, _units(call, parts(call)))

    @inner
    def memory_bytes(call: Any) -> int:
        return scratch(call) + (_gated_bytes(call) if _is_gated(call) else 0)

    @inner
    def work(call: Any, item: int, memory: int) -> None:
        together = parts(call)
        share = share_of(call, item, _units(call, together))
        chunk = chunk_of(call, share, together, _panels(call), _is_gated(call))
        if not _is_gated(call):
            multiply(call, chunk, memory)
            return
        products = memory + scratch(call)
        for pair in range(chunk.num_panels // PARTS):
            multiply(call, _pair_of(chunk, pair, products), memory)
            _add_adapters(call, share, pair, products)
            gate_pair(call, chunk, share, pair, products)

    declare = cpu_kernel(
        name,
        operands=f"{operands} {OPERANDS}",
        results=f"out {results}",
        items=chunks,
        scratch=memory_bytes,
        neighbours=True,
    )
    declare(work)


@inner
def _is_gated(call: Any) -> bool:
    return call.activation.int32[0] != PLAIN


@inner
def _panels(call: Any) -> int:
    """Number of a weight's panels."""
    panels = (call.out.shape[1] + COLUMNS - 1) // COLUMNS
    return PARTS * panels if _is_gated(call) else panels


@inner
def _units(call: Any, parts: int) -> int:
    """Number of a weight's panels, those counted once that stay in one chunk."""
    return (_panels(call) + parts - 1) // parts


@inner
def _pair_of(chunk: Chunk, pair: int, products: int) -> Chunk:
    """One panel of gate and one of up, with the products in the thread's own memory."""
    return Chunk(
        chunk.weight,
        chunk.panel + PARTS * pair,
        PARTS,
        chunk.goes_on or pair + 1 < chunk.num_panels // PARTS,
        chunk.row,
        chunk.tokens,
        chunk.x,
        chunk.x_step,
        products,
        STEP,
        PARTS * COLUMNS,
    )


@inner
def _products_bytes(call: Any) -> int:
    """Bytes for the products of a chunk's rows with one panel of gate and one of up."""
    return STEP * min(call.x.shape[0], most_rows(call))


@inner
def _gated_bytes(call: Any) -> int:
    """Bytes for products, and for what is added to them."""
    return _products_bytes(call) + adapters.expand_bytes(call)


@inner
def _add_adapters(call: Any, share: Share, pair: int, products: int) -> None:
    """Adds what adapters add to the products of a share's rows with a pair of its panels.

    Args:
        products: address of rows of STEP bytes, with `expand_bytes` behind them.
    """
    sums = products + _products_bytes(call)
    adapters.add_expanded(call, share, share.panel + pair, products, STEP, sums)
