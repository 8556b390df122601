"""What a reader's kernel, block manager, scheduler and engine are held to: the table is true."""

import re

from paged_conformance.kernel import PROPERTIES
from playground.trace_checks import NEVER, PLAN, SENTENCES, WRITTEN, section
from tests.docs.test_search import NAMES, SEARCHES
from tests.meta.trees import ROOT

PAGE = (ROOT / "docs" / "conformance.md").read_text("utf-8")
ROW = re.compile(r"^\| (your [a-z ]+) \| (.+) \| (.+) \| (.+) \|$", re.MULTILINE)
ROWS = {yours: columns for yours, *columns in ROW.findall(PAGE)}


def numbers(text: str) -> set[int]:
    """All numbers that a row names, those of its ranges included."""
    found: set[int] = set()
    for first, last in re.findall(r"\bI(\d+)(?: to I(\d+))?", text):
        found |= set(range(int(first), int(last or first) + 1))
    return found


def test_it_has_a_row_for_each_kind() -> None:
    assert [*ROWS] == ["your kernel", "your block manager", "your scheduler", "your engine"]
    named = re.findall(r"your (.+)$", NAMES["conformance.md"])[0]
    assert named == "kernel, block manager, scheduler or engine"


def test_a_trace_checks_what_the_rows_say_and_nothing_else() -> None:
    manager, scheduler = ROWS["your block manager"], ROWS["your scheduler"]
    checked = {int(one.name[1:]) for one in (*PLAN, *WRITTEN)} | {9}  # I9 is checked at the end
    assert numbers(manager[0]) | numbers(scheduler[0]) == checked
    assert numbers(manager[0]) & numbers(scheduler[0]) == {5}
    for number in numbers(scheduler[0]) - {5, 15}:
        assert section(f"I{number}") == "scheduler"
    unseen = numbers(manager[2]) - {13} | numbers(scheduler[2])
    assert unseen == set(range(1, 30)) - checked
    assert {int(name[1:]) for name in NEVER} <= unseen and len(SENTENCES) == 20


def test_a_kernel_is_held_to_the_invariants_of_the_suite() -> None:
    named = {int(one.invariant[1:]) for one in PROPERTIES if one.invariant is not None}
    assert numbers(ROWS["your kernel"][0]) == named


def test_the_functions_that_an_engine_enters_by_are_there() -> None:
    table = PAGE[PAGE.index("## Your engine") : PAGE.index("## Your kernel")]
    for function, path in re.findall(r"`(\w+)` in `(tests/\S+\.py)`", table):
        source = (ROOT / path).read_text("utf-8")
        assert f"def {function}(" in source
        assert "SideBySide(InProcess(engine)" in source or "hold(way(engine)" in source
        assert f"pytest {path}" in table
    assert "def test_i30_to_i37" in source_of("test_engine_against_reference.py")


def source_of(name: str) -> str:
    return (ROOT / "tests" / "properties" / name).read_text("utf-8")


def test_pages_say_the_words_that_readers_search_for() -> None:
    """Beside the slow test of the search itself."""
    for words, page in SEARCHES.items():
        if words.startswith("your "):
            text = (ROOT / "docs" / f"{page}.md").read_text("utf-8")
            assert words in text.split("---")[1] and words in text.split("---", 2)[2].lower()


def test_the_pages_of_managers_and_schedulers_lead_to_the_trace() -> None:
    for path, link in (
        ("index.md", "tutorial/your-trace.md"),
        ("correctness.md", "tutorial/your-trace.md"),
        ("conformance.md", "tutorial/your-trace.md"),
        ("tutorial/block-manager.md", "(your-trace.md"),
        ("tutorial/scheduler.md", "(your-trace.md"),
    ):
        assert link in (ROOT / "docs" / path).read_text("utf-8")
