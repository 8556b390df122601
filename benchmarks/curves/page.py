"""The saved curves as Markdown, for docs/costs.md. `python -m scripts.figures` draws them."""

from collections.abc import Callable
from typing import Any

from benchmarks import markdown
from benchmarks.markdown import Column, Row, named, words
from benchmarks.report import load_result, machine_in_words, present


def where() -> str:
    """Date, machine and command."""
    saved = load_result("curves")
    machine, jax = machine_in_words(saved["machine"]), saved["versions"]["jax"]
    return f"{saved['date']}, {machine}, jax {jax}; `{present(saved['command'])}`."


def section(name: str) -> str:
    """A curve: how it was measured, and its table.

    Raises:
        KeyError: It was not measured.
    """
    curve = load_result("curves")["result"][name]
    return f"{curve['note']}\n\n{table(curve)}"


def table(curve: dict[str, Any], *, every: bool = False) -> str:
    """A row for each series: expected order, measured exponent, three of its costs or every."""
    sizes = sorted({int(n) for line in curve["series"].values() for n in line["points"]})
    chosen = sizes if every else [sizes[0], sizes[len(sizes) // 2], sizes[-1]]
    columns = [
        words(curve["cost"]),
        words("expected", "expected"),
        words("measured", lambda row: f"n^{round(row['exponent'], 2) + 0.0:.2f}"),  # no -0.00
        *(Column(f"at {size:,}", _cost_at(str(size))) for size in chosen),
    ]
    return markdown.table(columns, named(curve["series"]))


def _cost_at(size: str) -> Callable[[Row], str | None]:
    return lambda row: _cost(row["points"][size]) if size in row["points"] else None


def _cost(cost: float) -> str:
    """Four digits, and no exponent: large costs are whole numbers."""
    return f"{cost:,.0f}" if cost >= 1000 else f"{cost:.4g}"
