"""The saved curves as Markdown, for docs/costs.md. `python -m scripts.figures` draws them."""

import json
from typing import Any

from benchmarks.report import RESULTS


def load() -> dict[str, Any]:
    """The saved result, machine and versions included."""
    saved: dict[str, Any] = json.loads((RESULTS / "curves.json").read_text("utf-8"))
    return saved


def where() -> str:
    """Date, machine and command."""
    saved = load()
    machine = f"{saved['machine']['cores']} cores, {saved['machine']['cpu']}"
    return f"{saved['date']}, {machine}, jax {saved['versions']['jax']}; `{saved['command']}`."


def section(name: str) -> str:
    """A curve: how it was measured, and its table.

    Raises:
        KeyError: It was not measured.
    """
    curve = load()["result"][name]
    return f"{curve['note']}\n\n{table(curve)}"


def table(curve: dict[str, Any]) -> str:
    """A row for each series: expected order, measured exponent, three of its costs."""
    sizes = sorted({int(n) for line in curve["series"].values() for n in line["points"]})
    chosen = (sizes[0], sizes[len(sizes) // 2], sizes[-1])
    head = "".join(f" at {size:,} |" for size in chosen)
    rows = [f"| {curve['cost']} | expected | measured |{head}", "|---|---|---|" + "---:|" * 3]
    for name, line in curve["series"].items():
        costs = [line["points"].get(str(size)) for size in chosen]
        cells = "".join(f" {'' if cost is None else f'{cost:,.4g}'} |" for cost in costs)
        rows.append(f"| {name} | {line['expected']} | n^{line['exponent']:.2f} |{cells}")
    return "\n".join(rows)
