"""The saved profile as Markdown, for docs/step.md."""

from typing import Any

from benchmarks.report import load_result, machine_in_words


def tables() -> str:
    """Two tables, milliseconds with shares and distance from the bound, and where measured."""
    saved = load_result("step_profile")
    steps = {name: step for name, step in saved["result"].items() if isinstance(step, dict)}
    head = "".join(f" {_title(name)} |" for name in steps)
    rule = "\n|---|" + "---:|" * len(steps)
    parts = list(next(iter(steps.values()))["parts"])
    times = [f"| ms, share of the parts |{head}{rule}"]
    bounds = [f"| times the bound (bound, ms) |{head}{rule}"]
    for part in parts:
        times.append(f"| {part} |" + "".join(f" {_share(s, part)} |" for s in steps.values()))
        if any("bound_ms" in step["parts"][part] for step in steps.values()):
            cells = "".join(f" {_distance(step['parts'][part])} |" for step in steps.values())
            bounds.append(f"| {part} |{cells}")
    for label, key in (("sum of the parts", "sum_of_parts_ms"), ("step, measured", "step_ms")):
        times.append(f"| **{label}** |" + "".join(f" {s[key]:,.1f} |" for s in steps.values()))
    machine, rates = saved["machine"], saved["result"]
    where = (
        f"{saved['date']}, {machine_in_words(machine)}, jax "
        f"{saved['versions']['jax']}; `{saved['command']}`. Read bandwidth "
        f"{rates['read_bandwidth_gb_per_s']} GB/s, matrix rate "
        f"{rates['matrix_rate_gflop_per_s']} GFLOP/s; load average of the machine at the end "
        f"{machine['load_average'][0]}."
    )
    return "\n\n".join([where, "\n".join(times), "\n".join(bounds)])


def _title(name: str) -> str:
    kind, count = name.split("_")
    return f"decode, {count}" if kind == "decode" else f"prompt of {count}"


def _share(step: dict[str, Any], part: str) -> str:
    ms = step["parts"][part]["ms"]
    return f"{ms:,.2f} ({100 * ms / step['sum_of_parts_ms']:.1f} %)"


def _distance(figures: dict[str, float]) -> str:
    return f"{figures['ms'] / figures['bound_ms']:.1f} ({figures['bound_ms']:,.2f})"
