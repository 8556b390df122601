"""docs/vllm-examples.md and the README's sentence, from the saved result.

python -m benchmarks.vllm_examples.page
"""

import json
import re
from pathlib import Path
from typing import Any

from benchmarks.report import RESULTS, ROOT

PAGE = ROOT / "docs" / "vllm-examples.md"
README = ROOT / "README.md"
IN_README = "<!-- examples -->", "<!-- /examples -->"
START, END = "<!-- examples:start -->", "<!-- examples:end -->"


def sentence(result: dict[str, Any]) -> str:
    """What the README says."""
    found = result["result"]
    runs, count = found["runs"], len(found["examples"])
    return (
        f"{runs} of the {count} examples of vLLM {found['vllm']} that make an engine of their own\n"
        "run with the import changed"
    )


def tables(result: dict[str, Any]) -> str:
    """What runs and what does not, as Markdown."""
    found = result["result"]
    runs = [one for one in found["examples"] if one["runs"]]
    others = [one for one in found["examples"] if not one["runs"]]
    lines = [
        f"{sentence(result)} ({_machine(result)}, {result['date']}). "
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
    lines += [f"| `{one['path']}` | {_cell(one['need'])} |" for one in others]
    return "\n".join(lines)


def _cell(text: str) -> str:
    """One table cell: a line, with what Markdown would take for its own kept as it is."""
    one_line = re.sub(r"\s+", " ", text).replace("|", "\\|")
    return re.sub(r"([<>*_\[\]])", r"\\\1", one_line)


def _machine(result: dict[str, Any]) -> str:
    machine = result["machine"]
    return f"{machine['cores']} cores, {machine['cpu']}"


def write_page(source: Path = RESULTS / "vllm_examples.json") -> None:
    """Puts the tables into the page, and the sentence into the README."""
    result = json.loads(source.read_text("utf-8"))
    text = PAGE.read_text("utf-8")
    before, rest = text.split(START)
    after = rest.split(END)[1]
    PAGE.write_text(f"{before}{START}\n{tables(result)}\n{END}{after}", "utf-8")
    readme = README.read_text("utf-8")
    found = f"{IN_README[0]}{sentence(result)}{IN_README[1]}"
    pattern = f"{re.escape(IN_README[0])}.*?{re.escape(IN_README[1])}"
    README.write_text(re.sub(pattern, lambda _: found, readme, flags=re.DOTALL), "utf-8")
    print(f"wrote {PAGE} and the README's sentence")


if __name__ == "__main__":
    write_page()
