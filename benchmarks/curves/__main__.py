"""How cost grows with the work: `docs/costs.md` shows the curves.

    python -m benchmarks.curves                  prints each curve
    python -m benchmarks.curves --save           and keeps them in benchmarks/results/
    python -m benchmarks.curves --only prefix    one of them
    python -m benchmarks.curves --smoke          all in seconds, too small to say anything

`--save` with `--only` replaces that curve and keeps the others. Then `python -m scripts.figures`
draws them.
"""

import argparse
import json
from pathlib import Path

from benchmarks.curves import blocks, context, host, memory, prefix
from benchmarks.curves.curve import ORDERS, Curve
from benchmarks.report import RESULTS, write_result

CURVES = {
    "memory": memory.by_requests,  # the first: it would be served from what the others have freed
    "host_time": host.steps,
    "admission": host.admission,
    "context": context.step_time,
    "prefix": prefix.lookup,
    "blocks": blocks.operations,
}


def show(name: str, curve: Curve) -> None:
    """The curve as a table, each series with its order and exponent."""
    sizes = sorted({size for line in curve.series.values() for size in line.points})
    print(f"\n{name}: {curve.title}, {curve.cost} by {curve.size}")
    print(" " * 40 + "".join(f"{size:>10}" for size in sizes))
    for label, line in curve.series.items():
        costs = [line.points.get(size) for size in sizes]
        cells = "".join(f"{'' if cost is None else f'{cost:.4g}':>10}" for cost in costs)
        grows = "" if line.exponent <= ORDERS[line.expected] else "  GROWS FASTER"
        print(f"{label:40}{cells}  {line.expected}, n^{line.exponent:.2f}{grows}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.curves", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--only", choices=CURVES, help="one curve")
    parser.add_argument("--smoke", action="store_true", help="small sizes, in seconds")
    parser.add_argument("--save", action="store_true")
    parser.add_argument("--output", type=Path, default=RESULTS / "curves.json")
    args = parser.parse_args()
    found = {}
    for name in [args.only] if args.only else CURVES:
        curve = CURVES[name](args.smoke)
        show(name, curve)
        found[name] = curve.result()
    if args.save:
        saved = {}
        if args.only and args.output.exists():
            saved = json.loads(args.output.read_text("utf-8"))["result"]
        result = {name: (saved | found).get(name) for name in CURVES if name in saved | found}
        write_result("curves", result, args.output, arguments={"smoke": args.smoke})


if __name__ == "__main__":
    main()
