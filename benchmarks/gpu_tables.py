"""Tables of what `bash benchmarks/gpu.sh` measured on an H100 and an H200, for docs/gpu.md."""

import re
from typing import Any

from benchmarks.gpu.engine.expected import AIMS, EXPECTED
from benchmarks.markdown import grid
from benchmarks.report import load_result, machine_in_words

H100 = "gpu/nvidia-h100-80gb-hbm3"
H200 = "gpu/nvidia-h200"
PROFILED, LARGE = "Llama-3.2-1B", "Llama-3.1-8B"
QUANTISED = "quantised weights"

# Rows of the engine's table: the words, and where the results have the figure.
ROWS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("decode, % of the bandwidth bound", ("decode", "percent_of_bound")),
    ("decode, tokens/s", ("decode", "tokens_per_s")),
    ("prefill, % of the matrix rate", ("prefill", "percent_of_matrix_rate")),
    ("256 running, % of the bound", ("throughput", "percent_of_bound")),
    ("256 running, output tokens/s", ("throughput", "output_tokens_per_s")),
    ("first token of a lone prompt, times its bound", ("first token", "p50_over_bound")),
    ("host time hidden, 1 running, %", ("host time hidden", "1_running", "hidden_percent")),
    ("256 running, ms a step, not ahead", ("host time hidden", "256_running", "step_off_ms")),
    ("256 running, ms a step, planned ahead", ("host time hidden", "256_running", "step_on_ms")),
)
# Rows of the H200's table. A cell stays empty where the run had no time for the figure.
H200_ROWS: tuple[tuple[str, tuple[str, ...]], ...] = (
    *(row for row in ROWS if row[1][0] != "host time hidden"),
    *(
        (f"{count} running, ms a step, {words}", ("host time hidden", f"{count}_running", key))
        for count in (1, 256)
        for words, key in (
            ("on the device", "device_ms"),
            ("not ahead", "step_off_ms"),
            ("planned ahead", "step_on_ms"),
        )
    ),
)
# What the page expected beside the ratios of `EXPECTED`.
ALSO_EXPECTED: dict[tuple[str, ...], float] = {
    ("Llama-3.2-1B", "throughput", "output_tokens_per_s"): 34_000,
    ("Llama-3.1-8B", "throughput", "output_tokens_per_s"): 8_000,
}
# Columns of the kernels' tables: a method, and its name there.
METHODS = {
    "triton": "Triton",
    "mosaic": "Mosaic",
    "xla": "XLA",
    "FlashAttention 3, paged": "FlashAttention 3",
    "torch SDPA": "PyTorch, SDPA",
    "torch FlexAttention": "PyTorch, FlexAttention",
}
OURS = ("triton", "mosaic")  # a shape that no one of them ran says nothing of them
# Ends of names of functions in a profile of the host, and what they do.
HOST_PARTS = {
    "__call__": "calls of compiled programs",
    "_value": "waiting for the drawn tokens",
}
SHAPE = re.compile(r"(?P<sequences>\d+) x (?P<new>\d+)\+(?P<old>\d+), (?P<layer>.*)")


def engine_table() -> str:
    """Each model's figures, measured and as they were expected, and the aims."""
    saved = load_result(H100)
    expected = {**EXPECTED, **ALSO_EXPECTED}
    header = [""]
    for model in saved["models"]:
        header += [f"{model}: measured", "expected"]
    rows = []
    for words, keys in ROWS:
        cells = [words]
        for model, found in saved["models"].items():
            before = expected.get((model, *keys))
            cells += [_number(_at(found, keys)), "" if before is None else _number(before)]
        rows.append([*cells, AIMS.get((keys[0], keys[1]), "")])
    return f"{_said(saved)}\n\n{grid([*header, 'aim'], rows)}"


def engine_h200_table() -> str:
    """Each model's figures on the H200."""
    saved = load_result(H200)
    models = [name for name, found in saved["models"].items() if "decode" in found]
    rows = []
    for words, keys in H200_ROWS:
        # A bound of bfloat16's bytes says nothing of codes.
        names = [name for name in models if keys[-1] != "percent_of_bound" or " " not in name]
        figures = {name: _found(saved["models"][name], keys) for name in names}
        cells = [figures.get(name) for name in models]
        rows.append([words, *("" if one is None else _number(one) for one in cells)])
    return f"{_said(saved)}\n\n{grid(['', *models], rows)}"


def host_table() -> str:
    """Where the host's time of a step goes, by running requests."""
    saved = load_result(H200)
    profiles = {
        f"{name}, {count.removesuffix('_running')} running": found
        for name, model in saved["models"].items()
        for count, found in model.get("host profile", {}).items()
    }
    rows = [[words] for words in ("a step", *HOST_PARTS.values(), "everything else")]
    for found in profiles.values():
        parts = [
            sum(ms for function, ms in found.items() if function.endswith(end))
            for end in HOST_PARTS
        ]
        for row, value in zip(
            rows, [found["step_ms"], *parts, found["step_ms"] - sum(parts)], strict=True
        ):
            row.append(f"{value:.2f}")
    return f"{_said(saved)}\n\n{grid(['ms', *profiles], rows)}"


