"""The saved profile as Markdown, for docs/step.md."""

from collections.abc import Callable, Iterable
from typing import Any

from benchmarks.markdown import Column, Row, table, words
from benchmarks.report import load_result, machine_in_words, present


def tables() -> str:
    """Two tables, milliseconds with shares and distance from the bound, and where measured."""
    saved = load_result("step_profile")
    steps = {name: step for name, step in saved["result"].items() if isinstance(step, dict)}
    parts = [
        {"name": part} | {name: (step, part) for name, step in steps.items()}
        for part in next(iter(steps.values()))["parts"]
    ]
    bounded = [
        row for row in parts if any("bound_ms" in s["parts"][row["name"]] for s in steps.values())
    ]
    whole = [
        {"name": f"**{label}**"} | {name: f"{step[key]:,.1f}" for name, step in steps.items()}
        for label, key in (("sum of the parts", "sum_of_parts_ms"), ("step, measured", "step_ms"))
    ]
    times = table([words("ms, share of the parts"), *_of_steps(steps, _share)], [*parts, *whole])
    bounds = table([words("times the bound (bound, ms)"), *_of_steps(steps, _distance)], bounded)
    machine, rates = saved["machine"], saved["result"]
    where = (
        f"{saved['date']}, {machine_in_words(machine)}, jax "
        f"{saved['versions']['jax']}; `{present(saved['command'])}`. Read bandwidth "
        f"{rates['read_bandwidth_gb_per_s']} GB/s, matrix rate "
        f"{rates['matrix_rate_gflop_per_s']} GFLOP/s; load average of the machine at the end "
        f"{machine['load_average'][0]}."
    )
    return "\n\n".join([where, times, bounds])


def _of_steps(steps: Iterable[str], cell: Callable[[dict[str, Any], str], str]) -> list[Column]:
    """A column for each step; of what is no part the cell is there already."""

    def of(row: Row, step: str) -> str:
        return row[step] if isinstance(row[step], str) else cell(*row[step])

    return [Column(_title(step), lambda row, step=step: of(row, step)) for step in steps]


def _title(name: str) -> str:
    kind, count = name.split("_")
    return f"decode, {count}" if kind == "decode" else f"prompt of {count}"


def _share(step: dict[str, Any], part: str) -> str:
    ms = step["parts"][part]["ms"]
    return f"{ms:,.2f} ({100 * ms / step['sum_of_parts_ms']:.1f} %)"


def _distance(step: dict[str, Any], part: str) -> str:
    figures = step["parts"][part]
    return f"{figures['ms'] / figures['bound_ms']:.1f} ({figures['bound_ms']:,.2f})"
