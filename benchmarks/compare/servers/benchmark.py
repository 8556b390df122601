"""Our server beside vLLM's and our own LLM.generate: start, W1, rates, long prompts, 1,000 streams.

    python -m benchmarks compare.servers --servers        ours alone

Servers take turns, each with the same requests; docs/serving.md shows the results. vLLM is
installed as `benchmarks.compare` does.
"""

import argparse
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.compare import checkpoint, quiet
from benchmarks.compare.benchmark import TINY_SCALE, settings_for
from benchmarks.compare.environments import OURS, Peer, folder
from benchmarks.compare.metrics import figures as offline_figures
from benchmarks.compare.passes import one_pass, requests_of
from benchmarks.compare.servers import load
from benchmarks.compare.servers.server import KINDS, Server, python_of
from benchmarks.compare.session import Session
from benchmarks.compare.workloads import Scale
from benchmarks.registry import Benchmark, Figures, flag
from jax_engine.commands.bench.benchmark_request import BenchmarkRequest
from jax_engine.models.registry import config_from_hf
from jax_engine.tokenization.tokenizer import load_tokenizer

WHOLE = "_whole"  # requests that do not stream
GENERATE = Peer("LLM.generate", "ours_generate.py")
OTHERS = [name for name in KINDS if name != OURS]
type Table = dict[str, dict[str, Any]]


