"""The tests of `pytest --conformance`: a collector for each target, an item for each property."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from paged_conformance import replay, report
from paged_conformance.command import BadUsage, read_known
from paged_conformance.errors import TargetError
from paged_conformance.properties import Capabilities, Property
from paged_conformance.runs import Outcome, Status, judge, skip_if_lacking
from paged_conformance.search import search
from paged_conformance.suites import NoSuite, Suite, suite_of
from paged_conformance.targets import Target, capabilities, opened


def items_of(session: pytest.Session, text: str, number: int) -> list[pytest.Item]:
    """The tests of one `--conformance KIND=TARGET`, the one with this number.

    Raises:
        pytest.UsageError: There is no such kind, or the file of known failures is not right.
    """
    kind, equals, name = text.partition("=")
    if not equals:
        raise pytest.UsageError(f"--conformance {text}: write KIND=module:name")
    title = f"conformance[{kind}={name}]" + (f"#{number}" if number else "")
    try:
        collector = Conformance.from_parent(
            session, name=title, nodeid=title, suite=suite_of(kind), target=Target(name)
        )
        return list(collector.collect())
    except (BadUsage, NoSuite) as error:
        raise pytest.UsageError(f"--conformance {text}: {error}") from error


class Conformance(pytest.Collector):
    """The suite of one target: it opens the target, and closes it after the last property."""

    def __init__(self, *, suite: Suite, target: Target, **rest: Any) -> None:
        super().__init__(**rest)
        self.suite, self.target = suite, target
        self.known: dict[str, str] = {}
        self.num_skipped = 0
        self._open = ExitStack()
        self._made: tuple[Any, Capabilities] | None = None

    def collect(self) -> Iterator["PropertyItem"]:
        properties = self.suite.properties()
        known = self.config.getoption("--conformance-known")
        self.known = read_known(known, self.suite) if known else {}
        seconds = self.config.getoption("--conformance-seconds") / len(properties)
        for prop in properties:
            yield PropertyItem.from_parent(self, name=prop.name, prop=prop, seconds=seconds)

    def make(self) -> tuple[Any, Capabilities]:
        """The factory and what it can do; opened at the first call."""
        if self._made is None:
            made = self._open.enter_context(opened(self.target, self.suite))
            self._made = made, capabilities(made, self.suite)
        return self._made

    def teardown(self) -> None:
        self._open.close()
        self._made = None


class PropertyItem(pytest.Item):
    """One property of a suite."""

    def __init__(self, *, prop: Property, seconds: float, **rest: Any) -> None:
        super().__init__(**rest)
        self._outcome, self._seconds = Outcome(prop), seconds

    @property
    def owner(self) -> Conformance:
        assert isinstance(self.parent, Conformance)
        return self.parent

    def runtest(self) -> None:
        outcome, (make, has) = self._outcome, self.owner.make()
        skip_if_lacking(outcome, has, self.owner.suite.capabilities())
        if outcome.status is Status.NOT_RUN:
            seed = self.config.getoption("--conformance-seed")
            search(
                outcome.prop,
                make,
                has,
                seconds=self._seconds,
                seed=seed,
                found=outcome.found,
            )
            judge(outcome, self.owner.known, self._keep)
        if outcome.status is Status.SKIPPED:
            self.owner.num_skipped += 1
            if self.owner.num_skipped == len(self.owner.suite.properties()):
                pytest.fail("no property of this suite ran: all were skipped", pytrace=False)
            pytest.skip(outcome.why)
        if outcome.status is Status.KNOWN:
            pytest.xfail(outcome.why)
        if outcome.status is Status.FELL:
            raise Fell
        if outcome.unexpected:
            pytest.fail("it held, but is in the file of known failures", pytrace=False)

    def _keep(self, outcome: Outcome) -> None:
        kind, target = self.owner.suite.kind, self.owner.target
        outcome.script = replay.write(outcome, kind, target, Path("conformance-failures"))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        if isinstance(excinfo.value, Fell):
            return "\n".join(report.failure(self._outcome))
        if isinstance(excinfo.value, TargetError):
            return str(excinfo.value)
        return super().repr_failure(excinfo)

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, 0, f"conformance {self.owner.suite.kind}: {self.name}"


class Fell(Exception):
    """The property fell; its outcome says how."""
