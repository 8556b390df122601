"""Prints outcomes as a table."""

from typing import Any

from pallas_kernels.aot.thunks import Starts

HEADER = (
    "target",
    "case",
    "registers",
    "spills B",
    "shared B",
    "copies",
    "launches",
    "graphs",
    "updates",
    "exchanges",
    "temp MB",
    "seconds",
)


def failed(outcome: dict[str, Any]) -> bool:
    """Whether a case spills registers, copies a watched array, or does not compile."""
    return bool(outcome["problems"])


def table(outcomes: list[dict[str, Any]]) -> str:
    """Makes a line for each case, with its kernels' largest resources, and lists the problems."""
    rows = [HEADER, *(_row(outcome) for outcome in outcomes)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(HEADER))]
    lines = [
        "  ".join(
            cell.ljust(width) if i < 2 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
    bad = [outcome for outcome in outcomes if failed(outcome)]
    for outcome in bad:
        lines.append(f"\n{outcome['target']} {outcome['case']}:")
        lines += [f"    {problem}" for problem in outcome["problems"]]
    refused = [outcome for outcome in outcomes if outcome["refused"]]
    if refused:
        lines.append("\nnot offered by the backend:")
        lines += [f"    {o['target']} {o['case']}: lacks {o['refused']}" for o in refused]
    lines.append(f"\n{len(outcomes)} cases, {len(bad)} with problems, {len(refused)} not offered")
    return "\n".join(lines)


def _row(outcome: dict[str, Any]) -> tuple[str, ...]:
    kernels = outcome["kernels"]
    starts = Starts(*outcome["starts"])

    def most(key: str) -> str:
        return str(max((kernel[key] for kernel in kernels), default="-"))

    return (
        outcome["target"],
        outcome["case"],
        most("registers"),
        str(sum(kernel["spilled"] for kernel in kernels)) if kernels else "-",
        most("shared"),
        str(len(outcome["copies"])),
        str(outcome["launches"] or "-"),
        str(starts.graphs or "-"),
        str(starts.updates if starts.graphs else "-"),
        str(sum(count for _, count, _ in outcome["collectives"]) or "-"),
        f"{outcome['temporary'] / 1e6:.1f}",
        f"{outcome['seconds']:.1f}",
    )
