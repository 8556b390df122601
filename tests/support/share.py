"""A share of the cases of each test, for runs that must be short: `--share 20 --share-seed 7`.

A test with parameters keeps so many percent of its cases, and at least one; a test without any is
kept. So every test runs, and what is left out is more of the same kind. Only a test that is marked
`slow` is a matter of chance: each of its cases is kept with so many percent. Which cases are kept
follows from the seed and each case's name alone, not from the other tests of a run: processes that
share the tests choose alike, and a failure comes back under the same seed.

With `--minutes 12` the files come in an order that the seed gives, and no test begins later than so
many minutes after the run: over many seeds all files have their turn.
"""

import hashlib
import time
from collections.abc import Iterable
from math import ceil

import pytest

EVERYTHING = 100


class Share:
    """A plugin for pytest.

    Args:
        percent: Share of the cases of each test, in [1, 100].
        seed: Names the choice; runs with other seeds keep other cases.
        minutes: After so many no test begins, and those that are left are skipped; None: all run.
    """

    def __init__(self, percent: int, seed: int, minutes: float | None = None) -> None:
        self.percent, self.seed = percent, seed
        self._end = None if minutes is None else time.monotonic() + 60 * minutes

    def pytest_report_header(self) -> str | None:
        if self.percent == EVERYTHING:
            return None
        given = f"--share {self.percent} --share-seed {self.seed}"
        return f"of tests with parameters, {self.percent} % of the cases: {given} repeats them"

    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        if self._end is not None:
            items.sort(key=lambda item: _number(self.seed, item.nodeid.partition("::")[0]))
        if self.percent == EVERYTHING:
            return
        slow = {item.nodeid for item in items if item.get_closest_marker("slow") is not None}
        usual = [item.nodeid for item in items if item.nodeid not in slow]
        keep = kept(usual, self.percent, self.seed) | by_chance(slow, self.percent, self.seed)
        left_out = [item for item in items if item.nodeid not in keep]
        items[:] = [item for item in items if item.nodeid in keep]
        config.hook.pytest_deselected(items=left_out)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        if self._end is not None and time.monotonic() > self._end:
            pytest.skip("its minutes are over (--minutes)")


def kept(names: Iterable[str], percent: int, seed: int) -> set[str]:
    """The names of cases that are kept, of all names: "file.py::test[case]"."""
    cases: dict[str, list[str]] = {}
    for name in names:
        cases.setdefault(name.partition("[")[0], []).append(name)

    return {
        name
        for each in cases.values()
        for name in sorted(each, key=lambda name: _number(seed, name))[
            : ceil(len(each) * percent / EVERYTHING)
        ]
    }


def by_chance(names: Iterable[str], percent: int, seed: int) -> set[str]:
    """The names of slow cases that are kept: each with so many percent."""
    return {name for name in names if _number(seed, name) % EVERYTHING < percent}


def _number(seed: int, name: str) -> int:
    return int.from_bytes(hashlib.sha256(f"{seed} {name}".encode()).digest())
