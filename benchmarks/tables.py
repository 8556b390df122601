"""Saved results as Markdown: a few of them in the README, all of them for docs/measured.md.

python -m benchmarks.tables        rewrites the README's table and its sentence on vLLM's examples
"""

import re
from collections import Counter
from functools import partial
from textwrap import indent
from typing import Any

from benchmarks import compiled_gpu, gpu_tables, several_gpus_tables
from benchmarks.adapters import table as adapters
from benchmarks.kernel_tables import (
    codes_table,
    experts_table,
    precision_table,
    products_table,
    w8a8_table,
)
from benchmarks.markdown import Column, grid, measured, named, table, with_sentence, words
from benchmarks.replicas import table as replicas
from benchmarks.report import ROOT, load_result, load_results, machine_in_words, present
from benchmarks.speculation import table as speculation
from benchmarks.vllm_examples.page import sentence

# Results with a page of their own.
PAGES = {
    "adapters_cold": "cpu.md#adapters",
    "adapters_cost": "cpu.md#adapters",
    "adapters_peers": "cpu.md#adapters",
    "compiled_adapters": "gpu.md#adapters",
    "compiled_gpu": "gpu.md#the-engines-steps",
    "several_gpus": "gpu.md#several-gpus",
    "curves": "costs.md",
    "replicas": "serving.md#goodput-by-rule",
    "devices": "cpu.md#two-processes-of-one-core-each",
    "step_profile": "step.md",
    "paper": "tutorial/reproducing-the-paper.md",
    "vllm_examples": "vllm-examples.md",
    "vllm_tests": "vllm-tests.md",
    "quantised_files": "compare.md#quantised-files",
    "quantised_files_avx2": "compare.md#without-avx-512",
    "accuracy_quantised": "command-line.md#what-quantising-costs",
    "linear": "cpu.md#the-products-of-a-step",
    "precision": "cpu.md#the-engine-in-4-8-and-16-bits",
    "w8a8": "cpu.md#products-in-8-bits",
    "linear_avx2": "cpu.md#without-avx-512",
    "w8a8_avx2": "cpu.md#without-avx-512",
    "sampler": "tutorial/vectorised-sampler.md#measured",
    "coupling": "tutorial/speculation.md#when-the-drafter-draws",
    "speculation": "tutorial/speculation.md#measured",
    "speculation_draft_model": "tutorial/speculation.md#measured",
    "speculation_host": "tutorial/speculation.md#measured",
    "speculation_peers": "tutorial/speculation.md#measured",
    "servers_bfloat16": "serving.md#beside-another-server",
    "servers_float32": "serving.md#beside-another-server",
}
# Subjects of the headlines, and how the names of their results begin.
SUBJECTS = {
    "Speed": (
        "throughput",
        "single_stream",
        "quantised_files",
        "kv_cache_dir",
        "guided",
        "sampler",
    ),
    "The host's time": ("host_time", "overlap"),
    "Guesses": ("speculation",),
    "Vectors of texts": ("encoders",),
    "A machine's first start": ("first_start",),
    "A server": ("serve",),
    "Right answers": ("accuracy",),
    "Memory over many requests": ("soak",),
}
# How keys of results end, and the units that they name so.
UNITS = {
    "tokens per s": "tokens/s", "gb per s": "GB/s", "gflop per s": "GFLOP/s", "percent": "%",
    "mib": "MiB", "ms": "ms", "us": "µs", "s": "s",
}  # fmt: skip
# What the README shows: a result, and which of its headlines.
IN_README = (
    ("compare_W1_bfloat16", 0),
    ("compare_W2_bfloat16", 0),
    ("compare_W5_bfloat16", 0),
    ("single_stream", 1),
    ("accuracy", 0),
)


# Rows of startup's table: the words, and the figure.
STARTUP_PARTS = (
    ("import JAX", "import_jax_s"),
    ("all imports, JAX included", "import_all_s"),
    ("find the model, read its configuration; load Numba", "open_model_s"),
    ("weights, packed into [panels](cpu.md#the-products-of-a-step)", "load_weights_s"),
    ("KV cache, load the other kernels", "kv_cache_s"),
    ("tokenizer", "tokenizer_s"),
    ("first step: tracing", "trace_s"),
    ("first step: lowering", "lower_s"),
    ("first step: compiling, or loading from the cache", "compile_or_load_s"),
    ("first token, all together", "first_token_s"),
)


