"""How cost grows with the work: `docs/costs.md` shows the curves.

    python -m benchmarks curves --only prefix    one of them

`--save` with `--only` replaces that curve and keeps the others. Then `python -m scripts.figures`
draws them.
"""

import argparse
from collections.abc import Iterator

from benchmarks.curves import blocks, context, host, memory, prefix
from benchmarks.curves.curve import ORDERS
from benchmarks.curves.page import table
from benchmarks.registry import Benchmark, Figures, flag

CURVES = {
    "memory": memory.by_requests,  # the first: it would be served from what the others have freed
    "host_time": host.steps,
    "admission": host.admission,
    "context": context.step_time,
    "prefix": prefix.lookup,
    "blocks": blocks.operations,
}


def run(args: argparse.Namespace) -> Iterator[Figures]:
    for name in [args.only] if args.only else CURVES:
        yield {name: CURVES[name](args.smoke).result()}


def show(part: Figures) -> str:
    """The curve as a table, each series with its order and exponent."""
    ((name, curve),) = part.items()
    faster = [
        f"\n{label} GROWS FASTER"
        for label, line in curve["series"].items()
        if line["exponent"] > ORDERS[line["expected"]]
    ]
    title = f"\n{name}: {curve['title']}, by {curve['size']}"
    return f"{title}\n{table(curve, every=True)}{''.join(faster)}"


def merge(args: argparse.Namespace, saved: Figures, new: Figures) -> Figures:
    both = saved | new
    return {name: both[name] for name in CURVES if name in both}


BENCHMARK = Benchmark(
    run, flags=(flag("--only", choices=CURVES, help="one curve"),), merge=merge, show=show
)
