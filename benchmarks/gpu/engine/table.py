"""The engine's results on a card as Markdown: ratios first, then every figure."""

from typing import Any

from benchmarks.gpu.engine.expected import AIMS, EXPECTED
from benchmarks.markdown import Column, grid, named, table, words

# The ratio that each measurement is about.
RATIOS = (
    ("decode", "percent_of_bound", "one stream, % of the weights' bandwidth bound"),
    ("prefill", "percent_of_matrix_rate", "prompts, % of the matrix rate"),
    ("throughput", "percent_of_bound", "all running, % of what the card's limits allow"),
    ("first token", "p50_over_bound", "first token of a lone prompt, times its bound"),
    ("transformers", "ours_over_theirs", "tokens/s, times transformers' continuous batching"),
)


def engine_lines(models: dict[str, Any]) -> list[str]:
    """All of it, a line each."""
    lines = [_ratios(models)]
    for name, parts in models.items():
        lines += ["", f"## {name}"]
        for part, found in parts.items():
            lines += ["", f"### {part}", "", *_part(part, found)]
    return lines


def _ratios(models: dict[str, Any]) -> str:
    """One row a ratio and model: measured, expected, aim."""
    rows = []
    for name, parts in models.items():
        for part, key, title in RATIOS:
            if key in parts.get(part, {}):
                expected, aim = EXPECTED.get((name, part, key)), AIMS.get((part, key))
                rows.append((name, title, parts[part][key], expected, aim))
        for case, found in parts.get("host time hidden", {}).items():
            title = f"host time hidden, {case.replace('_', ' ')}, %"
            rows.append((name, title, found["hidden_percent"], None, None))
    keys = ("model", "what", "measured", "expected", "aim")
    columns = [Column(key, key, left=key in ("model", "what")) for key in keys]
    return table(columns, [dict(zip(keys, row, strict=True)) for row in rows])


def _part(part: str, found: dict[str, Any]) -> list[str]:
    if part == "profile":
        return [line for case, one in found.items() for line in _profile(case, one)]
    if part == "graphs":
        return [line for case, one in found.items() for line in _ways(case, one)]
    rows = []
    for key, value in found.items():
        inner = value.items() if isinstance(value, dict) else [("", value)]
        for name, figure in inner:
            label = f"{key}: {name}" if name else key
            shown = f"{figure:,}" if isinstance(figure, (int, float)) else figure
            rows.append((label.replace("_", " "), shown))
    return [grid(("figure", "value"), rows)]


def _profile(case: str, found: dict[str, Any]) -> list[str]:
    said = (
        f"{case}: {found['device_ms']} ms on the device, {found['without_command_buffers_ms']} "
        "without command buffers, as profiled"
    )
    columns = [
        words("part"),
        Column("ms", "ms"),
        Column("bound, ms", lambda row: row.get("bound_ms")),
    ]
    return [said, "", table(columns, named(found["parts"])), ""]


def _ways(case: str, found: dict[str, Any]) -> list[str]:
    """Each way to make graphs: milliseconds a step, and until the host has started one."""
    heads = {
        "ms": "ms",
        "ms to enqueue": "enqueue_ms",
        "behind others": "queued_ms",
        "s to compile": "compile_s",
    }
    columns = [Column(head, lambda row, key=key: row.get(key)) for head, key in heads.items()]
    return [table([words(case), *columns], named(found)), ""]
