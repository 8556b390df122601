"""What compilers report of the kernels and steps that docs/gpu.md shows. It needs no GPU.

    python -m benchmarks compiled_gpu --adapters --save     the cases with adapters

`python -m pallas_kernels.aot` compiles the cases, in the environment of `make aot`.
"""

import argparse
import itertools
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.markdown import grid
from benchmarks.registry import Benchmark, Figures, flag
from benchmarks.report import ROOT, load_result
from pallas_kernels.aot.thunks import Starts

NAME, ADAPTERS = "compiled_gpu", "compiled_adapters"
PYTHON = ROOT / ".venv-aot" / "bin" / "python"
EXPERTS = {"xla": "`ragged_dot`", "mosaic": "the Mosaic kernel"}
EXPERT_ROWS, CODES_TOKENS = (64, 4096), (16, 1536)
CODES = {
    "int8-g0": "int8, a scale a row",
    "int8-g16": "int8, groups of 16",
    "int8-g64": "int8, groups of 64",
    "int4-g32": "4 bits, groups of 32",
    "int4+-g32": "4 bits, groups of 32, minimums",
    "int4-g64": "4 bits, groups of 64",
    "int4+-g64": "4 bits, groups of 64, minimums",
    "int4-g128": "4 bits, groups of 128",
    "fp8-g128": "FP8, groups of 128",
    "fp8-fp8-g128": "FP8 by FP8, groups of 128",
}
STEPS = {
    "llama-3.1-8b": "Llama-3.1-8B, bfloat16",
    "llama-3.1-8b-awq": "Llama-3.1-8B in AWQ's form (4 bits, groups of 128, minimums)",
    "olmoe-1b-7b": "OLMoE 1B-7B, bfloat16",
}
ADAPTED, TWIN = "-adapters", "XLA's twin"  # steps with eight adapters of rank 16
PRODUCTS = {  # and the ranks of their adapters
    "qkv": ("q, k and v", (16, 64)),
    "gate_up": ("gate and up", (16, 64)),
    "down": ("down", (16, 64)),
    "experts_gate_up": ("gate and up of 128 experts", (16,)),
    "experts_down": ("down of 128 experts", (16,)),
}
ADAPTER_TOKENS = (32, 512)
ADAPTED_STEPS = {"llama-3.1-8b": "Llama-3.1-8B", "olmoe-1b-7b": "OLMoE 1B-7B"}
GRAPHS = ("llama-3.1-8b", "olmoe-1b-7b")
_RESOURCES = ("launches of a layer", "graphs of a step", "temporaries")
STEP_ROWS, CARDS = (1, 32), ("h200", "a100")
ONE_GRAPH = "-one-graph"  # a suffix of models whose step is one CUDA graph


def globs() -> list[str]:
    """The names of all cases that the tables show."""
    return [
        *(f"grouped_product/*/{rows}" for rows in EXPERT_ROWS),
        *(f"quantized_matmul/mosaic/{kind}-{tokens}" for kind in CODES for tokens in CODES_TOKENS),
        *(f"step/{model}/decode-{rows}" for model in STEPS for rows in STEP_ROWS),
        *(f"step/{model}{ONE_GRAPH}/decode-{rows}" for model in GRAPHS for rows in STEP_ROWS),
    ]


def globs_with_adapters() -> list[str]:
    """The names of all cases of the tables of adapters."""
    return [
        *(
            f"low_rank/mosaic/{product}-r{rank}-{tokens}"
            for product, (_, ranks) in PRODUCTS.items()
            for rank in ranks
            for tokens in ADAPTER_TOKENS
        ),
        *(
            f"step/{model}{suffix}/decode-{rows}"
            for model in ADAPTED_STEPS
            for suffix in ("", ADAPTED)
            for rows in STEP_ROWS
        ),
    ]


