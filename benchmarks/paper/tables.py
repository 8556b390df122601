"""The saved figures as Markdown, for docs/tutorial/reproducing-the-paper.md."""

from typing import Any

from benchmarks.markdown import Column, Row, table, words
from benchmarks.report import load_result


def section(key: str) -> str:
    """One figure: numbers, distances, assumptions."""
    figure = load_result("paper")["result"].get(key)
    if figure is None:
        return f"*Not run yet: `{_command(key)}`.*"
    said = f"**{figure['title']}** ({figure['source']}): *{figure['kind']}*."
    lines = [said, "", table([words("", "what"), *NUMBERS], figure["rows"])]
    if figure["claims"]:
        lines += ["", f"The paper says: {figure['claims']}."]
    lines += ["", '??? note "Assumptions, and the command"', ""]
    lines += [f"    - {assumption}" for assumption in figure["assumptions"]]
    lines += [f"    - `{_command(key)}`; {_where(figure)}."]
    return "\n".join(lines)


def _papers(row: Row) -> str | None:
    if row["paper"] is None:
        return None
    return ("≈ " if row["read_off"] else "") + number_with_unit(row["paper"], row["unit"])


def _distance(row: Row) -> str | None:
    if row["paper"] is None:
        return None
    return f"{round(row['distance_percent']) + 0.0:+.0f} %"


def number_with_unit(value: float, unit: str) -> str:
    """As rounded; four digits for requests at a time, as the paper has them."""
    number = f"{value:.4g}" if unit == "requests" else rounded(value)
    return f"{number}{unit}" if unit == "×" else f"{number} {unit}"


def rounded(value: float) -> str:
    """Two digits, or all of those before the point: nothing here is known better."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def _command(key: str) -> str:
    name, _, measured = key.partition("-")
    return f"python -m benchmarks paper --figures {name}" + (" --measured" if measured else "")


def _where(figure: dict[str, Any]) -> str:
    return figure.get("on", "no GPU is needed and the machine does not matter")


NUMBERS = (
    Column("ours", lambda row: number_with_unit(row["ours"], row["unit"])),
    Column("the paper's", _papers),
    Column("distance", _distance),
)
