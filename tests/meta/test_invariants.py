"""Every invariant is stated in docs/correctness.md, named by tests, and exercised by them.

The page's table is made by `python -m tests.thorough --table`; its counts come from the record of
thorough runs, and need not be those of the latest one.
"""

import pytest

from tests.thorough import tables
from tests.thorough.named import named, numbers
from tests.thorough.record import read

REQUIRED = [*range(1, 37), 39, 45, 46, 49, 50, 51]
PAGE = tables.PAGE.read_text("utf-8")
REGENERATE = "python -m tests.thorough --table"


def test_every_required_invariant_is_named_by_a_test() -> None:
    names = named()  # reads every file of tests
    assert [f"I{n}" for n in REQUIRED if n not in names] == []


def test_every_named_invariant_is_stated_in_the_docs() -> None:
    stated = numbers(PAGE.replace(tables.between(PAGE, "exercised"), ""))
    assert [f"I{n}" for n in sorted({*REQUIRED, *named()}) if n not in stated] == []


def test_the_table_has_the_tests_that_name_each_invariant() -> None:
    """None that is gone, and none that is missing."""
    rows = tables.between(PAGE, "exercised").splitlines()[2:]
    expected = tables.exercised_rows(named(), read())
    found, wanted = ([tables.without_counts(row) for row in some] for some in (rows, expected))
    assert found == wanted, f"{REGENERATE} writes it"


@pytest.mark.slow
def test_every_named_invariant_was_exercised_in_the_record() -> None:
    idle = [row for row in tables.exercised_rows(named(), read()) if row.endswith("| 0 |")]
    assert idle == [], "python -m tests.thorough --part NAME --minutes 0 runs a part with its tests"


def test_ranges_are_understood() -> None:
    assert numbers("I1-I3, I7 and I10–12, not XI4") == {1, 2, 3, 7, 10, 11, 12}
    assert numbers("I1 to I3, I16 to I18, I22") == {1, 2, 3, 16, 17, 18, 22}
    assert numbers("I20 to 30") == {20}
