"""Runs collected tests in this process, which is a fork, one after another."""

import time
from collections.abc import Callable, Sequence

import pytest


class _Results:
    """Remembers how the test that runs has ended.

    What a fixture finds when it is torn down does not count: some look at what all tests of a file
    did, and here some of them may be missing.
    """

    def __init__(self) -> None:
        self.outcome = "passed"

    @pytest.hookimpl
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and report.when != "teardown":
            self.outcome = "failed"
        elif report.skipped and self.outcome == "passed":
            self.outcome = "skipped"


def run_items(
    items: Sequence[pytest.Item],
    begins: Callable[[pytest.Item], None],
    ended: Callable[[pytest.Item, str, float], bool],
) -> None:
    """Runs tests until `ended(test, outcome, seconds)` says that it is enough."""
    results = _Results()
    for item, following in zip(items, [*items[1:], None], strict=False):
        results.outcome = "passed"
        if not item.config.pluginmanager.is_registered(results):
            item.config.pluginmanager.register(results)
        begins(item)
        started = time.perf_counter()
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if ended(item, results.outcome, time.perf_counter() - started):
            return
