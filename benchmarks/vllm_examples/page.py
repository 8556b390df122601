"""The saved examples as Markdown, for docs/vllm-examples.md, and the README's sentence."""

import re

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
    runs = [one for one in found["examples"] if one["runs"]]
    others = [one for one in found["examples"] if not one["runs"]]
    lines = [
        f"{sentence()} ({where}, {saved['date']}). "
        "Seconds are of the whole process: start, compiling, model, answers.",
        "",
        "| runs | seconds | model in place of the example's | arguments |",
        "|---|---:|---|---|",
    ]
    for one in runs:
        models = ", ".join(one["stand_ins"]) or "SmolLM2-135M-Instruct"
        arguments = f"`{one['arguments']}`" if one["arguments"] else ""
        lines.append(f"| `{one['path']}` | {one['seconds']:.0f} | {models} | {arguments} |")
    lines += ["", "| does not run | because |", "|---|---|"]
    lines += [f"| `{one['path']}` | {cell(one['need'])} |" for one in others]
    return "\n".join(lines)


def cell(text: str) -> str:
    """One table cell: a line, with what Markdown would take for its own kept as it is."""
    one_line = re.sub(r"\s+", " ", text).replace("|", "\\|")
    return re.sub(r"([<>*_\[\]])", r"\\\1", one_line)