def graphs_table() -> str:
    """Ways to make CUDA graphs of the small model's decode step: on the device, and to enqueue,
    with nothing before it and behind two steps that still run."""
    saved = load_result(H200)
    cases = saved["models"][PROFILED]["graphs"]
    header, rows = [PROFILED], []
    for case in cases:
        header += [f"{case}, ms", "to enqueue", "behind others"]
    for way in next(iter(cases.values())):
        figures = [found[way] for found in cases.values()]
        keys = "ms", "enqueue_ms", "queued_ms"
        cells = [_milliseconds(one, key) for one in figures for key in keys]
        rows.append([way, *cells])
    return f"{_said(saved)}\n\n{grid(header, rows)}"


def parts_table() -> str:
    """Parts of the small model's steps beside their bounds, and the whole steps."""
    return _parts(load_result(H100), PROFILED)


def parts_h200_table() -> str:
    """The same of the large model, on the H200."""
    return _parts(load_result(H200), LARGE)


def _parts(saved: dict[str, Any], model: str) -> str:
    cases = saved["models"][model]["profile"]
    header = [model]
    for case in cases:
        header += [f"{_grouped(case)}, ms", "bound, ms"]
    parts = dict.fromkeys(part for found in cases.values() for part in found["parts"])
    rows = []
    for part in parts:
        cells = [part]
        for found in cases.values():
            figures = found["parts"].get(part, {})
            cells += [_milliseconds(figures, "ms"), _milliseconds(figures, "bound_ms")]
        rows.append(cells)
    for words, key in (
        ("the step, not profiled", "device_ms"),
        ("without command buffers", "without_command_buffers_ms"),
    ):
        ends = [cell for found in cases.values() for cell in (_milliseconds(found, key), "")]
        rows.append([words, *ends])
    return f"{_said(saved)}\n\n{grid(header, rows)}"


def kernels_table() -> str:
    """Attention of one layer: each method's microseconds and share of the limit."""
    return _kernels(load_result(H100))


def kernels_h200_table() -> str:
    """The same on the H200, beside kernels that others wrote."""
    return _kernels(load_result(H200))


def _kernels(saved: dict[str, Any]) -> str:
    rows = [row for row in saved["rows"] if row["part"] != QUANTISED]
    shapes = {row["shape"] for row in rows if row["method"] in OURS}
    rows = [row for row in rows if row["shape"] in shapes]
    layers = dict.fromkeys(_shape(row["shape"])["layer"] for row in rows)
    (tests,) = saved["tests"].values()
    said = (
        f"{_said(saved)} One layer: {'; '.join(layers)}. The property tests on the device: {tests}."
    )
    found = _by_shape(rows)
    named = {_attention(shape, len(layers) > 1): methods for shape, methods in found.items()}
    return _methods(said, named)


def products_table() -> str:
    """Products with quantised weights: each method's microseconds and share of the limit."""
    saved = load_result(H100)
    found = _by_shape([row for row in saved["rows"] if row["part"] == QUANTISED])
    return _methods(_said(saved), {_product(shape): one for shape, one in found.items()})


def _by_shape(rows: list[dict[str, Any]]) -> dict[str, dict[str, dict[str, Any]]]:
    """The last measurement of each shape and method."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(row["shape"], {})[row["method"]] = row
    return found


def _methods(said: str, found: dict[str, dict[str, dict[str, Any]]]) -> str:
    methods = [name for name in METHODS if any(name in one for one in found.values())]
    header = ["microseconds (% of the limit)", "limit", *(METHODS[name] for name in methods)]
    rows = []
    for words, one in found.items():
        limit = min(row["predicted_us"] for row in one.values())
        cells = [
            f"{_number(row['us'])} ({row['percent_of_limit']})" if row else ""
            for row in (one.get(name) for name in methods)
        ]
        rows.append([words, _number(limit), *cells])
    return f"{said}\n\n{grid(header, rows)}"


def _shape(name: str) -> dict[str, str]:
    found = SHAPE.fullmatch(name)
    if found is None:
        raise ValueError(f"{name!r} is no shape of attention of sequences of one length")
    return found.groupdict()


def _attention(name: str, with_layer: bool) -> str:
    """`64 x 1+4095, heads 32/8 x 128, blocks of 16` in words."""
    one = _shape(name)
    new, old, count = (int(one[key]) for key in ("new", "old", "sequences"))
    what = f"decode, {count} x {new + old:,}" if new == 1 else f"prompt, {count} x {new:,}"
    what += f" after {old:,}" * (new > 1 and old > 0)
    return what + f", {one['layer']}" * with_layer


def _product(name: str) -> str:
    """`1 x 4096, int8 [4096, 4096], a scale a row` in words."""
    shape, rest = name.split(", ", 1)
    tokens = int(shape.split(" x ")[0])
    return f"{tokens:,} token{'s' * (tokens > 1)}, {_grouped(rest)}"


def _said(saved: dict[str, Any]) -> str:
    versions = saved["versions"]
    return (
        f"{saved['date']}, {machine_in_words(saved['machine'])}, JAX {versions['jax']}, "
        f"commit {versions['commit']}."
    )


def _at(found: dict[str, Any], keys: tuple[str, ...]) -> float:
    value: Any = found
    for key in keys:
        value = value[key]
    return float(value)


def _found(found: dict[str, Any], keys: tuple[str, ...]) -> float | None:
    try:
        return _at(found, keys)
    except KeyError:
        return None


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def _milliseconds(figures: dict[str, float], key: str) -> str:
    return f"{figures[key]:.3f}" if key in figures else ""


def _grouped(text: str) -> str:
    return re.sub(r"\b\d{4,}\b", lambda number: f"{int(number[0]):,}", text)
