"""The saved curves as Markdown, for docs/costs.md. `python -m scripts.figures` draws them."""

from typing import Any

from benchmarks.report import load_result, machine_in_words


def where() -> str:
    """Date, machine and command."""
    saved = load_result("curves")
    machine, jax = machine_in_words(saved["machine"]), saved["versions"]["jax"]
    return f"{saved['date']}, {machine}, jax {jax}; `{saved['command']}`."


def section(name: str) -> str:
    """A curve: how it was measured, and its table.

    Raises:
        KeyError: It was not measured.
    """
    curve = load_result("curves")["result"][name]
    return f"{curve['note']}\n\n{table(curve)}"


def table(curve: dict[str, Any]) -> str:
    """A row for each series: expected order, measured exponent, three of its costs."""
    sizes = sorted({int(n) for line in curve["series"].values() for n in line["points"]})
    chosen = (sizes[0], sizes[len(sizes) // 2], sizes[-1])
    head = "".join(f" at {size:,} |" for size in chosen)
    rows = [f"| {curve['cost']} | expected | measured |{head}", "|---|---|---|" + "---:|" * 3]
    for name, line in curve["series"].items():
        costs = [line["points"].get(str(size)) for size in chosen]
        cells = "".join(f" {'' if cost is None else _cost(cost)} |" for cost in costs)
        exponent = round(line["exponent"], 2) + 0.0  # no -0.00
        rows.append(f"| {name} | {line['expected']} | n^{exponent:.2f} |{cells}")
    return "\n".join(rows)


def _cost(cost: float) -> str:
    """Four digits, and no exponent: large costs are whole numbers."""
    return f"{cost:,.0f}" if cost >= 1000 else f"{cost:.4g}"
