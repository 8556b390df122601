"""Records of what was found: one form, a row of the page each, and programs that are whole."""

import ast
import json
import re
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.conformance.benchmark import BENCHMARK, searched
from benchmarks.conformance.records import (
    ALWAYS,
    OF_A_FIND,
    RECORDS,
    REPRODUCTIONS,
    Bug,
    Entry,
    file_of,
    keep,
    load,
    of_report,
    place,
    said,
    together,
)  # fmt: skip
from benchmarks.conformance.targets import TARGETS, chosen
from benchmarks.registry import parse
from paged_conformance.suites import SUITES, suite_of
from scripts.conformance_pages import bugs, conformance

ENTRIES = load()
PROGRAMS = sorted((RECORDS / REPRODUCTIONS).glob("*.py"))


def test_each_entry_has_the_form() -> None:
    assert ENTRIES
    for entry in ENTRIES:
        assert entry.keys() >= ALWAYS, entry
        assert (entry.keys() >= OF_A_FIND) == entry["found"] == ("example" in entry), entry
        assert entry["kind"] in SUITES and entry["examples"] > 0 and entry["seconds"] >= 0
        assert (
            "reproduction" not in entry
            or (RECORDS / REPRODUCTIONS / entry["reproduction"]).is_file()
        )


def test_each_entry_is_in_its_file_in_its_place() -> None:
    for path in RECORDS.glob("*.json"):
        entries = json.loads(path.read_text("utf-8"))
        assert {file_of(entry) for entry in entries} == {path.name}
        assert entries == sorted(entries, key=place)


def test_each_bug_has_a_row_and_no_two_rows_are_alike() -> None:
    rows = conformance("found").splitlines()[2:]
    assert len(rows) == len(bugs())
    assert sorted(map(place, chain(*bugs()))) == sorted(map(place, ENTRIES))
    for row, (entry, *others) in zip(rows, bugs(), strict=True):
        assert row.startswith(f"| {entry['project']} {entry['version']}, {entry['kind']} |")
        assert ("| no alarm" in row) != entry["found"]
        assert all(f"`{other['property']}`" in row for other in others)
        assert row.replace("\\|", "").count("|") == 4, "more columns do not fit on a phone"
    what = [(row.split("|")[1], row.split("|")[3].split(" fell:")[0]) for row in rows]
    assert len(set(what)) == len(what)


def test_versions_are_in_order() -> None:
    versions = ["0.9.2", "0.10.1", "0.10.2", "0.33.0", "0.33.0 async"]
    entries = [{"project": "a", "version": version, "kind": "k"} for version in versions]
    assert sorted(reversed(entries), key=place) == entries
    commits = [
        {"project": "a", "version": version, "kind": "k"} for version in ("44a51af", "9fa256a")
    ]
    assert sorted(reversed(commits), key=place) == commits


def report(*statuses: str) -> dict[str, Any]:
    properties = [
        {"property": f"p{number}", "invariant": "I1", "status": status, "examples": 5, "lacking": 2,
         "seconds": 1.0, "says": "ValueError: ", "trace": None, "example": {}}
        for number, status in enumerate(statuses)
    ]  # fmt: skip
    return {"kind": "scheduler", "seconds": 2.0, "properties": properties}


def entries_of(*statuses: str) -> list[Entry]:
    return of_report(report(*statuses), project="p", version="1", how="so")


def test_a_run_is_an_entry_or_each_of_its_finds_is() -> None:
    (quiet,) = entries_of("held", "skipped", "held")
    assert not quiet["found"] and quiet["properties"] == 2 and quiet["examples"] == 6
    assert [entry["property"] for entry in entries_of("fell", "held", "fell")] == ["p0", "p2"]
    assert all(entry["examples"] == 3 for entry in entries_of("fell", "known"))
    assert all(entry["by_property"] == {"p1": 3} for entry in entries_of("fell", "held", "fell"))


def test_a_find_is_known_by_the_first_bug_that_fits() -> None:
    bugs = [
        Bug("a", properties="p[12]", says="Type"),
        Bug("b", properties="p1", says="Value", reproduction="b.py"),
        Bug("c", says="Value"),
    ]
    finds = of_report(report("fell", "fell"), project="p", version="1", how="so", bugs=bugs)
    assert [(find["bug"], find.get("reproduction")) for find in finds] == [
        ("c", None), ("b", "b.py"),
    ]  # fmt: skip
    assert all(find["bug"] == "" for find in entries_of("fell", "fell")), "else it is new"


