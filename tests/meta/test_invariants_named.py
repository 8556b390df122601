"""Every invariant of the specification is named by the test that checks it.

The numbers are those of docs/correctness.md, which states each in words.
"""

import re

from tests.meta.trees import ROOT, modules

REQUIRED = [*range(1, 37), 39, 45, 46, 49, 50, 51]
INVARIANT = re.compile(r"\bI(\d{1,2})(?:\s*[-–]\s*I?(\d{1,2}))?\b")


def _numbers(text: str) -> set[int]:
    """The invariants a text names: `I13`, or a range such as `I1-I9`."""
    numbers: set[int] = set()
    for first, last in INVARIANT.findall(text):
        numbers.update(range(int(first), int(last or first) + 1))
    return numbers


def test_every_required_invariant_is_named_by_a_test() -> None:
    named: set[int] = set()
    for path in modules("tests"):
        if path.parent.name != "meta":
            named |= _numbers(path.read_text(encoding="utf-8"))
    assert [f"I{n}" for n in REQUIRED if n not in named] == []


def test_every_required_invariant_is_stated_in_the_docs() -> None:
    stated = _numbers((ROOT / "docs" / "correctness.md").read_text(encoding="utf-8"))
    assert [f"I{n}" for n in REQUIRED if n not in stated] == []


def test_ranges_are_understood() -> None:
    assert _numbers("I1-I3, I7 and I10–12, not XI4") == {1, 2, 3, 7, 10, 11, 12}
