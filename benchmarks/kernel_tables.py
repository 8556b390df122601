"""Tables of a CPU's kernels for docs/cpu.md, from linear.json and w8a8.json."""

from typing import Any

from benchmarks.report import load_result, machine_in_words


def products_table() -> str:
    """Milliseconds of all products of a step, by its rows: the kernel's and XLA's."""
    saved = load_result("linear")
    kinds = ("float32", "bfloat16")
    rows = [
        "| rows | " + " | ".join(f"{kind}: kernel | XLA | XLA / kernel" for kind in kinds) + " |",
        "|---:|" + "---:|" * 6,
    ]
    for name in saved["result"]["float32"]:
        if not name.endswith("_rows"):
            continue
        cells = [name.removesuffix("_rows")]
        for found in (saved["result"][kind][name] for kind in kinds):
            cells += [f"{found['kernel_best_ms']:.1f}", f"{found['xla_best_ms']:.1f}"]
            cells.append(f"{found['xla_best_ms'] / found['kernel_best_ms']:.2f}")
        rows.append(f"| {' | '.join(cells)} |")
    reading = [f"{saved['result'][kind]['reading_weights_ms']} in {kind}" for kind in kinds]
    said = f"{_where(saved)} Reading the weights alone took {' and '.join(reading)}."
    return said + "\n\n" + "\n".join(rows)


def w8a8_table() -> str:
    """Milliseconds of all products of a step, by its rows and how the weights are held."""
    saved = load_result("w8a8")
    rows = [
        "| rows | float32 | bfloat16 | W8A8 | float32 / W8A8 | bfloat16 / W8A8 |",
        "|---:|---:|---:|---:|---:|---:|",
    ]
    for name, found in saved["result"].items():
        single, half, codes = (found[f"{kind}_ms"] for kind in ("float32", "bfloat16", "w8a8"))
        ratios = f"{single / codes:.2f} | {half / codes:.2f}"
        times = f"{single:.1f} | {half:.1f} | {codes:.1f}"
        rows.append(f"| {name.removesuffix('_rows')} | {times} | {ratios} |")
    return _where(saved) + "\n\n" + "\n".join(rows)


def _where(saved: dict[str, Any]) -> str:
    machine = machine_in_words(saved["machine"])
    return f"Milliseconds, the best of many turns; {saved['date']}, {machine}."
