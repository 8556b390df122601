"""Tables of docs/gpu.md about steps on 2, 4 and 8 GPUs."""

from typing import Any

from benchmarks.gpu.engine.limits import BYTES
from benchmarks.markdown import grid
from benchmarks.report import load_result
from benchmarks.several_gpus import (
    ASSUMPTIONS,
    CARDS,
    MODELS,
    NAME,
    ONE_SHOT,
    SIZES,
    compiled_case,
    spec_of,
)
from jax_engine.parallel.partition import divided
from pallas_kernels.aot.targets import TARGETS

STEP = "decode-1"  # whose memory and launches are shown
WORDS = {
    "decode-1": "1 sequence",
    "decode-64": "64 sequences",
    "decode-256": "256 sequences",
    "prompt-2048": "a prompt of 2,048",
}


def compiled_table() -> str:
    """What a step of one sequence takes of each device."""
    header = ["", "weights, GB", "temporaries, MB", "exchanges", "MB received"]
    header += ["kernels a layer (with the kernel)", "host starts (with it)"]
    header += [f"cache on an {words}, tokens" for _, words in CARDS.values()]
    lines = []
    for model, size in _rows():
        given = _compiled(model, size)
        kernel = _compiled(model, size, ONE_SHOT)
        if given is None:
            continue
        said = given["collectives"]
        cells = [
            f"{given['weight_bytes'] / 1e9:.1f}",
            f"{given['temporary_bytes'] / 1e6:.0f}",
            str(sum(one["count"] for one in said.values())),
            f"{_received(given, size) / 1e6:.1f}",
            f"{given['launches']}" + (f" ({kernel['launches']})" if kernel else ""),
            f"{given['starts']['host']}" + (f" ({kernel['starts']['host']})" if kernel else ""),
            *(_tokens_that_fit(model, size, given, card) for card in CARDS),
        ]
        lines.append([_words(model, size), *cells])
    return _table(header, lines)


def predicted_table(card: str) -> str:
    """Tokens a second by the roofline on one card, with both kinds of exchanges."""
    found = load_result(NAME)["result"]["predicted"]
    header = [f"tokens/s on {card.upper()}s", *WORDS.values()]
    lines = []
    for model, size in [("llama-3.1-8b", 1), *_rows()]:
        for suffix, words in (("", ", XLA's exchanges" * (size > 1)), (ONE_SHOT, ", the kernel's")):
            cells = [
                _span(found.get(f"{card} mesh/{model}-x{size}{suffix}/{step}"), suffix)
                for step in WORDS
            ]
            if any(cells):
                lines.append([_words(model, size) + words, *cells])
    return _table(header, lines)


def one_gpu_table() -> str:
    """The roofline beside what was measured on one H200."""
    header = ["Llama-3.1-8B on one H200", "predicted, ms", "measured, ms", "measured / predicted"]
    keys = "step_ms", "measured_ms", "measured_over_predicted"
    found = load_result(NAME)["result"]["one_gpu"]
    lines = [[WORDS[step], *(f"{one[key]:.2f}" for key in keys)] for step, one in found.items()]
    return _table(header, lines)


def kernel_saves() -> str:
    """How many times fewer launches a step of the 8B on 4 GPUs takes of the host, by the kernel."""
    with_it, without = (_compiled("llama-3.1-8b", 4, suffix) for suffix in (ONE_SHOT, ""))
    assert with_it is not None and without is not None
    return f"{without['starts']['host'] / with_it['starts']['host']:.0f}"


def _rows() -> list[tuple[str, int]]:
    return [(model, size) for model in MODELS for size in SIZES]


def _words(model: str, size: int) -> str:
    return f"{MODELS[model]} on {size}"


def _compiled(model: str, size: int, suffix: str = "") -> dict[str, Any] | None:
    compiled = load_result(NAME)["result"]["compiled"]
    try:
        return compiled_case(compiled, "h200", f"mesh/{model}-x{size}{suffix}/{STEP}")
    except KeyError:
        return None


def _received(given: dict[str, Any], size: int) -> float:
    return sum(
        (2 if kind == "all-reduce" else 1) * one["result_bytes"] * (size - 1) / size
        for kind, one in given["collectives"].items()
    )


def _tokens_that_fit(model: str, size: int, given: dict[str, Any], card: str) -> str:
    """How many tokens the KV cache of a card has room for, beside weights and temporaries."""
    share = divided(spec_of(model), size)
    token = sum(
        group.repeats * BYTES * one.num_kv_heads * (one.head_dim + one.value_dim)
        for group in share.groups
        for one in (layer.attention for layer in group.pattern)
    )
    room = ASSUMPTIONS["memory_share"] * TARGETS[card].memory
    room -= given["weight_bytes"] + given["temporary_bytes"]
    return f"{room // token:,.0f}" if room >= token else "does not fit"


def _span(found: dict[str, Any] | None, suffix: str) -> str:
    """From the slow to the fast exchanges; the kernel's other exchanges are taken as slow."""
    if found is None:
        return ""
    slow, fast = (found[words]["tokens_per_s"] for words in ("slow", "fast"))
    if suffix or slow == fast:
        return f"{slow:,.0f}"
    return f"{slow:,.0f} to {fast:,.0f}"


def _table(header: list[str], lines: list[list[str]]) -> str:
    said = f"{load_result(NAME)['date']}, by `python -m benchmarks {NAME}`."
    return f"{said}\n\n{grid(header, lines)}"