def readme_table() -> str:
    """Five rows, each with the file that it is read from."""
    rows = [load_result(name) | {"number": number} for name, number in IN_README]
    columns = [
        words("what", lambda row: list(row["headline"])[row["number"]]),
        words("measured", lambda row: list(row["headline"].values())[row["number"]]),
        words("on", lambda row: machine_in_words(row["machine"])),
        words(
            "result", lambda row: "[`{0}.json`](benchmarks/results/{0}.json)".format(row["name"])
        ),
    ]
    return table(columns, rows)


def headlines() -> str:
    """The headlines of all results but comparisons, which have a page of their own, by subject."""
    results = [one for one in load_results() if not one["name"].startswith("compare_")]
    machines = Counter(machine_in_words(one["machine"]).partition(" with ")[0] for one in results)
    usual = machines.most_common(1)[0][0]
    rows: list[dict[str, str]] = []
    for subject, names in SUBJECTS.items():
        rows.append({"what": f"**{subject}**", "figure": "", "on": ""})
        for result in (one for name in names for one in results if one["name"].startswith(name)):
            on = machine_in_words(result["machine"]).removeprefix(usual).removeprefix(" with ")
            on = on.replace("-", "\N{NON-BREAKING HYPHEN}")
            rows += [
                {"what": what, "figure": _styled(figure), "on": on}
                for what, figure in result["headline"].items()
            ]
    columns = [words("what", "what"), words("measured", "figure"), words("on", "on")]
    kind = "All" if len(machines) == 1 else "Most"
    said = f"{kind} results are from {usual}. The last column names its vector instructions, "
    said += "where the result does"
    said += ", or another machine" * (len(machines) > 1)
    return f"{said}.\n\n{table(columns, rows)}"


def detail_tables() -> str:
    """A heading for each result without a page of its own, and all that it holds, folded."""
    results = [one for one in load_results() if not one["name"].startswith("compare_")]
    elsewhere = dict.fromkeys(one["name"] for one in results if one["name"] in PAGES)
    links = [f"[{name.replace('_', ' ')}]({PAGES[name]})" for name in elsewhere]
    here = [_section(one) for one in results if one["name"] not in PAGES]
    return "\n\n".join([*here, f"On pages of their own: {', '.join(links)}."])


def startup_table() -> str:
    """Seconds of a start's parts, for docs/startup.md."""
    result = load_result("startup")["result"]
    rows = [
        {"name": said, "cold": result["cold"][key], "warm": result["warm"][key]}
        for said, key in STARTUP_PARTS
    ]
    columns = [
        Column("empty cache", "cold", "{:.2f}"),
        Column("warm cache, median", "warm", "{:.2f}"),
    ]
    return table([words("part"), *columns], rows)


def quantising_table() -> str:
    """Perplexity and right answers in each format, for docs/command-line.md."""
    saved = load_result("accuracy_quantised")
    result = saved["result"]
    columns = [
        words("", lambda row: f"`{row['name']}`"),
        Column("perplexity", "perplexity", "{:.2f}"),
        Column("above float32", "perplexity_above_float_percent", "{:.2f} %"),
        Column(f"right answers of {result['questions']}", "right_answers"),
        Column("answers unlike float32's", "answers_unlike_float"),
    ]
    said = measured(saved, commit=True).removesuffix(".")
    said += f"; {result['tokens']:,} tokens of text."
    return with_sentence(said, columns, named(result["cases"]))


def sampler_table() -> str:
    """Milliseconds of each form of the sampler, for docs/tutorial/vectorised-sampler.md."""
    saved = load_result("sampler")
    forms = {
        "row by row, NumPy": "row_by_row_ms",
        "all rows, NumPy": "all_rows_ms",
        "all rows, XLA": "xla_ms",
        "the CPU's kernel": "kernel_ms",
    }
    columns = [
        words("", lambda row: row["name"].rsplit("_", 1)[0]),
        Column("rows", lambda row: row["name"].rsplit("_", 1)[1]),
        *(Column(said, key, "{:.2f}") for said, key in forms.items()),
    ]
    return with_sentence(measured(saved, "Milliseconds, "), columns, named(saved["result"]))


def devices_table() -> str:
    """Speeds of two processes of one core each over one of two, for docs/cpu.md."""
    saved = load_result("devices")
    alone = "one process, two cores"
    ways = [way for way in next(iter(saved["result"].values())) if way != alone]
    columns = [
        words(""),
        Column("one process, tokens/s", (alone, "tokens_per_s"), "{:.0f}"),
        *(Column(way, (way, "over_one_process"), "{:.2f}") for way in ways),
    ]
    return with_sentence(measured(saved), columns, named(saved["result"]))