def started(args: argparse.Namespace, settings: dict[str, Any]) -> tuple[dict[str, Server], Table]:
    """Running servers and their starts. The first start, which fills caches, is not measured."""
    running, starts = dict[str, Server](), dict[str, Any]()
    for name in (OURS, *args.servers):
        python, log = python_of(KINDS[name]), folder() / "logs" / f"server-{name}.log"
        seconds = []
        for number in range(args.starts + 1):
            if name in running:
                running[name].close()
            running[name] = Server(KINDS[name], python, settings, log)
            if number or not args.starts:
                seconds.append(running[name].ready_s)
            load.run(running[name], load.w1(_scale(args), 0)[:1])  # compiles what a start compiles
        starts[name] = {"warm_ready_s": sorted(seconds)[len(seconds) // 2], "each_s": _row(seconds)}
        print(f"  {name}: ready after {seconds} s", flush=True)
    return running, starts


def _scale(args: argparse.Namespace) -> Scale:
    return TINY_SCALE if args.smoke else Scale()


def _settle(args: argparse.Namespace) -> None:
    if not args.smoke:
        quiet.settle()


def _row(values: list[float]) -> str:
    return " ".join(f"{one:g}" for one in values)


def measure_w1(args: argparse.Namespace, running: dict[str, Server], offline: Session) -> Table:
    """W1 over HTTP and through LLM.generate, taking turns; medians of the passes."""
    scale, names = _scale(args), ["generate"]
    for name in running:
        names += [name, name + WHOLE]
    passes = {name: list[dict[str, Any]]() for name in names}
    for turn in range(args.runs + 1):
        for name in passes if turn % 2 else reversed(passes):
            _settle(args)
            if name == "generate":
                jobs = requests_of("W1", scale, turn)
                answer, others = one_pass(offline, jobs)
                speed = offline_figures(jobs, answer)["output_tokens_per_s"]
                found = {"output_throughput": speed, "others_cores": round(others, 3)}
            elif name.endswith(WHOLE):
                found = load.run_whole(running[name.removesuffix(WHOLE)], load.w1(scale, turn, 1))
            else:
                found = load.run(running[name], load.w1(scale, turn))
            if turn:
                passes[name].append(found)
            print(f"  W1 {name}: {found['output_throughput']} tokens/s", flush=True)
    table = {name: _medians(rows) for name, rows in passes.items()}
    for name, row in table.items():
        mine = passes[OURS + WHOLE] if name.endswith(WHOLE) else passes[OURS]
        pairs = zip(mine, passes[name], strict=True)
        shares = [a["output_throughput"] / b["output_throughput"] for a, b in pairs]
        row["ours_over_this"] = round(float(np.median(shares)), 3)
        row["each_pass_tokens_per_s"] = _row([one["output_throughput"] for one in passes[name]])
    return table


def _medians(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The median of each figure; the most, where loads or failures are counted."""
    most = {"failed", "others_cores", "health_max_ms"}
    return {
        key: round(float((np.max if key in most else np.median)([one[key] for one in rows])), 3)
        for key in rows[0]
        if key != "errors"
    }


def measure_rates(args: argparse.Namespace, running: dict[str, Server]) -> dict[str, Table]:
    """W1's lengths as Poisson arrivals: for each rate, figures of each server."""
    found: dict[str, Table] = {}
    for server in running.values():  # what is not compiled yet
        for rate in (float("inf"), args.rates[len(args.rates) // 2]):
            load.run(server, load.shapes_like_w1(args.requests, _scale(args), 99), rate)
    for number, rate in enumerate(args.rates):
        asks = load.shapes_like_w1(args.requests, _scale(args), number)
        rows = found[f"{rate:g}"] = {}
        for name in running if number % 2 else reversed(running):
            _settle(args)
            rows[name] = load.run(running[name], asks, rate)
            print(f"  {rate:g} a second, {name}: {rows[name]}", flush=True)
    return found


def measure_beside_prompts(args: argparse.Namespace, running: dict[str, Server]) -> Table:
    """Streams beside long prompts, taking turns; medians of the passes."""
    passes = {name: list[dict[str, Any]]() for name in running}
    for turn in range(args.runs + 1):
        for name in passes if turn % 2 else reversed(passes):
            _settle(args)
            found = load.run_beside_prompts(running[name], _scale(args), turn)
            if turn:
                passes[name].append(found)
    found = {name: _medians(rows) for name, rows in passes.items()}
    print(f"  beside long prompts: {found}", flush=True)
    return found


def measure_streams(args: argparse.Namespace, running: dict[str, Server]) -> Table:
    """Many short requests, all open at once."""
    rng = np.random.default_rng(5)
    prompts = rng.integers(3, _scale(args).vocab_size, size=(args.streams, 8)).tolist()
    asks = [BenchmarkRequest(prompt, 8, 8) for prompt in prompts]
    found = {}
    for name, server in running.items():
        _settle(args)
        found[name] = load.run(server, asks)
    print(f"  {args.streams} streams: {found}", flush=True)
    return found


def run(args: argparse.Namespace) -> Iterator[Figures]:
    with tempfile.TemporaryDirectory() as scratch:
        model = tiny(Path(scratch) / "tiny") if args.smoke else checkpoint_with_tokenizer()
        config = config_from_hf(json.loads((model / "config.json").read_text("utf-8")))
        settings = settings_for(config, model, args.dtype, args.smoke)
        running, starts = started(args, settings)
        offline = None
        try:
            yield {"dtype": args.dtype, "goodput": load.GOODPUT, "streams": args.streams}
            yield {"start": starts}
            python = python_of(KINDS[OURS])
            offline = Session(GENERATE, python, settings, folder() / "logs" / "generate.log")
            offline.pause()
            yield {"W1": measure_w1(args, running, offline)}
            offline.close()
            yield {"rates": measure_rates(args, running)}
            yield {"beside_prompts": measure_beside_prompts(args, running)}
            yield {"open_streams": measure_streams(args, running)}
        finally:
            for one in (*running.values(), offline):
                if one is not None:
                    one.close()


def headline(args: argparse.Namespace, result: Figures) -> dict[str, str]:
    """The row of docs/measured.md."""
    w1, start = result["W1"], result["start"]
    mine = w1[OURS]
    text = f"{mine['output_throughput']:.0f} output tokens/s, "
    text += f"{100 * w1['generate']['ours_over_this']:.0f} % of LLM.generate as streams, "
    whole = w1[OURS + WHOLE]["output_throughput"] / w1["generate"]["output_throughput"]
    text += f"{100 * whole:.0f} % as whole answers"
    if "vllm" in w1:
        text += f", {w1['vllm']['ours_over_this']:.2f}x {KINDS['vllm'].title}"
    text += f"; ready after {start[OURS]['warm_ready_s']} s"
    return {f"W1 over HTTP in {result['dtype']}": text}


def checkpoint_with_tokenizer() -> Path:
    """The default model in Hugging Face layout, with what servers need to read text."""
    directory = checkpoint.hf_directory(folder() / "checkpoints")
    if not (directory / "tokenizer.json").exists():
        load_tokenizer(None).hugging_face.save_pretrained(directory)
    return directory


def tiny(model: Path) -> Path:
    """A tiny model with a tokenizer."""
    from tests.support.byte_tokenizer import save_byte_tokenizer

    checkpoint.tiny_directory(model)
    save_byte_tokenizer(model)
    return model


BENCHMARK = Benchmark(
    run,
    flags=(
        flag("--servers", nargs="*", choices=OTHERS, default=OTHERS, help="beside ours"),
        flag("--dtype", choices=("bfloat16", "float32"), default="bfloat16"),
        flag("--runs", type=int, default=3, help="measured passes of W1 (%(default)s)"),
        flag("--starts", type=int, default=2, help="measured starts (%(default)s)"),
        flag("--rates", type=float, nargs="+", default=[2.0, 4.0, 6.0, 10.0], help="a second"),
        flag("--requests", type=int, default=64, help="at each rate (%(default)s)"),
        flag("--streams", type=int, default=1000, help="open at once (%(default)s)"),
    ),
    smoke={
        "servers": [], "runs": 1, "starts": 0, "rates": [50.0], "requests": 16, "streams": 40,
    },
    headline=headline,
    files=lambda args, found: {f"servers_{args.dtype}": found},
)  # fmt: skip
