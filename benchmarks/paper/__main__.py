"""Figures and tables of the paper's evaluation again, beside the paper's own numbers.

    python -m benchmarks.paper                       all that is simulated; half an hour
    python -m benchmarks.paper --figures 2,13        some of them
    python -m benchmarks.paper --measured            with the real engine, on a small model
    python -m benchmarks.paper --minutes 60          an hour of arrivals, as in the paper
    python -m benchmarks.paper --save                keeps them in benchmarks/results/paper.json

`--save` with `--figures` replaces these and keeps the others. Then `python -m scripts.figures`
draws the curves of docs/tutorial/reproducing-the-paper.md.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.paper.block_size import figure_18b, figure_19
from benchmarks.paper.figure import Figure
from benchmarks.paper.memory import figure_2, figure_13, table_1
from benchmarks.paper.serving import figure_12, figure_14, figure_16, figure_17
from benchmarks.paper.sharing import figure_15
from benchmarks.report import RESULTS, machine, machine_in_words, now, write_result

SIMULATED: dict[str, Callable[[float], Figure]] = {
    "table1": table_1,
    "2": figure_2,
    "12": figure_12,
    "13": figure_13,
    "14": figure_14,
    "15": figure_15,
    "16": figure_16,
    "17": figure_17,
    "18b": figure_18b,
    "19": figure_19,
}
MEASURED = ("2", "13", "15", "16", "18b", "19")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.paper", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--figures", default="", help=f"of {','.join(SIMULATED)}; all if left out")
    parser.add_argument("--minutes", type=float, default=15.0, help="of arrivals, for ShareGPT")
    parser.add_argument("--measured", action="store_true", help=f"{', '.join(MEASURED)}, measured")
    parser.add_argument("--smoke", action="store_true", help="the measured as small as can be")
    parser.add_argument("--save", action="store_true")
    parser.add_argument("--output", type=Path, default=RESULTS / "paper.json")
    args = parser.parse_args()
    args.chosen = args.figures.split(",") if args.figures else []
    known = MEASURED if args.measured else SIMULATED
    if unknown := [name for name in args.chosen if name not in known]:
        parser.error(f"--figures {','.join(unknown)}: choose from {','.join(known)}")
    args.chosen = args.chosen or list(known)
    return args


def make(name: str, args: argparse.Namespace) -> Figure:
    """One figure."""
    if args.measured:
        from benchmarks.paper.measured import FIGURES  # imports JAX, which simulating needs not

        return FIGURES[name](args.smoke)
    return SIMULATED[name](60 * args.minutes)


def where() -> str:
    """Machine and date."""
    return f"{machine_in_words(machine())}, {now()}"


def main() -> None:
    args = arguments()
    found = {}
    for name in args.chosen:
        started = time.perf_counter()
        figure = make(name, args)
        key = f"{name}-measured" if args.measured else name
        found[key] = figure.result()
        if args.measured:  # the file's own machine and date are those of the last figure
            found[key]["on"] = where()
        print(figure.text(key))
        print(f"  ({time.perf_counter() - started:.0f} s)", flush=True)
    if args.save:
        saved = {}
        if args.output.exists():
            saved = json.loads(args.output.read_text("utf-8"))["result"]
        keys = [key for name in SIMULATED for key in (name, f"{name}-measured")]
        everything = saved | found
        result = {key: everything[key] for key in keys if key in everything}
        write_result("paper", result, args.output, arguments={"minutes": args.minutes})


if __name__ == "__main__":
    main()
