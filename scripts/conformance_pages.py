"""What the pages have of the suite that others run: its kinds, contracts, examples and records."""

import inspect
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from benchmarks.conformance.records import RECORDS, REPRODUCTIONS, Entry, load
from paged_conformance.suites import SUITES, Suite

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples" / "conformance"
CONTRACTS = "conformance-contracts.md"
REPRODUCTIONS_PAGE = "conformance-reproductions.md"
FEW = 3  # properties that a row names
LANGUAGES = {".py": "python", ".js": "javascript", ".yml": "yaml"}


def conformance(what: str, name: str = "") -> str:
    """A part of a page.

    Args:
        what: "kinds", "contracts", "found", "reproductions" or "file".
        name: The file of examples/conformance.
    """
    if what == "file":
        path = EXAMPLES / name
        text = path.read_text("utf-8").strip()
        return f'```{LANGUAGES[path.suffix]} title="{name}"\n{text}\n```'
    parts = {"kinds": _kinds, "contracts": _contracts, "found": _found}
    return (parts | {"reproductions": _reproductions})[what]()


def suites() -> Iterator[Suite]:
    return (suite for suite in SUITES.values() if find_spec(suite.module) is not None)


def _kinds() -> str:
    """A row for each kind: what it is about, how many properties, which invariants."""
    rows = ["| kind | a target is | properties | invariants |", "|---|---|---:|---|"]
    for suite in suites():
        about = _cell(suite.contract().split("\n\n")[0].split(":")[0].rstrip("."))
        link = f"[`{suite.kind}`]({CONTRACTS}#{suite.kind})"
        numbers = sorted({int(p.invariant[1:]) for p in suite.properties() if p.invariant})
        listed = ", ".join(f"I{number}" for number in numbers)
        rows.append(f"| {link} | {about} | {len(suite.properties())} | {listed} |")
    return "\n".join(rows)


def _contracts() -> str:
    """A section for each kind: its contract, its capabilities and its properties."""
    return "\n\n".join(_contract(suite) for suite in suites())


def _contract(suite: Suite) -> str:
    parts = [f"## {suite.kind}", inspect.cleandoc(suite.contract())]
    if suite.capabilities():
        parts.append(f"### Capabilities of {suite.kind} targets")
        rows = [f"| `{word}` | {_cell(says)} |" for word, says in suite.capabilities().items()]
        parts.append("\n".join(["| word | says |", "|---|---|", *rows]))
    rows = ["| property | what must hold (invariant) | needs |", "|---|---|---|"]
    for prop in suite.properties():
        invariant = f" ({prop.invariant})" if prop.invariant else ""
        needs = ", ".join(f"`{word}`" for word in prop.needs)
        rows.append(f"| `{prop.name}` | {_cell(prop.sentence)}{invariant} | {needs} |")
    return "\n\n".join([*parts, f"### Properties of {suite.kind} targets", "\n".join(rows)])


def _found() -> str:
    """A row for each bug that was found, or for each search without an alarm.

    Three columns, since a phone has no room for more.
    """
    rows = ["| project, version, kind | examples | what was seen |", "|---|---:|---|"]
    for entry, *others in bugs():
        cells = (
            f"{entry['project']} {entry['version']}, {entry['kind']}",
            f"{entry['examples']:,} in {entry['seconds']:,.1f} s",
            _seen(entry, [other["property"] for other in others]),
        )
        rows.append("| " + " | ".join(map(_cell, cells)) + " |")
    return "\n".join(rows)


def bugs() -> list[list[Entry]]:
    """Entries of one bug in one version together; first what the fewest examples found."""
    together: dict[tuple[str, ...], list[Entry]] = {}
    for entry in load():
        bug = entry.get("bug") or entry.get("reproduction") or entry.get("property", "")
        which = (entry["project"], entry["version"], entry["kind"], bug)
        together.setdefault(which, []).append(entry)
    return [sorted(same, key=lambda entry: entry["examples"]) for same in together.values()]


def _seen(entry: Entry, others: list[str]) -> str:
    """What a search saw, and as what it is known; a find without a name of its own is new.

    Args:
        others: The properties that fell besides, for the same bug.
    """
    if not entry["found"]:
        note = entry.get("note")
        return f"no alarm ({_searched(entry)})" + (f"<br>{note}" if note else "")
    number = f" ({entry['invariant']})" if entry["invariant"] else ""
    seen = f"`{entry['property']}`{number} fell: `{_short(entry['says'])}`"
    if others:
        seen += f"; so did {', '.join(f'`{name}`' for name in sorted(others))}"
    held = entry.get("by_property")
    if held:
        seen += f"; {len(held)} others held in {sum(held.values()):,} examples"
    known = entry["bug"] or "new"
    if "reproduction" in entry:
        known += f" ([in one file]({_page_of(entry['reproduction'])}))"
    return f"{seen}<br>{known}"


def _searched(entry: Entry) -> str:
    """The properties of a search without an alarm."""
    if "property" in entry:
        return f"`{entry['property']}`"
    if 0 < len(entry.get("by_property", {})) <= FEW:
        return ", ".join(f"`{name}`" for name in entry["by_property"])
    return f"{entry['properties']} properties" if "properties" in entry else "all properties"


def _page_of(reproduction: str) -> str:
    return f"{REPRODUCTIONS_PAGE}#{_anchor(Path(reproduction))}"


def _reproductions() -> str:
    """A section for each file; the first line of its docstring says what is wrong."""
    parts = []
    for path in sorted((RECORDS / REPRODUCTIONS).glob("*.py")):
        text = path.read_text("utf-8").strip()
        code = f'```python title="{path.name}"\n{text}\n```'
        heading = text.split("\n")[0].strip('"').rstrip(".")
        parts.append(f"## {heading} {{ #{_anchor(path)} }}\n\n{code}")
    return "\n\n".join(parts)


def _anchor(reproduction: Path) -> str:
    return reproduction.stem.replace("_", "-")


def _short(text: str) -> str:
    line = text.strip().split("\n")[0]
    line = line.replace("`", "'")
    return line if len(line) <= 160 else line[:157] + "..."


def _cell(text: str) -> str:
    """Text for a cell of a table."""
    return re.sub(r"\s+", " ", text).replace("|", "\\|").strip()
