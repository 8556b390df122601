"""Results as Markdown: the README's table of headlines, and all figures for the docs.

python -m benchmarks.tables        rewrites the table in README.md
"""

import json
import re
from typing import Any

from benchmarks.report import RESULTS, ROOT

# Results with a page of their own.
PAGES = {
    "curves": "costs.md",
    "step_profile": "step.md",
    "paper": "tutorial/reproducing-the-paper.md",
    "vllm_examples": "vllm-examples.md",
}
START, END = "<!-- measured:start -->", "<!-- measured:end -->"


def load_results() -> list[dict[str, Any]]:
    """All results, by name."""
    return [json.loads(path.read_text("utf-8")) for path in sorted(RESULTS.glob("*.json"))]


def headline_table() -> str:
    """One row for each headline; a sentence when nothing has been measured yet."""
    rows = [
        f"| {what} | {figure} | {_machine(result)} | `{result['command']}` |"
        for result in load_results()
        for what, figure in result.get("headline", {}).items()
    ]
    if not rows:
        return "Nothing yet."
    return "\n".join(["| what | measured | on | command |", "|---|---|---|---|", *rows])


def detail_tables() -> str:
    """A section for each result, with every figure and what is needed to read it.

    The comparisons with other engines have tables and a page of their own.
    """
    results = [one for one in load_results() if not one["name"].startswith("compare_")]
    return "\n\n".join(_section(result) for result in results) or "Nothing measured yet."


def _section(result: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {value}" for name, value in result["versions"].items() if value)
    name = result["name"]
    if name in PAGES:
        return f"## {name.replace('_', ' ')}\n\nSee [its page]({PAGES[name]})."
    lines = [
        f"## {name.replace('_', ' ')}",
        f"`{result['command']}`",
        f"{result['date']}, on {_machine(result)}, {result['machine']['memory_gib']} GiB, load "
        f"average {result['machine']['load_average'][0]}; {versions}.",
        "| figure | value |\n|---|---:|\n"
        + "\n".join(f"| {key} | {_cell(value)} |" for key, value in _flat(result["result"])),
    ]
    return "\n\n".join(lines)


def _flat(result: dict[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    rows: list[tuple[str, Any]] = []
    for key, value in result.items():
        name = f"{prefix}{key}".replace("_", " ")
        rows += _flat(value, f"{name}: ") if isinstance(value, dict) else [(name, value)]
    return rows


def _cell(value: Any) -> str:
    return f"{value:,}" if isinstance(value, (int, float)) else str(value)


def _machine(result: dict[str, Any]) -> str:
    machine = result["machine"]
    if machine["devices"] == ["cpu"]:
        return f"{machine['cores']} cores, {machine['cpu']}"
    return ", ".join(machine["devices"])


def with_headlines(readme: str) -> str:
    """The README with its table made anew."""
    pattern = re.compile(f"{re.escape(START)}.*?{re.escape(END)}", re.DOTALL)
    return pattern.sub(lambda _: f"{START}\n{headline_table()}\n{END}", readme)


def main() -> None:
    path = ROOT / "README.md"
    path.write_text(with_headlines(path.read_text("utf-8")), "utf-8")
    print(headline_table())


if __name__ == "__main__":
    main()
