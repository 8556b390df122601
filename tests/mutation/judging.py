"""Plants generated bugs in forks of one process, and runs the tests that reach them.

The process has collected the tests and imported the code. A child gives the function its code with
the bug in it, and runs the quickest test first: most bugs are noticed within milliseconds.
"""

import gc
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType

import pytest

from tests.mutation.children import Done, Say, in_children
from tests.mutation.generated import Generated
from tests.mutation.planting import ROOT
from tests.mutation.reach import Reach
from tests.mutation.running import run_items

# A test may take so many seconds, and so many times as long as without the bug.
SLACK_S, SLACK = 10.0, 6.0


@dataclass(frozen=True)
class Job:
    """A bug, and the tests that may notice it: the first is run first."""

    mutant: Generated
    tests: list[Reach]


@dataclass(frozen=True)
class Judged:
    """What became of a bug; `by` is the test that noticed it, or says that none did."""

    mutant: Generated
    kind: str
    by: str


def tests_for(mutant: Generated, reaches: list[Reach], budget_s: float) -> list[Reach]:
    """The tests that run a bug's lines, quickest first, as many as take so long together."""
    lines = set(mutant.lines)
    chosen: list[Reach] = []
    for one in sorted(reaches, key=lambda one: one.seconds):
        if not lines.isdisjoint(one.lines.get(mutant.name.file, ())):
            budget_s -= one.seconds
            if chosen and budget_s < 0:
                break
            chosen.append(one)
    return chosen


def judge(jobs: Iterable[Job], items: list[pytest.Item], at_once: int) -> Iterator[Judged]:
    """Runs each bug's tests until one notices it."""
    by_name = {item.nodeid: item for item in items}
    functions = _functions()

    def work(job: Job, say: Say) -> None:
        plant(job.mutant, functions)
        seconds = {one.test: one.seconds for one in job.tests}

        def begins(item: pytest.Item) -> None:
            say(["begins", item.nodeid], SLACK_S + SLACK * seconds[item.nodeid])

        def ended(item: pytest.Item, outcome: str, _: float) -> bool:
            say([outcome, item.nodeid], SLACK_S)
            return outcome == "failed"

        run_items([by_name[one.test] for one in job.tests], begins, ended)

    for done in in_children(jobs, work, at_once):
        yield _judged(done)


def _judged(done: Done) -> Judged:
    job: Job = done.job
    what, test = done.said[-1] if done.said else ("", "")
    if what == "failed":
        return Judged(job.mutant, "killed", test)
    if what == "begins":
        return Judged(job.mutant, "killed", f"{test} ({done.how})")
    if not job.tests:
        return Judged(job.mutant, "survived", "no test reaches it")
    if done.how != "ended" or not what:
        return Judged(job.mutant, "broken", f"{done.how} before any test")
    return Judged(job.mutant, "survived", f"the {len(job.tests)} tests that reach it")


Functions = dict[tuple[str, str], list[FunctionType]]


def _functions() -> Functions:
    """All functions of the project that are alive, by file and qualified name."""
    found: Functions = {}
    for one in gc.get_objects():
        if isinstance(one, FunctionType) and one.__code__.co_filename.startswith(str(ROOT)):
            file = Path(one.__code__.co_filename).relative_to(ROOT).as_posix()
            found.setdefault((file, one.__code__.co_qualname), []).append(one)
    return found


def plant(mutant: Generated, functions: Functions) -> None:
    """Gives the function, and those defined in it that are alive, the code with the bug.

    Raises:
        LookupError: There is no such function.
    """
    planted = 0
    for code in _with_inner(mutant.compiled()):
        for function in functions.get((mutant.name.file, code.co_qualname), ()):
            if _lines(function.__code__) & _lines(code) and (
                function.__code__.co_freevars == code.co_freevars
            ):
                function.__code__ = code
                planted += code.co_qualname == mutant.name.function
    if not planted:
        raise LookupError(f"{mutant.name}: no such function")


def _with_inner(code: CodeType) -> Iterator[CodeType]:
    yield code
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield from _with_inner(one)


def _lines(code: CodeType) -> set[int]:
    return {line for _, _, line in code.co_lines() if line and line != code.co_firstlineno}


class InPytest:
    """A plugin that does `work(tests)` where pytest would run what it has collected."""

    def __init__(self, work: Callable[[list[pytest.Item]], None]) -> None:
        self._work = work

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self._work(session.items)
        return True


def with_tests(paths: Iterable[str], work: Callable[[list[pytest.Item]], None]) -> None:
    """Collects tests, as `pytest PATHS` would, and hands them to `work`."""
    started = time.perf_counter()

    def announced(items: list[pytest.Item]) -> None:
        print(f"{len(items)} tests collected in {time.perf_counter() - started:.0f} s", flush=True)
        work(items)

    options = ["-q", "-s", "-p", "no:cacheprovider", "-p", "no:randomly", "-W", "ignore"]
    pytest.main([*options, f"--rootdir={ROOT}", *paths], plugins=[InPytest(announced)])