def compile_all(
    names: list[str], module: str = "jax_engine.worker.aot_cases", targets: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """All outcomes of some cases, as `python -m pallas_kernels.aot --json` writes them.

    Args:
        module: the module that has the cases, beside the kernels'.
        targets: the GPUs to compile for; empty: an H200 and an A100.

    Raises:
        SystemExit: the environment is missing, or a case fails.
    """
    if not PYTHON.exists():
        sys.exit("the compilers are not installed: run `make .venv-aot/.installed` first")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "outcomes.json"
        chosen = [word for glob in names for word in ("--only", glob)]
        chosen += [word for target in targets for word in ("--target", target)]
        command = [PYTHON, "-m", "pallas_kernels.aot", "--cases", module]
        done = subprocess.run([*command, *chosen, "--json", file], cwd=ROOT, check=False)
        if done.returncode:
            sys.exit("a case failed: the lines above say which")
        found: list[dict[str, Any]] = json.loads(file.read_text())
        return found


def resources(outcome: dict[str, Any]) -> dict[str, Any]:
    """The most that any kernel of a program takes, its temporary memory, and its launches."""
    kernels = outcome["kernels"]
    return {
        "registers": max(kernel["registers"] for kernel in kernels),
        "spilled_bytes": sum(kernel["spilled"] for kernel in kernels),
        "shared_bytes": max(kernel["shared"] for kernel in kernels),
        "copies": len(outcome["copies"]),
        "temporary_mb": round(outcome["temporary"] / 1e6, 1),
        "launches": outcome["launches"],
        "starts": Starts(*outcome["starts"])._asdict(),
    }


def _case(card: str, name: str, file: str = NAME) -> dict[str, Any]:
    found: dict[str, Any] = load_result(file)["result"][f"{card} {name}"]
    return found


def _table(header: list[str], rows: list[list[str]], file: str = NAME) -> str:
    option = " --adapters" * (file == ADAPTERS)
    said = f"{load_result(file)['date']}, by `python -m benchmarks {NAME}{option}`."
    return f"{said}\n\n{grid(header, rows)}"


def experts_table() -> str:
    """Products of experts, by backend and card."""
    header = ["", "registers", "spills", "shared memory"]
    header += [f"temporaries, {rows:,} rows" for rows in EXPERT_ROWS]
    lines = []
    for backend, card in (("xla", "h200"), ("xla", "a100"), ("mosaic", "h200")):
        few, many = (_case(card, f"grouped_product/{backend}/{rows}") for rows in EXPERT_ROWS)
        cells = [f"{EXPERTS[backend]}, {card.upper()}", few["registers"], few["spilled_bytes"]]
        cells += [f"{few['shared_bytes'] / 1024:.0f} KiB"]
        lines.append([*map(str, cells), *(f"{one['temporary_mb']:,} MB" for one in (few, many))])
    return _table(header, lines)


def codes_table() -> str:
    """Registers and shared memory of products with quantised weights on an H200."""
    header = ["", *(f"registers, {tokens:,} tokens" for tokens in CODES_TOKENS)]
    header += [f"shared memory, {tokens:,} tokens" for tokens in CODES_TOKENS]
    lines = []
    for kind, words in CODES.items():
        both = [_case("h200", f"quantized_matmul/mosaic/{kind}-{n}") for n in CODES_TOKENS]
        cells = [words, *(str(one["registers"]) for one in both)]
        lines.append([*cells, *(f"{one['shared_bytes'] / 1024:.0f} KiB" for one in both)])
    return _table(header, lines)


def adapters_table() -> str:
    """Products with eight adapters on an H200."""
    header = ["a product with eight adapters", "registers", "spills"]
    header += [f"temporaries, {tokens} tokens" for tokens in ADAPTER_TOKENS]
    lines = []
    for product, (words, ranks) in PRODUCTS.items():
        for rank in ranks:
            few, many = (
                _case("h200", f"low_rank/mosaic/{product}-r{rank}-{tokens}", ADAPTERS)
                for tokens in ADAPTER_TOKENS
            )
            cells = [f"{words}, rank {rank}", str(few["registers"]), str(few["spilled_bytes"])]
            lines.append([*cells, *(f"{one['temporary_mb']:,} MB" for one in (few, many))])
    return _table(header, lines, ADAPTERS)


def adapted_steps_table() -> str:
    """Decode steps with adapters beside those without."""
    header = ["a decode step of", *_RESOURCES]
    lines = []
    cards = (("h200", "the kernels"), ("a100", TWIN))
    for (model, name), (card, by), rows in itertools.product(
        ADAPTED_STEPS.items(), cards, STEP_ROWS
    ):
        for suffix, words in (("", "without adapters"), (ADAPTED, f"with, by {by}")):
            found = _case(card, f"step/{model}{suffix}/decode-{rows}", ADAPTERS)
            of = f"{name}, {rows} sequence{'s' * (rows > 1)} on an {card.upper()}, {words}"
            starts = found["starts"]
            cells = [found["launches"], starts["graphs"]]
            lines.append([of, *map("{:,}".format, cells), f"{found['temporary_mb']:,} MB"])
    return _table(header, lines, ADAPTERS)


def steps_table() -> str:
    """Temporary memory of whole decode steps."""
    return _steps(lambda found: f"{found['temporary_mb']:,} MB")


def launches_table() -> str:
    """Kernels and copies that a layer of a decode step starts."""
    return _steps(lambda found: str(found["launches"]))


def graphs_table() -> str:
    """CUDA graphs that the host launches in a decode step, and how many it updates before."""
    header = ["a decode step on an H200 of", "by layers: graphs", "updated", "one graph", "updated"]
    lines = []
    for model in GRAPHS:
        for rows in STEP_ROWS:
            cells = [f"{STEPS[model]}, {rows} sequence{'s' * (rows > 1)}"]
            for suffix in ("", ONE_GRAPH):
                starts = _case("h200", f"step/{model}{suffix}/decode-{rows}")["starts"]
                cells += [str(starts["graphs"]), str(starts["updates"])]
            lines.append(cells)
    return _table(header, lines)


def layer_launches() -> str:
    """Kernels and copies that a layer of the 8B starts on Hopper, for one sequence."""
    return str(_case("h200", "step/llama-3.1-8b/decode-1")["launches"])


def adapted_launches() -> str:
    """What adapters add to the kernels and copies of a layer of the 8B on Hopper."""
    with_some, without = (
        _case("h200", f"step/llama-3.1-8b{suffix}/decode-32", ADAPTERS)["launches"]
        for suffix in (ADAPTED, "")
    )
    return str(with_some - without)


def _steps(cell: Callable[[dict[str, Any]], str]) -> str:
    header = [
        "a decode step of",
        *(f"{rows} on an {c.upper()}" for c in CARDS for rows in STEP_ROWS),
    ]
    lines = []
    for model, words in STEPS.items():
        cells = [words]
        for card in CARDS:
            for rows in STEP_ROWS:
                found = load_result(NAME)["result"].get(f"{card} step/{model}/decode-{rows}")
                cells.append("" if found is None else cell(found))
        lines.append(cells)
    return _table(header, lines)


def run(args: argparse.Namespace) -> Iterator[Figures]:
    for one in compile_all(globs_with_adapters() if args.adapters else globs()):
        yield {f"{one['target']} {one['case']}": resources(one)}


BENCHMARK = Benchmark(
    run,
    flags=(flag("--adapters", action="store_true", help="the cases with adapters"),),
    needs="the compilers of `make aot`",
    files=lambda args, found: {ADAPTERS if args.adapters else NAME: found},
)
