"""The tutorial's table of contents and reading paths, in the order of mkdocs.yml's nav."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ENTRY = re.compile(r"^( +)- (.+?): *(tutorial/(?!index)\S+\.md|\S+\.md)?$")
LEARN = re.compile(r"^\*\*What you learn\.\*\*\s+|^[A-Z]", re.MULTILINE)
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
WORD = re.compile(r"\w")
WORDS, LINES = 200, 15  # of prose and of code, in a minute
OUTPUT_LINES = 6  # of what a cell prints, in the mean
PATHS = {
    "An hour: what PagedAttention is": (
        "system", "see-it", "why-cache", "why-memory", "blocks-by-hand", "playground",
    ),
    "An evening: how an engine decides": (
        "system", "why-cache", "why-memory", "virtual-memory", "attention", "blocks-by-hand",
        "block-manager", "scheduler", "beside-orca", "swap-or-recompute", "sharing",
        "prefix-caching", "playground", "exercises",
    ),
    "An evening: how kernels are written": (
        "attention", "kernel-ladder", "pallas-line-by-line", "triton-line-by-line",
        "mosaic-line-by-line", "kernel-puzzles", "add-a-kernel",
    ),
    "A teacher, before a lesson: what to show, to ask and to set": (
        "teaching", "why-cache", "why-memory", "blocks-by-hand", "playground", "scheduler",
        "swap-or-recompute", "beside-orca", "virtual-memory", "slides", "exam", "exercises",
    ),
    "Two weekends: all of it": (),
}  # fmt: skip
"""Pages of each path; none: all."""


@dataclass(frozen=True)
class Chapter:
    """A page of the tutorial."""

    title: str
    path: str
    part: str

    @property
    def name(self) -> str:
        return Path(self.path).stem

    def text(self) -> str:
        return (ROOT / "docs" / self.path).read_text("utf-8")

    def begins(self) -> str:
        """The clause that says what it is about."""
        text = self.text()
        found = LEARN.search(text)
        assert found is not None, f"{self.path} says nothing"
        at = found.end() if found[0].startswith("*") else found.start()
        return re.split(r"[.;:](?:\s|$)", text[at:], maxsplit=1)[0].replace("\n", " ")

    def minutes(self) -> int:
        """To read what the page shows: code and results that it takes from elsewhere count, too."""
        from scripts.docs_hooks import OUTPUT, with_code_and_results

        text = with_code_and_results(self.text())
        code = sum(block.count("\n") - 1 for block in FENCED.findall(text))
        code += OUTPUT_LINES * len(OUTPUT.findall(text))
        words = [word for word in FENCED.sub("", text).split() if WORD.search(word)]
        return max(1, round(len(words) / WORDS + code / LINES))


def chapters() -> Iterator[Chapter]:
    """In the nav's order, each with the part that it stands in."""
    part, inside = "", False
    for line in (ROOT / "mkdocs.yml").read_text("utf-8").splitlines():
        found = ENTRY.match(line)
        if found is None:
            continue
        indent, title, path = len(found[1]), found[2], found[3]
        if path is None:
            inside = indent > 2
            part = title if inside else ""
        elif path.startswith("tutorial/") and not path.endswith("/index.md"):
            yield Chapter(title, path, part if indent > 6 else "")


def contents() -> str:
    """A row for each chapter, under its part: its title, how it begins, minutes to read it."""
    rows, part = ["| | chapter | is about | min |", "|---:|---|---|---:|"], ""
    for number, one in enumerate(chapters(), 1):
        if one.part != part:
            part = one.part
            rows.append(f"| | **{part}** | | |")
        link = f"[{one.title}]({one.name}.md)"
        rows.append(f"| {number} | {link} | {one.begins()}. | {one.minutes()} |")
    return "\n".join(rows)


def paths() -> str:
    """The reading paths, each with its time.

    Raises:
        LookupError: A path names a chapter that is not there; the build fails.
    """
    known = {one.name: one for one in chapters()}
    lines = []
    for title, names in PATHS.items():
        for name in names:
            if name not in known:
                raise LookupError(f"{title}: there is no chapter {name}")
        total = sum(known[name].minutes() for name in names or known)
        time = f"{total} minutes" if total < 90 else f"{total / 60:.0f} hours"
        links = [f"[{known[name].title}]({name}.md)" for name in names]
        which = " → ".join(links) if links else "The chapters in their order, with the exercises"
        lines.append(f"- **{title}** ({time} to read). {which}.")
    return "\n".join(lines)
