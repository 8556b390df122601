"""The saved figures as Markdown, for docs/tutorial/reproducing-the-paper.md."""

from typing import Any

from benchmarks.report import load_result

MAIN = {
    "2": "vLLM, tokens",
    "12": "OPT-13B, ShareGPT: vLLM over Orca (Oracle)",
    "13": "ShareGPT, 2 req/s: vLLM",
    "14": "beam search, 6 beams: vLLM over Orca (Oracle)",
    "15": "Alpaca, beam search, 6 outputs",
    "16": "5-shot, prefix of 341 tokens: vLLM over Orca (Oracle)",
    "17": "vLLM over Orca (Oracle)",
}
"""The number by which each figure stands in the summary."""


def section(key: str) -> str:
    """One figure: numbers, distances, assumptions."""
    figure = load_result("paper")["result"].get(key)
    if figure is None:
        return f"*Not run yet: `{_command(key)}`.*"
    lines = [f"**{figure['title']}** ({figure['source']}): *{figure['kind']}*.", "", *_rows(figure)]
    if figure["claims"]:
        lines += ["", f"The paper says: {figure['claims']}."]
    lines += ["", '??? note "Assumptions, and the command"', ""]
    lines += [f"    - {assumption}" for assumption in figure["assumptions"]]
    lines += [f"    - `{_command(key)}`; {_where(figure)}."]
    return "\n".join(lines)


def summary() -> str:
    """A row for each figure: one number of it, and how far off all of its numbers are."""
    found = load_result("paper")["result"]
    lines = [
        "| figure | number | ours | the paper's | distance | of all its numbers |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for key, what in MAIN.items():
        if key not in found:
            continue
        row = next(r for r in found[key]["rows"] if r["what"] == what)
        lines.append(f"| {found[key]['source']} {_row(row)} {_range(found[key])} |")
    return "\n".join(lines)


def _range(figure: dict[str, Any]) -> str:
    """The least and the greatest distance of a figure's numbers from the paper's, in percent."""
    found = [row["distance_percent"] for row in figure["rows"] if row["paper"] is not None]
    low, high = f"{min(found):+.0f}", f"{max(found):+.0f}"
    return f"{low} %" if low == high else f"{low} to {high} %"


def _rows(figure: dict[str, Any]) -> list[str]:
    head = ["| | ours | the paper's | distance |", "|---|---:|---:|---:|"]
    return [*head, *(_row(row) for row in figure["rows"])]


def _row(row: dict[str, Any]) -> str:
    unit = row["unit"] if row["unit"] == "×" else f" {row['unit']}"
    paper = distance = ""
    if row["paper"] is not None:
        about = "≈ " if row["read_off"] else ""
        paper = f"{about}{_number(row['paper'])}{unit}"
        distance = f"{round(row['distance_percent'], 1) + 0.0:+.1f} %"
    return f"| {row['what']} | {_number(row['ours'])}{unit} | {paper} | {distance} |"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def _command(key: str) -> str:
    name, _, measured = key.partition("-")
    return f"python -m benchmarks.paper --figures {name}" + (" --measured" if measured else "")


def _where(figure: dict[str, Any]) -> str:
    return figure.get("on", "no GPU is needed and the machine does not matter")
