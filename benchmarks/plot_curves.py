"""Plots and tables of `docs/costs.md`, made from `benchmarks/results/curves.json`.

python -m benchmarks.plot_curves        rewrites the page's figures and docs/curves/*.svg
"""

import json
import re
from typing import Any

from benchmarks.log_plot import log_log_plot
from benchmarks.report import RESULTS, ROOT

PAGE = ROOT / "docs" / "costs.md"
PLOTS = ROOT / "docs" / "curves"


def load_curves() -> dict[str, Any]:
    """The saved result, machine and versions included."""
    saved: dict[str, Any] = json.loads((RESULTS / "curves.json").read_text("utf-8"))
    return saved


def plot(curve: dict[str, Any]) -> str:
    """One curve as SVG."""
    lines = {
        name: {float(size): cost for size, cost in line["points"].items()}
        for name, line in curve["series"].items()
    }
    guide = any(line["expected"] == "O(n)" for line in curve["series"].values())
    return log_log_plot(curve["title"], curve["size"], curve["cost"], lines, guide=guide)


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


def section(name: str, curve: dict[str, Any]) -> str:
    """What stands between a curve's two markers."""
    return f"![{curve['title']}](curves/{name}.svg)\n\n{curve['note']}\n\n{table(curve)}"


def with_curves(page: str, saved: dict[str, Any]) -> str:
    """The page with its figures made anew.

    Raises:
        LookupError: A curve has no place on the page.
    """
    machine = saved["machine"]
    where = f"{saved['date']}, {machine['cores']} cores, {machine['cpu']}, jax "
    blocks = {"where": where + f"{saved['versions']['jax']}; `python -m benchmarks.curves --save`."}
    blocks |= {name: section(name, curve) for name, curve in saved["result"].items()}
    for name, text in blocks.items():
        start, end = f"<!-- {name}:start -->", f"<!-- {name}:end -->"
        pattern = re.compile(f"{start}.*?{end}", re.DOTALL)
        if not pattern.search(page):
            raise LookupError(f"{PAGE.name} has no {start} ... {end}")
        page = pattern.sub(lambda _, s=start, t=text, e=end: f"{s}\n{t}\n{e}", page)
    return page


def main() -> None:
    saved = load_curves()
    PLOTS.mkdir(exist_ok=True)
    for name, curve in saved["result"].items():
        (PLOTS / f"{name}.svg").write_text(plot(curve), "utf-8")
    PAGE.write_text(with_curves(PAGE.read_text("utf-8"), saved), "utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)} and {len(saved['result'])} plots")


if __name__ == "__main__":
    main()
