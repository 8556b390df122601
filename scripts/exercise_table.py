"""The exercises by their size, and by the chapters that come before them: `{{ exercises }}`.

The size is the number of lines of the answer in exercises/solutions/: those with code, less its
imports and the line that names the answer for tests.
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
GRADES = {"Short": 8, "Middle": 16, "Long": 99}
"""By name, the most lines of one."""


class Task(NamedTuple):
    """What is said of an exercise; `chapter` is the page to read before."""

    writes: str
    chapter: str
    paper: str = ""


TASKS = {
    "online_softmax": Task("attention that sees each block once", "attention", "§4.1"),
    "allocator": Task("a pool of blocks with reference counts", "block-manager", "§4.2"),
    "admission": Task("which request can never be served, and which waits", "scheduler", "§4.5"),
    "hanging_scheduler": Task("the rule that a published scheduler lacked", "the-oracle", "§4.5"),
    "swapping": Task("blocks out to the CPU and back, and copies", "swap-or-recompute", "§4.5"),
    "copy_on_write": Task("`fork` and `append` on block tables", "sharing", "§4.4, Figure 8"),
    "beams": Task("the best beams, and whose blocks they keep", "sharing", "§4.4, Figure 9"),
    "prefix_chain": Task("which blocks of a prompt are known", "prefix-caching", "§4.4"),
    "eviction": Task("a queue of free blocks that can be found again", "prefix-caching"),
    "chunks": Task("a prompt in chunks, and the slots of its tokens", "chunked-prefill"),
    "unified_step": Task("one step under a budget of tokens", "chunked-prefill", "§4.5"),
    "top_p": Task("the boundary of top-p", "sampling"),
    "verification": Task("which of the drawn tokens count", "speculation"),
    "grouped_product": Task("one product for rows with different adapters", "adapters"),
    "crossing_hits": Task("which requests may share cached blocks", "adapters"),
}


def size(name: str) -> int:
    """Lines of the answer."""
    text = (ROOT / "exercises" / "solutions" / f"{name}.py").read_text("utf-8")
    lines = set[int]()
    for node in ast.parse(text).body[1:]:  # the first is its docstring
        if not isinstance(node, (ast.Import, ast.ImportFrom)) and not _names_it(node):
            lines |= set(range(node.lineno, (node.end_lineno or 0) + 1))
    written = text.splitlines()
    return sum(1 for line in lines if written[line - 1].strip())


def _names_it(node: ast.stmt) -> bool:
    """Is it `ANSWER = ...`?"""
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return any(isinstance(target, ast.Name) and target.id == "ANSWER" for target in targets)


def grade(name: str) -> str:
    return next(one for one, most in GRADES.items() if size(name) <= most)


def order() -> list[str]:
    """By grade, then by chapter, then by size."""
    from scripts.contents import chapters

    place = {one.name: number for number, one in enumerate(chapters())}
    grades = list(GRADES)
    return sorted(
        TASKS, key=lambda name: (grades.index(grade(name)), place[TASKS[name].chapter], size(name))
    )


def table() -> str:
    """A row for each, under its grade."""
    from scripts.contents import chapters

    titles = {one.name: one.title for one in chapters()}
    return "\n".join(_rows(titles))


def _rows(titles: dict[str, str]) -> Iterator[str]:
    yield "| run | you write | lines | read before | paper |"
    yield "|---|---|---:|---|---|"
    before = ""
    for name in order():
        if grade(name) != before:
            before = grade(name)
            yield f"| **{before}** | | | | |"
        writes, chapter, paper = TASKS[name]
        link = f"[{titles[chapter]}]({chapter}.md)"
        yield f"| `exercises.{name}` | {writes} | {size(name)} | {link} | {paper} |"
