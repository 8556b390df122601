"""How many examples each test ran: what `pytest --counts FILE` writes at the end of a run.

A test that Hypothesis draws for counts its valid examples, one that says so itself (`exercised`)
what it says, any other 1. Only what passed counts.
"""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis.statistics import collector

from tests.support.sometimes import SEEN

_said: Counter[str] = Counter()


def exercised(times: int) -> None:
    """The test that runs now went through so many cases that Hypothesis knows nothing of."""
    _said["now"] += times


def test_of(nodeid: str) -> str:
    """`path::name`, without parameters: of a state machine the class, `path::TestPair`."""
    return nodeid.partition("[")[0].removesuffix("::runTest")


def valid_examples(statistics: dict[str, Any]) -> int:
    """Valid examples of one use of `given`, in all phases; without discarded and failing ones."""
    phases = [value for name, value in statistics.items() if name.endswith("-phase")]
    return sum(one["status"] == "valid" for phase in phases for one in phase["test-cases"])


class Counting:
    """A plugin for pytest.

    Attributes:
        counts: By test, as `test_of` names it.
    """

    def __init__(self, file: Path):
        self.file = file
        self.counts: Counter[str] = Counter()
        self._examples = 0

    # The last of the wrappers is the innermost one: Hypothesis' plugin listens already.
    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_call(self) -> Iterator[None]:
        listener: Any = collector  # typed for None only
        outer = listener.value
        self._examples = 0
        _said.clear()

        def listen(statistics: Any) -> None:
            self._examples += valid_examples(statistics)
            if outer is not None:
                outer(statistics)

        with listener.with_value(listen):
            yield

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed:
            self.counts[test_of(report.nodeid)] += self._examples + _said["now"] or 1

    def pytest_sessionfinish(self) -> None:
        self.file.write_text(json.dumps({"counts": self.counts, "seen": SEEN}), "utf-8")