def test_the_bugs_of_targets_name_what_was_found_in_them() -> None:
    targets = {(target.kind, target.project, target.version): target for target in TARGETS}
    for entry in ENTRIES:
        target = targets.get((entry["kind"], entry["project"], entry["version"]))
        if target is not None and entry["found"]:
            bug = next(bug for bug in target.bugs if bug.fits(entry))
            assert (bug.name, bug.reproduction) == (entry["bug"], entry.get("reproduction", ""))


def searched_by(seeds: list[int], **by_property: int) -> Entry:
    (entry,) = entries_of("held")
    counts = {"examples": sum(by_property.values()), "by_property": by_property}
    return entry | counts | ({"seeds": seeds} if seeds else {})


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 50), st.integers(1, 50)), min_size=1))
def test_searches_of_other_seeds_are_added_up(runs: list[tuple[int, int, int]]) -> None:
    seed, a, b = runs[0]
    entry = searched_by([seed], a=a, b=b)
    for seed, a, b in runs[1:]:
        after = searched_by([seed], a=a, b=b)
        both = together(entry, after)
        assert len(set(both["seeds"])) == len(both["seeds"])
        assert both["examples"] == sum(both["by_property"].values())
        total = entry["examples"] + after["examples"]
        most = max(entry["examples"], after["examples"])
        assert both["examples"] == (most if seed in entry["seeds"] else total)
        entry = both


def test_other_searches_are_not_added_up() -> None:
    """Those of other properties draw other examples, and ours has no version that stays."""
    for before, after in (
        (searched_by([1], a=5), searched_by([2], a=2, b=2)),
        (searched_by([], a=5), searched_by([2], a=4)),
        (searched_by([], a=5), searched_by([], a=4)),
    ):
        assert together(before, after) == before
        assert together(after, before) == before


def test_what_was_found_stays_until_it_is_found_again(tmp_path: Path) -> None:
    other = {**entries_of("held")[0], "version": "2"}
    keep([*entries_of("fell", "fell"), other], tmp_path)
    assert [entry["version"] for entry in load(tmp_path)] == ["1", "1", "2"]
    keep([{**entries_of("held", "fell")[0], "examples": 7}], tmp_path)
    assert [entry["examples"] for entry in load(tmp_path)] == [3, 7, 3]
    keep([{**other, "examples": 8}], tmp_path)
    assert [entry["examples"] for entry in load(tmp_path)] == [3, 7, 8]


def test_of_an_exception_the_place_is_told() -> None:
    trace = (
        'File "/a/b/sched.py", line 3, in plan\n    x\nFile "/a/b/pool.py", line 4, in take\n    y'
    )
    assert said("AssertionError: ", trace) == "AssertionError, in take of pool.py"
    assert (
        said("<Seq object at 0x7f12> is not in list\nmore", None) == "<Seq object> is not in list"
    )


def test_targets_differ_and_name_what_is_there() -> None:
    assert len({str(target) for target in TARGETS}) == len(TARGETS)
    for target in TARGETS:
        properties = [prop.name for prop in suite_of(target.kind).properties()]
        assert not target.only or target.only in properties
        for bug in target.bugs:
            assert not bug.reproduction or (RECORDS / REPRODUCTIONS / bug.reproduction).is_file()
    with pytest.raises(SystemExit, match="no target fits"):
        chosen(["no such target"])


def test_a_target_is_searched() -> None:
    args = parse("conformance", BENCHMARK, ["--smoke", "--seconds", "1"])
    (target,) = chosen(args.only)
    (entry,) = searched(replace(target, only="counts"), args)
    assert not entry["found"] and entry["by_property"].keys() == {"counts"}
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", entry["date"])


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_a_program_needs_nothing_of_this_project(path: Path) -> None:
    tree = ast.parse(path.read_text("utf-8"))
    names = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    names += [a.name for node in ast.walk(tree) if isinstance(node, ast.Import) for a in node.names]
    ours = {"paged_conformance", "jax_engine", "reference", "benchmarks", "tests"}
    assert names and not ours & {name.split(".")[0] for name in names}
    assert re.search(r"\bI\d+\b|What must hold", ast.get_docstring(tree) or "")
    assert any(entry.get("reproduction") == path.name for entry in ENTRIES)