TABLES = {
    "codes": codes_table,
    "codes_avx2": partial(codes_table, "linear_avx2"),
    "coupling": speculation.coupling_table,
    "adapters_cold": adapters.cold_table,
    "adapters_cost": adapters.cost_table,
    "adapters_peers": adapters.peers_table,
    "compiled_codes": compiled_gpu.codes_table,
    "compiled_adapted_steps": compiled_gpu.adapted_steps_table,
    "compiled_adapters": compiled_gpu.adapters_table,
    "compiled_experts": compiled_gpu.experts_table,
    "compiled_graphs": compiled_gpu.graphs_table,
    "compiled_launches": compiled_gpu.launches_table,
    "compiled_steps": compiled_gpu.steps_table,
    "devices": devices_table,
    "experts": experts_table,
    "gpu_engine": gpu_tables.engine_table,
    "gpu_engine_h200": gpu_tables.engine_h200_table,
    "gpu_graphs": gpu_tables.graphs_table,
    "gpu_host": gpu_tables.host_table,
    "gpu_kernels": gpu_tables.kernels_table,
    "gpu_kernels_h200": gpu_tables.kernels_h200_table,
    "gpu_parts": gpu_tables.parts_table,
    "gpu_parts_h200": gpu_tables.parts_h200_table,
    "gpu_products": gpu_tables.products_table,
    "several_gpus_compiled": several_gpus_tables.compiled_table,
    "several_gpus_one": several_gpus_tables.one_gpu_table,
    "several_gpus_predicted_h100": partial(several_gpus_tables.predicted_table, "h100"),
    "several_gpus_predicted_h200": partial(several_gpus_tables.predicted_table, "h200"),
    "precision": precision_table,
    "products": products_table,
    "products_avx2": partial(products_table, "linear_avx2"),
    "quantising": quantising_table,
    "replicas": replicas.rules_table,
    "replicas_assumed": replicas.assumptions,
    "replicas_excess": replicas.excess_table,
    "replicas_expected": replicas.expected,
    "sampler": sampler_table,
    "speculation_forced": speculation.forced_table,
    "speculation_draft_model": speculation.draft_model_table,
    "speculation_host": speculation.host_table,
    "speculation_peers": speculation.peers_table,
    "speculation_texts": speculation.texts_table,
    "startup": startup_table,
    "w8a8": w8a8_table,
    "w8a8_avx2": partial(w8a8_table, "w8a8_avx2"),
}
"""Tables of one result each, by what `{{ table NAME }}` calls them."""


def _section(result: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {value}" for name, value in result["versions"].items() if value)
    machine, figures = result["machine"], [_in_words(*one) for one in _flat(result["result"])]
    folded = [
        f"`{present(result['command'])}`",
        f"{result['date']}, on {machine_in_words(machine)}, {machine['memory_gib']} GiB, load "
        f"average {machine['load_average'][0]}; {versions}.",
        grid(("figure", "value"), figures),
    ]
    lines = [f"### {result['name'].replace('_', ' ')}", f'??? note "{len(figures)} figures"']
    return "\n\n".join([*lines, indent("\n\n".join(folded), " " * 4)])


def _flat(result: dict[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    rows: list[tuple[str, Any]] = []
    for key, value in result.items():
        name = f"{prefix}{key}".replace("_", " ")
        rows += _flat(value, f"{name}: ") if isinstance(value, dict) else [(name, value)]
    return rows


def _in_words(key: str, value: Any) -> tuple[str, str]:
    """A figure's name without its unit, and its value with it."""
    for ending, unit in UNITS.items():
        if key.endswith(f" {ending}") and isinstance(value, (int, float)):
            return key.removesuffix(f" {ending}"), f"{_cell(value)} {unit}"
    return key, _cell(value)


def _cell(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    if isinstance(value, float) and 0 < abs(value) < 1e-3:
        return f"{value:.2e}"
    return f"{value:,}" if isinstance(value, (int, float)) else str(value)


def _styled(figure: str) -> str:
    """A saved headline as the pages write numbers: 1,000 and 5 %."""
    grouped = re.sub(r"(?<![\w.,])\d{4,}(?![\w-])", lambda number: f"{int(number[0]):,}", figure)
    return re.sub(r"(?<=\d)%", " %", grouped)


def with_results(readme: str) -> str:
    """The README with its table and its sentence made anew."""
    for name, text in (("measured", f"\n{readme_table()}\n"), ("examples", sentence())):
        start, end = f"<!-- {name}:start -->", f"<!-- {name}:end -->"
        pattern = re.compile(f"{start}.*?{end}", re.DOTALL)
        readme = pattern.sub(lambda _, parts=(start, text, end): "".join(parts), readme)
    return readme


def main() -> None:
    path = ROOT / "README.md"
    path.write_text(with_results(path.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()
