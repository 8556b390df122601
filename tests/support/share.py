"""A share of the cases of each test, for runs that must be short: `--share 20 --share-seed 7`.

A test with parameters keeps so many percent of its cases, and at least one; a test without any is
kept. So every test runs, and what is left out is more of the same kind. Which cases are kept
follows from the seed and each case's name alone, not from the other tests of a run: processes that
share the tests choose alike, and a failure comes back under the same seed.
"""

import hashlib
from collections.abc import Iterable
from math import ceil

import pytest

EVERYTHING = 100


class Share:
    """A plugin for pytest.

    Args:
        percent: Of the cases of each test, in [1, 100].
        seed: Names the choice; runs with other seeds keep other cases.
    """

    def __init__(self, percent: int, seed: int) -> None:
        self.percent, self.seed = percent, seed

    def pytest_report_header(self) -> str | None:
        if self.percent == EVERYTHING:
            return None
        given = f"--share {self.percent} --share-seed {self.seed}"
        return f"of tests with parameters, {self.percent} % of the cases: {given} repeats them"

    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        if self.percent == EVERYTHING:
            return
        keep = kept([item.nodeid for item in items], self.percent, self.seed)
        left_out = [item for item in items if item.nodeid not in keep]
        items[:] = [item for item in items if item.nodeid in keep]
        config.hook.pytest_deselected(items=left_out)


def kept(names: Iterable[str], percent: int, seed: int) -> set[str]:
    """The names of cases that are kept, of all names: "file.py::test[case]"."""
    cases: dict[str, list[str]] = {}
    for name in names:
        cases.setdefault(name.partition("[")[0], []).append(name)

    def place(name: str) -> bytes:
        return hashlib.sha256(f"{seed} {name}".encode()).digest()

    return {
        name
        for each in cases.values()
        for name in sorted(each, key=place)[: ceil(len(each) * percent / EVERYTHING)]
    }
