"""What has happened in a run of the tests, by name and how often, and what must have.

A property that was never put to the test holds, too. So a run that has all tests of the engine's
suites, with all cases, no fewer examples than usual and no limit in minutes, fails if something
that these are there for never happened, however green they are. The simulation does the same with
its own list.
"""

from collections import Counter
from typing import Any

import pytest
from hypothesis import currently_in_test_context, event, settings

from tests.support.share import EVERYTHING

SUITES = ("tests.properties.test_engine_shell", "tests.properties.test_engine_against_reference")
MUST_HAPPEN = (
    "preempted by recompute", "preempted by swap", "copy-on-write", "rebuild",
    "cache hit", "runs in parts", "best_of", "abort in flight", "aborted", "deadline",
    "a step failed", "a step failed: swap_in", "a step failed: swap_out", "a step failed: copy",
    "a step failed: collect after swap_in", "a step failed: collect after swap_out",
    "a step failed: collect after copy", "a step failed: moves without a launch",
    "step by step the oracle's", "an adapter was replaced", "rows of several adapters",
    "preempted with an adapter",
)  # fmt: skip

SEEN: Counter[str] = Counter()


def saw(what: str, times: int = 1) -> None:
    """Notes it, in Hypothesis' statistics, too."""
    if times:
        SEEN[what] += times
        if currently_in_test_context():
            event(what)


def are_whole(items: list[pytest.Item]) -> bool:
    """Whether these tests have all those of each suite."""
    chosen: dict[str, set[str]] = {name: set() for name in SUITES}
    modules = {}
    for item in items:
        if isinstance(item, pytest.Function) and item.module.__name__ in chosen:
            modules[item.module.__name__] = item.module
            chosen[item.module.__name__].add(item.originalname)
    return len(modules) == len(SUITES) and all(
        {one for one in vars(module) if one.startswith("test_")} <= chosen[name]
        for name, module in modules.items()
    )


class Sometimes:
    """A plugin for pytest: adds up what the processes of a run saw, and fails it at its end."""

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()
        self.whole = False

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        few = settings.default.max_examples < settings.get_profile("dev").max_examples
        option = session.config.getoption
        if option("--share") == EVERYTHING and option("--minutes") is None and not few:
            self.whole = self.whole or are_whole(session.items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """xdist's, in the process that has started the others."""
        told = getattr(node, "workeroutput", {})  # a process that died told nothing
        self.whole = self.whole or told.get("whole", False)
        self.seen.update(told.get("seen", {}))

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        self.seen.update(SEEN)
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput |= {"seen": dict(self.seen), "whole": self.whole}
        elif self.whole and self.missing and not session.testsfailed:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if self.whole:
            counts = ", ".join(f"{what} {self.seen[what]}" for what in MUST_HAPPEN)
            terminalreporter.write_line(f"the engine's suites met: {counts}")
            if self.missing:
                terminalreporter.write_line(f"never happened: {', '.join(self.missing)}", red=True)

    @property
    def missing(self) -> list[str]:
        return [what for what in MUST_HAPPEN if not self.seen[what]]
