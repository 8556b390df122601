"""Figures and tables of the paper's evaluation again, beside the paper's own numbers.

    python -m benchmarks paper --figures 2,13        some of them
    python -m benchmarks paper --measured            with the real engine, on a small model
    python -m benchmarks paper --minutes 60          an hour of arrivals, as in the paper

`--save` with `--figures` replaces these and keeps the others. Then `python -m scripts.figures`
draws the curves of docs/tutorial/reproducing-the-paper.md.
"""

import argparse
from collections.abc import Callable, Iterator

from benchmarks.paper.block_size import figure_18b, figure_19
from benchmarks.paper.figure import Figure
from benchmarks.paper.memory import figure_2, figure_13, table_1
from benchmarks.paper.serving import figure_12, figure_14, figure_16, figure_17
from benchmarks.paper.sharing import figure_15
from benchmarks.registry import Benchmark, Figures, flag, names_of
from benchmarks.report import machine, machine_in_words, now

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


def make(name: str, args: argparse.Namespace) -> Figure:
    """One figure."""
    if args.measured:
        from benchmarks.paper.measured import FIGURES  # imports JAX, which simulating needs not

        return FIGURES[name](args.smoke)
    return SIMULATED[name](60 * args.minutes)


def where() -> str:
    """Machine and date."""
    return f"{machine_in_words(machine())}, {now()}"


def run(args: argparse.Namespace) -> Iterator[Figures]:
    known = MEASURED if args.measured else tuple(SIMULATED)
    if unknown := [name for name in args.figures if name not in known]:
        raise SystemExit(f"--figures {','.join(unknown)}: choose from {','.join(known)}")
    for name in args.figures or known:
        figure = make(name, args)
        key = f"{name}-measured" if args.measured else name
        print(figure.text(key), flush=True)
        # The file's own machine and date are those of the last figure.
        yield {key: figure.result() | ({"on": where()} if args.measured else {})}


def merge(args: argparse.Namespace, saved: Figures, new: Figures) -> Figures:
    keys = [key for name in SIMULATED for key in (name, f"{name}-measured")]
    both = saved | new
    return {key: both[key] for key in keys if key in both}


BENCHMARK = Benchmark(
    run,
    flags=(
        flag("--figures", type=names_of(SIMULATED, 0), default=[], help="all if left out"),
        flag("--minutes", type=float, default=15.0, help="of arrivals, for ShareGPT"),
        flag("--measured", action="store_true", help=f"{', '.join(MEASURED)}, measured"),
    ),
    smoke={"minutes": 0.1, "figures": ["table1", "2", "19"]},
    merge=merge,
    show=lambda part: "",
)
