"""Tables of a CPU's kernels and of the engine that uses them, for docs/cpu.md."""

from collections.abc import Callable
from functools import reduce
from operator import getitem

from benchmarks.markdown import Column, Row, measured, named, with_sentence, words
from benchmarks.report import load_result

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


BEST = "Milliseconds, the best of many turns; "
ROWS = Column("rows", lambda row: row["name"].removesuffix("_rows"))


def products_table(name: str = "linear") -> str:
    """Milliseconds of all products of a step, by its rows: the kernel's and XLA's."""
    saved = load_result(name)
    kinds = ("float32", "bfloat16")
    both = {kind: saved["result"][kind] for kind in kinds}
    rows = [
        {"name": row} | {kind: both[kind][row] for kind in kinds}
        for row in both["float32"]
        if row.endswith("_rows")
    ]
    columns = [ROWS]
    for kind in kinds:
        kernel, xla = (kind, "kernel_best_ms"), (kind, "xla_best_ms")
        columns += [Column(f"{kind}: kernel", kernel, "{:,.1f}"), Column("XLA", xla, "{:,.1f}")]
        columns += [Column("XLA / kernel", _ratio(xla, kernel), "{:.2f}")]
    reading = " and ".join(f"{both[kind]['reading_weights_ms']} in {kind}" for kind in kinds)
    said = f"{measured(saved, BEST)} Reading the weights alone took {reading}."
    return with_sentence(said, columns, rows)


def codes_table(name: str = "linear") -> str:
    """All products with weights in codes, as a ratio of the time with panels of the dtype of x."""
    saved = load_result(name)
    both = saved["result"]["codes"]
    forms = [form for form in both["bfloat16"]["1_rows"] if form != "dense"]
    rows = [{"x": kind} | row for kind in ("bfloat16", "float32") for row in named(both[kind])]
    ratios = [
        Column(form, _ratio((form, "best_ms"), ("dense", "best_ms")), "{:.2f}") for form in forms
    ]
    said = measured(saved, "Ratios of best times; ")
    return with_sentence(said, [words("x", "x"), ROWS, *ratios], rows)


def precision_table() -> str:
    """The engine's speed by how weights and KV cache are held, over both in bfloat16."""
    saved = load_result("precision")
    works = saved["result"]
    rows = [
        {"name": said} | {work: found[form]["over_bfloat16"] for work, found in works.items()}
        for form, said in FORMS.items()
    ]
    columns = [
        words(""),
        *(Column(work, lambda row, work=work: row[work], "{:.2f}") for work in works),
    ]
    return with_sentence(measured(saved), columns, rows)


def w8a8_table(name: str = "w8a8") -> str:
    """Milliseconds of all products of a step, by its rows and how the weights are held."""
    saved = load_result(name)
    kinds = {"float32": "float32_ms", "bfloat16": "bfloat16_ms", "W8A8": "w8a8_ms"}
    columns = [ROWS, *(Column(kind, key, "{:.1f}") for kind, key in kinds.items())]
    columns += [
        Column(f"{kind} / W8A8", _ratio((kinds[kind],), ("w8a8_ms",)), "{:.2f}")
        for kind in ("float32", "bfloat16")
    ]
    return with_sentence(measured(saved, BEST), columns, named(saved["result"]))


def experts_table() -> str:
    """Decode steps of mixtures of experts beside the reading of their weights."""
    saved = load_result("experts")
    rows = [
        {"model": model if number == 0 else "", "of": experts} | row
        for key, model, experts in EXPERTS
        for number, row in enumerate(named(saved["result"][key]))
    ]
    columns = [
        words("", "model"),
        Column("rows", lambda row: row["name"].removeprefix("rows_")),
        Column("experts used a layer", lambda row: f"{row['experts_hit']:.1f} of {row['of']}"),
        Column("MiB read", "read_mib", "{:,}"),
        Column("reading, ms", "reading_ms", "{:.1f}"),
        Column("step, ms", "step_ms", "{:.1f}"),
        Column("step / reading", "step_over_reading", "{:.2f}"),
    ]
    return with_sentence(measured(saved), columns, rows)


def _ratio(one: tuple[str, ...], other: tuple[str, ...]) -> Callable[[Row], float]:
    """The ratio of the figures at two places of a row."""

    def of(row: Row) -> float:
        first, second = (reduce(getitem, keys, row) for keys in (one, other))
        return float(first / second)

    return of
