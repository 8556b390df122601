"""What calls of `benchmarks.gpu` run, in this order: a process each, each with its own seconds.

The seconds are limits. What a step leaves goes to those that follow. What decides most comes first,
after what the other steps need.
"""

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

SMALL, LARGE = "Llama-3.2-1B", "Llama-3.1-8B"
CHILD = "benchmarks.gpu.engine.child"
STREAM = ("decode", "first token", "prefill")
ENGINE = (
    *("decode", "host profile", "first token", "prefill"),
    *("host time hidden", "throughput", "profile"),
)
BEST = "{graphs}"  # stands for the best of `graphs.VARIANTS`, as the step "1B" found it
LOG, TABLE = "{log}", "{output}"  # stand for a log beside the results, and for their folder


@dataclass(frozen=True)
class Step:
    """One process.

    Attributes:
        command: A module and its arguments. It gets `--limit`, `--card` and `--smoke` beside them.
        seconds: Its limit. It is told to begin nothing in the last tenth of it.
        needs: Packages without which it cannot run.
        in_smoke: Whether a smoke run has it: not if another step is the same in miniature.
    """

    name: str
    seconds: int
    command: tuple[str, ...]
    needs: tuple[str, ...] = ()
    in_smoke: bool = True


_KERNELS = ("jax", "jaxlib", "numpy", "jaxtyping")
_ENGINE = (
    *_KERNELS,
    *("flax", "huggingface_hub", "jinja2", "msgspec", "safetensors", "tokenizers", "tqdm"),
)
PLAN = (
    Step("card", 20, ("benchmarks.gpu.card",), needs=_KERNELS),
    Step("1B", 145, (CHILD, SMALL, "graphs", *ENGINE), needs=_ENGINE),
    Step("8B", 140, (CHILD, LARGE, *ENGINE, "--graphs", BEST), needs=_ENGINE, in_smoke=False),
    Step("8B int4", 75, (CHILD, LARGE, *STREAM, "--codes", "int4", "--graphs", BEST),
         needs=_ENGINE),
    Step("attention", 60, ("benchmarks.gpu.kernels", "beside"), needs=_KERNELS),
    Step("torch.compile 1B", 30, ("benchmarks.gpu.torch_decode", SMALL), needs=("torch",)),
    Step("torch.compile 8B", 35, ("benchmarks.gpu.torch_decode", LARGE), needs=("torch",),
         in_smoke=False),
    Step("PyTorch's attention", 15, ("benchmarks.gpu.with_torch",), needs=("torch", *_KERNELS)),
)  # fmt: skip
# For the time that a second call has.
SECOND = (
    Step("tests", 60, ("benchmarks.gpu.checks", "--log", LOG),
         needs=(*_KERNELS, "pytest", "hypothesis")),
    Step("batch invariance", 50, ("benchmarks.gpu.engine.invariant", SMALL), needs=_ENGINE),
    Step("8B fp8", 45, (CHILD, LARGE, *STREAM, "--codes", "fp8", "--graphs", BEST),
         needs=_ENGINE, in_smoke=False),
    Step("new kernels", 55, ("benchmarks.gpu.kernels", "experts", "new", "products"),
         needs=_KERNELS),
    Step("tuning", 20, ("benchmarks.tune_kernels", "--output", TABLE), needs=_KERNELS),
    Step("sanitizer", 20, ("benchmarks.gpu.sanitizer",), needs=_KERNELS),
)  # fmt: skip
# For another call, by name: they decide less.
MORE = (
    Step("other shapes", 300, ("benchmarks.gpu.kernels", "rest"), needs=_KERNELS),
    Step("draft model", 90, ("benchmarks.gpu.engine.drafting", SMALL), needs=_ENGINE),
    Step("transformers 1B", 150, ("benchmarks.gpu.engine.peer", SMALL),
         needs=(*_ENGINE, "torch", "transformers")),
    Step("transformers 8B", 200, ("benchmarks.gpu.engine.peer", LARGE),
         needs=(*_ENGINE, "torch", "transformers")),
)  # fmt: skip
STEPS = {step.name: step for step in (*PLAN, *SECOND, *MORE)}
DEFAULT_GRAPHS = "PIECEWISE"
BUDGET = 560  # seconds, of one call


def missing(step: Step) -> list[str]:
    """Packages that a step needs and this Python lacks."""
    return [name for name in step.needs if importlib.util.find_spec(name) is None]


def best_graphs(measured: Mapping[str, Mapping[str, Any]]) -> str:
    """The way to make graphs whose slower side, device or host, is the fastest over all cases.

    Args:
        measured: What the part "graphs" said, by case and way; {} if nothing.
    """

    def cost(way: str) -> float:
        return sum(
            max(case[way]["ms"], case[way]["queued_ms"]) / case[DEFAULT_GRAPHS]["ms"]
            for case in measured.values()
        )

    first = next(iter(measured.values()), {})
    ways = [
        way
        for way in first
        if all("queued_ms" in case.get(way, {}) for case in measured.values())
        and all(DEFAULT_GRAPHS in case for case in measured.values())
    ]
    return min(ways, key=cost, default=DEFAULT_GRAPHS)
