"""The engine's results on a card as Markdown: ratios first, then every figure."""

from typing import Any

from benchmarks.gpu.engine.expected import AIMS, EXPECTED
from benchmarks.gpu.record import skipped_lines

EMPTY: dict[str, Any] = {"card": {}, "models": {}}
# The ratio that each measurement is about.
RATIOS = (
    ("decode", "percent_of_bound", "one stream, % of the weights' bandwidth bound"),
    ("prefill", "percent_of_matrix_rate", "prompts, % of the matrix rate"),
    ("throughput", "percent_of_bound", "all running, % of what the card's limits allow"),
    ("first token", "p50_over_bound", "first token of a lone prompt, times its bound"),
    ("transformers", "ours_over_theirs", "tokens/s, times transformers' continuous batching"),
)


def tables(content: dict[str, Any]) -> str:
    """All of it."""
    machine, versions = content["machine"], content["versions"]
    told = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    lines = [f"# The engine on {', '.join(machine['devices'])}", ""]
    lines += [f"`{content['command']}`, {content['date']}; {told}.", ""]
    lines += [_card(content["card"]), "", *_ratios(content["models"])]
    for name, parts in content["models"].items():
        lines += ["", f"## {name}"]
        for part, found in parts.items():
            lines += ["", f"### {part}", "", *_part(part, found)]
    return "\n".join(lines + skipped_lines(content)) + "\n"


def _card(card: dict[str, float]) -> str:
    if not card:
        return "The card's limits were not measured."
    return (
        f"Measured limits of this card: read {card['read_bytes_per_s'] / 1e9:,.0f} GB/s, copy "
        f"{card['copy_bytes_per_s'] / 1e9:,.0f} GB/s, bfloat16 matrix product "
        f"{card['matrix_flops_per_s'] / 1e12:,.1f} TFLOP/s."
    )


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
    if part == "options":
        return _grid(found)
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


def _grid(found: dict[str, Any]) -> list[str]:
    """Present time over a variant's; above 1 the variant is faster."""
    cases = list(found)
    names = dict.fromkeys(name for variants in found.values() for name in variants)
    lines = ["| present time over this | " + " | ".join(cases) + " |"]
    lines += ["|---|" + "---:|" * len(cases)]
    for name in names:
        cells = [found[case].get(name, {}) for case in cases]
        shown = [str(one.get("ratio_to_present", one.get("error", ""))) for one in cells]
        lines.append(f"| {name} | " + " | ".join(shown) + " |")
    return lines
