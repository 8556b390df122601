"""Do `jax-engine bench serve` and `vllm bench serve` measure the same of one server?

Both clients take turns at one server of ours, and at one that keeps time (`paced`), where what they
should measure is known. They draw prompts and arrivals by generators of their own, so a figure
differs by chance too: pairs are many, and their median counts.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.compare.benchmark import settings_for
from benchmarks.compare.environments import folder
from benchmarks.compare.servers.benchmark import checkpoint_with_tokenizer
from benchmarks.compare.servers.paced import FIRST_S, NEXT_S
from benchmarks.compare.servers.server import KINDS, MODEL, Kind, Server, python_of
from benchmarks.registry import Benchmark, Figures, flag
from benchmarks.report import ROOT
from jax_engine.models.registry import config_from_hf

# `vllm bench serve` itself does not start from the package of the CPU build.
VLLM = """
from vllm.benchmarks.serve import add_cli_args, main
from vllm.utils.argparse_utils import FlexibleArgumentParser
parser = FlexibleArgumentParser()
add_cli_args(parser)
main(parser.parse_args())
"""
PACED = Kind(
    "a server that keeps time",
    "ours",
    lambda python, settings, port: [
        python, "-m", "benchmarks.compare.servers.paced", f"--port={port}",
    ],
    (("PYTHONPATH", str(ROOT)),),
)  # fmt: skip
SHAPE = ["--dataset-name=random", "--random-input-len=64", "--random-output-len=48"]
LOADS = {
    "8 at a time": ["--max-concurrency=8"],
    "at a steady rate": ["--request-rate=4", "--burstiness=inf"],
}
FIGURES = ("output_throughput", "mean_ttft_ms", "mean_tpot_ms", "mean_itl_ms", "mean_e2el_ms")


def measured(command: list[str], url: str, model: Path, load: list[str]) -> dict[str, Any]:
    """The figures that a client writes."""
    with tempfile.TemporaryDirectory() as scratch:
        where = [f"--base-url={url}", f"--model={MODEL}", f"--tokenizer={model}"]
        save = ["--save-result", f"--result-dir={scratch}", "--result-filename=r.json"]
        flags = [*SHAPE, *load, *where, *save, "--percentile-metrics=ttft,tpot,itl,e2el"]
        done = subprocess.run(command + flags, cwd=ROOT, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{command}: {done.stderr[-2000:]}")
        found: dict[str, Any] = json.loads((Path(scratch) / "r.json").read_text())
        return found


def compare(model: Path, server: Server, pairs: int, count: int) -> dict[str, Any]:
    """For each load and figure: the medians of both clients, and of ours over theirs."""
    python = python_of(KINDS["vllm"])
    clients = {
        "ours": [sys.executable, "-m", "jax_engine", "bench", "serve"],
        "vllm": [python, "-c", VLLM],
    }
    result: dict[str, Any] = {}
    for name, flags in LOADS.items():
        runs: dict[str, list[dict[str, Any]]] = {client: [] for client in clients}
        for turn in range(pairs + 1):
            load = [*flags, f"--num-prompts={count}", f"--seed={turn}"]
            for client in clients if turn % 2 else reversed(clients):
                found = measured(clients[client], server.url, model, load)
                if turn:  # the first is a warm-up
                    runs[client].append(found)
                print(
                    f"  {name}, {client}: {[round(found[one], 2) for one in FIGURES]}", flush=True
                )
        result[name] = {figure: _row(runs, figure) for figure in FIGURES}
    return result


def true_means(output_len: int = 48) -> dict[str, float]:
    """What the server that keeps time gives to each request, in ms."""
    first, rest = 1000 * FIRST_S, 1000 * NEXT_S
    whole = first + (output_len - 1) * rest
    return dict(zip(FIGURES[1:], (first, rest, rest, whole), strict=True))


def headline(result: dict[str, Any]) -> dict[str, str]:
    """The row of docs/measured.md: the largest difference of each load, TTFT apart."""
    found = []
    for name, rows in result.items():
        by_figure = {figure: abs(row["difference_percent"]) for figure, row in rows.items()}
        first = by_figure.pop("mean_ttft_ms")
        found.append(f"{name}: {max(by_figure.values())} %, TTFT {first} %")
    what = "`jax-engine bench serve` beside `vllm bench serve`, the largest difference of a mean"
    return {what: "; ".join(found)}


def _row(runs: dict[str, list[dict[str, Any]]], figure: str) -> dict[str, float]:
    ours, theirs = (np.asarray([one[figure] for one in runs[name]]) for name in ("ours", "vllm"))
    return {
        "ours": round(float(np.median(ours)), 2),
        "vllm": round(float(np.median(theirs)), 2),
        "difference_percent": round(100 * float(np.median(ours / theirs) - 1), 2),
    }


def run(args: argparse.Namespace) -> Iterator[Figures]:
    model = checkpoint_with_tokenizer()
    config = config_from_hf(json.loads((model / "config.json").read_text("utf-8")))
    settings = settings_for(config, model, "bfloat16", smoke=False)
    for name, kind in (("jax-engine", KINDS["ours"]), ("keeps time", PACED)):
        server = Server(kind, sys.executable, settings, folder() / "logs" / "agreement.log")
        try:
            found = compare(model, server, args.pairs, args.requests)
        finally:
            server.close()
        yield {f"{name}, {load}": rows for load, rows in found.items()}
    true = {figure: {"true": mean} for figure, mean in true_means().items()}
    yield {f"keeps time, {load}": true for load in LOADS}


BENCHMARK = Benchmark(
    run,
    flags=(
        flag("--pairs", type=int, default=5, help="of runs, for each load"),
        flag("--requests", type=int, default=48, help="of a run"),
    ),
    needs="vLLM's CPU build, whose client it runs",
    headline=lambda args, found: headline(found),
    files=lambda args, found: {"serve_agreement": found},
)
