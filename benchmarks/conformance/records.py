"""The form of a record of `paged-conformance`: an entry for each find, or for a run without one.

An entry has `kind`, `project`, `version`, `found`, `examples` (those before the first that failed,
or all), `seconds` and `how`. A find has `property`, `invariant`, `says` (what was seen), `example`
(the smallest) and `bug` (what it is known as) as well; a run without one has `properties`, how many
ran. Both may have `by_property`, the examples of each that held. Some have `date`, `note`, `seeds`
(of searches that are added up) and `reproduction`: a file of `reproductions/` that needs only the
foreign project.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

RECORDS = Path(__file__).resolve().parents[1] / "results" / "conformance"
REPRODUCTIONS = "reproductions"
ALWAYS = frozenset({"kind", "project", "version", "found", "examples", "seconds", "how"})
OF_A_FIND = frozenset({"property", "invariant", "says", "example", "bug"})

type Entry = dict[str, Any]


@dataclass(frozen=True)
class Bug:
    """What finds are known as.

    Attributes:
        name: The number of its issue, or "no issue found", and what is wrong.
        properties: A pattern of the properties that fall by it.
        says: A part of what is seen then.
        reproduction: The file of `reproductions/` that shows it without the suite.
    """

    name: str = ""
    properties: str = "*"
    says: str = ""
    reproduction: str = ""

    def fits(self, find: Entry) -> bool:
        return fnmatch(find["property"], self.properties) and self.says in find["says"]


def load(folder: Path = RECORDS) -> list[Entry]:
    """All entries, by project, version and kind."""
    found: list[Entry] = []
    for path in folder.glob("*.json"):
        found += json.loads(path.read_text("utf-8"))
    return sorted(found, key=place)


def keep(entries: Iterable[Entry], folder: Path = RECORDS) -> None:
    """Puts entries in the place of those of the same search and property.

    What was found once stays, though another seed may not find it again. Searches without an alarm
    are put together (`together`).
    """
    new = list(entries)
    for name in {file_of(entry) for entry in new}:
        path = folder / name
        old: list[Entry] = json.loads(path.read_text("utf-8")) if path.exists() else []
        kept = {about(entry): entry for entry in old}
        for entry in new:
            if file_of(entry) == name:
                before = kept.get(about(entry))
                kept[about(entry)] = entry if before is None else together(before, entry)
        mine = sorted(kept.values(), key=place)
        path.write_text(json.dumps(mine, indent=1) + "\n", encoding="utf-8")


def together(before: Entry, after: Entry) -> Entry:
    """The entry of two searches of one version.

    A find is the later one. Without an alarm, examples are added up where other seeds drew them for
    the same properties; else the search that had more of them stays.
    """
    if after["found"]:
        return after
    seeds = before.get("seeds", []) + after.get("seeds", [])
    differ = "seeds" in before and "seeds" in after and len(set(seeds)) == len(seeds)
    old, new = before.get("by_property", {}), after.get("by_property", {})
    if not (differ and old.keys() == new.keys()):
        return max(after, before, key=lambda entry: int(entry["examples"]))
    added = {name: before[name] + after[name] for name in ("examples", "seconds")}
    how = f"{before['how']}; {after['how']}"
    counts = dict(Counter(old) + Counter(new))
    return {**after, **added, "by_property": counts, "seeds": sorted(seeds), "how": how}


def about(entry: Entry) -> tuple[Any, ...]:
    """The search, and the property that fell."""
    found = entry["property"] if entry["found"] else None
    return entry["kind"], entry["project"], entry["version"], found


def file_of(entry: Entry) -> str:
    project = re.sub(r"[^a-z0-9]+", "-", entry["project"].lower()).strip("-")
    return f"{entry['kind']}-{project}.json"


def place(entry: Entry) -> tuple[Any, ...]:
    """Where it stands among others: a version's numbers count as numbers, those of a hash not."""
    number = r"($)" if re.match(r"[0-9a-f]{7}\b", entry["version"]) else r"(\d+)"
    parts = re.split(number, entry["version"])
    version = [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]
    return entry["project"].lower(), version, entry["kind"], entry.get("property", "")


def of_report(
    report: dict[str, Any], *, project: str, version: str, how: str, bugs: Sequence[Bug] = ()
) -> list[Entry]:
    """The entries of one run.

    Args:
        report: As `paged-conformance --report FILE.json` writes it.
        bugs: What its finds are known as: the first that fits, or nothing.
    """
    shared = {"kind": report["kind"], "project": project, "version": version}
    ran = [one for one in report["properties"] if one["status"] in ("held", "fell", "known")]
    fell = [one for one in ran if one["status"] != "held"]
    held = [one for one in ran if one["status"] == "held"]
    by_property = {one["property"]: one["examples"] - one["lacking"] for one in held}
    if not fell:
        numbers = {"examples": sum(by_property.values()), "seconds": round(report["seconds"], 1)}
        counts = {"properties": len(ran), **numbers, "by_property": by_property}
        return [{**shared, "found": False, **counts, "how": how}]
    finds = [
        {
            **shared,
            "property": one["property"],
            "invariant": one["invariant"],
            "found": True,
            "examples": one["examples"] - one["lacking"],
            "seconds": round(one["seconds"], 1),
            "says": said(one["says"], one["trace"]),
            "example": one["example"],
            "by_property": by_property,
            "how": how,
        }
        for one in fell
    ]
    return [find | _known(find, bugs) for find in finds]


def _known(find: Entry, bugs: Sequence[Bug]) -> Entry:
    bug = next((bug for bug in bugs if bug.fits(find)), Bug())
    return {"bug": bug.name} | ({"reproduction": bug.reproduction} if bug.reproduction else {})


def said(says: str, trace: str | None) -> str:
    """What was seen; of an exception also where it was raised, as many have no words."""
    first = re.sub(r" at 0x[0-9a-f]+", "", says.strip().split("\n")[0]).rstrip(": ")
    places = re.findall(r'File "(?:.*[/\\])?([^"/\\]+)", line \d+, in (\S+)', trace or "")
    return f"{first}, in {places[-1][1]} of {places[-1][0]}" if places else first
