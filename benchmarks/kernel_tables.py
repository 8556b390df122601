"""Tables of a CPU's kernels and of the engine that uses them, for docs/cpu.md."""

from typing import Any

from benchmarks.report import load_result, machine_in_words

# Rows of the table of experts: a model's key, its name, and the experts of a layer.
EXPERTS = (
    ("granite_1b_a400m", "Granite 3.1 1B-A400M", 32),
    ("olmoe_1b_7b_4_layers", "OLMoE 1B-7B, 4 layers", 64),
)

# Rows of the table of forms.
FORMS = {
    "codes": "weights in the file's codes of 4.5 bits",
    "w8a8": "weights and activations in int8 (W8A8)",
    "kv_int8": "a KV cache in int8",
    "kv_fp8": "a KV cache in FP8",
}


def products_table(name: str = "linear") -> str:
    """Milliseconds of all products of a step, by its rows: the kernel's and XLA's."""
    saved = load_result(name)
    kinds = ("float32", "bfloat16")
    rows = [
        "| rows | " + " | ".join(f"{kind}: kernel | XLA | XLA / kernel" for kind in kinds) + " |",
        "|---:|" + "---:|" * 6,
    ]
    for row in saved["result"]["float32"]:
        if not row.endswith("_rows"):
            continue
        cells = [row.removesuffix("_rows")]
        for found in (saved["result"][kind][row] for kind in kinds):
            cells += [f"{found['kernel_best_ms']:.1f}", f"{found['xla_best_ms']:.1f}"]
            cells.append(f"{found['xla_best_ms'] / found['kernel_best_ms']:.2f}")
        rows.append(f"| {' | '.join(cells)} |")
    reading = [f"{saved['result'][kind]['reading_weights_ms']} in {kind}" for kind in kinds]
    said = f"{_where(saved)} Reading the weights alone took {' and '.join(reading)}."
    return said + "\n\n" + "\n".join(rows)


def codes_table(name: str = "linear") -> str:
    """All products with weights in codes, as a ratio of the time with panels of the dtype of x."""
    saved = load_result(name)
    both = saved["result"]["codes"]
    forms = [name for name in both["bfloat16"]["1_rows"] if name != "dense"]
    rows = [f"| x | rows | {' | '.join(forms)} |", "|---|---:|" + "---:|" * len(forms)]
    for kind in ("bfloat16", "float32"):
        for row, found in both[kind].items():
            cells = [kind, row.removesuffix("_rows")]
            dense = found["dense"]["best_ms"]
            cells += [f"{found[form]['best_ms'] / dense:.2f}" for form in forms]
            rows.append(f"| {' | '.join(cells)} |")
    machine = machine_in_words(saved["machine"])
    return f"Ratios of best times; {saved['date']}, {machine}.\n\n" + "\n".join(rows)


def precision_table() -> str:
    """The engine's speed by how weights and KV cache are held, over both in bfloat16."""
    saved = load_result("precision")
    works = saved["result"]
    lines = [f"| | {' | '.join(works)} |", "|---|" + "---:|" * len(works)]
    for form, words in FORMS.items():
        cells = [f"{found[form]['over_bfloat16']:.2f}" for found in works.values()]
        lines.append(f"| {words} | {' | '.join(cells)} |")
    return f"{saved['date']}, {machine_in_words(saved['machine'])}.\n\n" + "\n".join(lines)


def w8a8_table(name: str = "w8a8") -> str:
    """Milliseconds of all products of a step, by its rows and how the weights are held."""
    saved = load_result(name)
    rows = [
        "| rows | float32 | bfloat16 | W8A8 | float32 / W8A8 | bfloat16 / W8A8 |",
        "|---:|---:|---:|---:|---:|---:|",
    ]
    for row, found in saved["result"].items():
        single, half, codes = (found[f"{kind}_ms"] for kind in ("float32", "bfloat16", "w8a8"))
        ratios = f"{single / codes:.2f} | {half / codes:.2f}"
        times = f"{single:.1f} | {half:.1f} | {codes:.1f}"
        rows.append(f"| {row.removesuffix('_rows')} | {times} | {ratios} |")
    return _where(saved) + "\n\n" + "\n".join(rows)


def experts_table() -> str:
    """Decode steps of mixtures of experts beside the reading of their weights."""
    saved = load_result("experts")
    rows = [
        "| | rows | experts used a layer | MiB read | reading, ms | step, ms | step / reading |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for key, model, experts in EXPERTS:
        for name, found in saved["result"][key].items():
            few = f"{found['experts_hit']:.1f} of {experts}"
            times = f"{found['reading_ms']:.1f} | {found['step_ms']:.1f}"
            cells = (model, name.removeprefix("rows_"), few, f"{found['read_mib']:,}", times)
            rows.append(f"| {' | '.join(cells)} | {found['step_over_reading']:.2f} |")
            model = ""
    return f"{saved['date']}, {machine_in_words(saved['machine'])}." + "\n\n" + "\n".join(rows)


def _where(saved: dict[str, Any]) -> str:
    machine = machine_in_words(saved["machine"])
    return f"Milliseconds, the best of many turns; {saved['date']}, {machine}."
