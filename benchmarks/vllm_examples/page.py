"""The saved examples as Markdown, for docs/vllm-examples.md, and the README's sentence."""

import re

from benchmarks.markdown import Column, table, words
from benchmarks.report import load_result, machine_in_words


def sentence() -> str:
    """What the README says."""
    found = load_result("vllm_examples")["result"]
    runs, count = found["runs"], len(found["examples"])
    return (
        f"{runs} of the {count} examples of vLLM {found['vllm']} that make an engine of their own\n"
        "run with the import changed"
    )


def tables() -> str:
    """What runs and what does not."""
    saved = load_result("vllm_examples")
    found, where = saved["result"], machine_in_words(saved["machine"])
    said = (
        f"{sentence()} ({where}, {saved['date']}). "
        "Seconds are of the whole process: start, compiling, model, answers."
    )
    ran = [
        path_column("runs"),
        Column("seconds", "seconds", "{:.0f}"),
        words(
            "model in place of the example's",
            lambda row: ", ".join(row["stand_ins"]) or "SmolLM2-135M-Instruct",
        ),
        words("arguments", lambda row: f"`{row['arguments']}`" if row["arguments"] else None),
    ]
    others = [path_column("does not run"), words("because", lambda row: cell(row["need"]))]
    runs = [one for one in found["examples"] if one["runs"]]
    rest = [one for one in found["examples"] if not one["runs"]]
    return "\n\n".join([said, table(ran, runs), table(others, rest)])


def path_column(heading: str) -> Column:
    return words(heading, lambda row: f"`{row['path']}`")


def cell(text: str) -> str:
    """One table cell: a line, with what Markdown would take for its own kept as it is.

    Code keeps its characters without backslashes, pipes too.
    """
    parts = re.split(r"(`[^`]*`)", re.sub(r"\s+", " ", text))
    return "".join(
        part if part.startswith("`") and len(part) > 1 else re.sub(r"([|<>*_\[\]])", r"\\\1", part)
        for part in parts
    )
