"""The kernels' results: a row for each shape and method, and all of them as Markdown."""

from typing import Any

from benchmarks.gpu.products import Product
from benchmarks.gpu.record import Record, skipped_lines
from benchmarks.gpu.shapes import Shape

EMPTY: dict[str, Any] = {"card": {}, "tests": {}, "errors": {}, "rows": []}


def add_row(
    record: Record,
    shape: Shape | Product,
    method: str,
    predicted_s: float,
    timing: dict[str, float],
) -> None:
    """Add a measurement of one shape, in microseconds."""
    us = timing["us"]
    row = {
        "part": shape.part,
        "shape": shape.name,
        "method": method,
        "predicted_us": round(predicted_s * 1e6, 2),
        **{key: round(value, 2) for key, value in timing.items()},
        "percent_of_limit": round(100 * predicted_s * 1e6 / us, 1),
        "gb_per_s": round(shape.traffic / us / 1e3, 1),
        "tflop_per_s": round(shape.flops / us / 1e6, 1),
    }
    record.say(f"{shape.part}: {shape.name}, {method}: {us:.1f} us "
               f"({row['percent_of_limit']} % of the limit)")  # fmt: skip
    record.put("rows", [*record.content["rows"], row])


def tables(content: dict[str, Any]) -> str:
    """The results as Markdown."""
    device = ", ".join(content["machine"]["devices"])
    lines = [
        f"# Attention kernels on {device}",
        "",
        f"`{content['command']}`, {content['date']}",
        "",
    ]
    lines += ["Measured limits of this card: " + _limits(content["card"]), ""]
    lines += [f"- tests: {name}: {result}" for name, result in content["tests"].items()]
    lines += [f"- largest error: {name}: {error}" for name, error in content["errors"].items()]
    parts = dict.fromkeys(row["part"] for row in content["rows"])
    for part in parts:
        rows = [row for row in content["rows"] if row["part"] == part]
        lines += ["", f"## {part}", ""]
        lines += ["| shape | method | predicted us | measured us | one call us | % of limit |"]
        lines += ["|---|---|---:|---:|---:|---:|"]
        lines += [
            f"| {row['shape']} | {row['method']} | {row['predicted_us']} | {row['us']} | "
            f"{row.get('call_us', '')} | {row['percent_of_limit']} |"
            for row in rows
        ]
    return "\n".join(lines + skipped_lines(content)) + "\n"


def _limits(card: dict[str, float]) -> str:
    if not card:
        return "not measured"
    return (
        f"copy {card['copy_bytes_per_s'] / 1e9:,.0f} GB/s, bfloat16 matrix product "
        f"{card['matrix_flops_per_s'] / 1e12:,.1f} TFLOP/s"
    )
