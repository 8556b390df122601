"""The engine's results on a card as Markdown: ratios first, then every figure."""

from typing import Any

from benchmarks.gpu.engine.expected import AIMS, EXPECTED

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
    lines = _ratios(models)
    for name, parts in models.items():
        lines += ["", f"## {name}"]
        for part, found in parts.items():
            lines += ["", f"### {part}", "", *_part(part, found)]
    return lines


def _ratios(models: dict[str, Any]) -> list[str]:
    """One row a ratio and model: measured, expected, aim."""
    lines = ["| model | what | measured | expected | aim |", "|---|---|---:|---:|---:|"]
    for name, parts in models.items():
        for part, key, title in RATIOS:
            if key in parts.get(part, {}):
                expected = EXPECTED.get((name, part, key), "")
                aim = AIMS.get((part, key), "")
                lines.append(f"| {name} | {title} | {parts[part][key]} | {expected} | {aim} |")
        for case, found in parts.get("host time hidden", {}).items():
            title = f"host time hidden, {case.replace('_', ' ')}, %"
            lines.append(f"| {name} | {title} | {found['hidden_percent']} | | |")
    return lines


def _part(part: str, found: dict[str, Any]) -> list[str]:
    if part == "profile":
        return [line for case, one in found.items() for line in _profile(case, one)]
    if part == "graphs":
        return [line for case, one in found.items() for line in _ways(case, one)]
    lines = ["| figure | value |", "|---|---:|"]
    for key, value in found.items():
        inner = value.items() if isinstance(value, dict) else [("", value)]
        for name, figure in inner:
            label = f"{key}: {name}" if name else key
            shown = f"{figure:,}" if isinstance(figure, (int, float)) else figure
            lines.append(f"| {label.replace('_', ' ')} | {shown} |")
    return lines


def _profile(case: str, found: dict[str, Any]) -> list[str]:
    lines = [
        f"{case}: {found['device_ms']} ms on the device, {found['without_command_buffers_ms']} "
        "without command buffers, as profiled",
        "",
        "| part | ms | bound, ms |",
        "|---|---:|---:|",
    ]
    for part, figures in found["parts"].items():
        lines.append(f"| {part} | {figures['ms']} | {figures.get('bound_ms', '')} |")
    return [*lines, ""]


def _ways(case: str, found: dict[str, Any]) -> list[str]:
    """Each way to make graphs: milliseconds a step, and until the host has started one."""
    columns = ("ms", "enqueue_ms", "queued_ms", "compile_s")
    lines = [f"| {case} | ms | ms to enqueue | behind others | s to compile |", "|---" * 5 + "|"]
    for way, one in found.items():
        lines.append(f"| {way} | " + " | ".join(str(one.get(key, "")) for key in columns) + " |")
    return [*lines, ""]
