"""Plants generated bugs in forks of one process, and runs the tests that reach them.

The process has collected the tests and imported the code. A child gives the function its code with
the bug in it, and runs the quickest test first: most bugs are noticed within milliseconds.
"""

import gc
import os
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import CodeType, FunctionType
from typing import Protocol

import pytest
from jax._src.xla_bridge import backends_are_initialized

from tests.mutation.children import Done, Say, in_children
from tests.mutation.planting import ROOT
from tests.mutation.reach import KEPT_IN, Reach
from tests.mutation.running import run_items

# A test may take so many seconds, and so many times as long as without the bug.
SLACK_S, SLACK = 10.0, 6.0
# Code that JAX traces: one test of a file traces it, and all those after it run what was traced.
TRACED = tuple(
    f"jax_engine/{name}/" for name in ("layers", "models", "sampling", "weights", "worker")
)


class Bug(Protocol):
    """A bug in functions of one file."""

    @property
    def file(self) -> str: ...

    @property
    def lines(self) -> range:
        """Where it is: tests that run none of these lines cannot notice it."""

    def codes(self) -> list[CodeType]:
        """What the functions are with the bug; each is found by its name and its lines."""


@dataclass(frozen=True)
class Job:
    """A bug (or none), and the tests that may notice it: the first is run first."""

    mutant: Bug | None
    tests: list[Reach]


@dataclass(frozen=True)
class Judged:
    """What became of a bug; `by` is the test that noticed it, or says that none did."""

    mutant: Bug
    kind: str
    by: str


def tests_for(mutant: Bug, reaches: list[Reach], budget_s: float) -> list[Reach]:
    """The tests that run a bug's lines, as many as take so long together.

    Those of a file stand together, since each file makes its fixtures anew. First comes the file
    called like the bug's (`test_deadlines.py` for `deadlines.py`), then quick ones.
    """
    lines, is_traced = set(mutant.lines), mutant.file.startswith(TRACED)
    files: dict[str, list[Reach]] = {}
    for one in reaches:
        files.setdefault(one.file, []).append(one)
    chosen: list[Reach] = []
    own = f"/test_{Path(mutant.file).name}"
    found = sorted(_reaching(files, mutant, lines, is_traced), key=_seconds)
    for tests in sorted(found, key=lambda tests: own not in tests[0].test):
        budget_s -= tests[0].first
        for one in tests:
            budget_s -= one.seconds
            if chosen and budget_s < 0:
                return chosen
            chosen.append(one)
    return chosen


def _reaching(
    files: dict[str, list[Reach]], mutant: Bug, lines: set[int], is_traced: bool
) -> Iterator[list[Reach]]:
    """The tests of each file that may notice, quickest first; none of a file where none may."""
    for tests in files.values():
        found = [one for one in tests if _runs(one, mutant, lines)]
        if found:
            yield sorted(tests if is_traced else found, key=lambda one: one.seconds)


def _seconds(tests: list[Reach]) -> float:
    return tests[0].first + sum(one.seconds for one in tests)


def _runs(test: Reach, mutant: Bug, lines: set[int]) -> bool:
    return not lines.isdisjoint(test.lines.get(mutant.file, ()))


def judge(jobs: Iterable[Job], items: list[pytest.Item], at_once: int) -> Iterator[Judged]:
    """Runs each bug's tests until one notices it.

    A test that fails by itself without any bug (one before it must have run) proves nothing: it is
    left out.
    """
    by_name = {item.nodeid: item for item in items}
    functions = living_functions()
    fit: dict[str, bool] = {}

    def work(job: Job, say: Say) -> None:
        if job.mutant is not None:
            plant(job.mutant, functions)
        limits = {one.test: SLACK_S + SLACK * one.longest for one in job.tests}

        def begins(item: pytest.Item) -> None:
            say(["begins", item.nodeid], limits[item.nodeid])

        def ended(item: pytest.Item, outcome: str, _: float) -> bool:
            say([outcome, item.nodeid], SLACK_S)
            return outcome == "failed"

        run_items([by_name[one.test] for one in job.tests], begins, ended)

    def is_fit(one: Reach) -> bool:
        if one.test not in fit:
            (done,) = in_children([Job(None, [one])], work, 1)
            fit[one.test] = done.how == "ended" and done.said[-1][0] == "passed"
            if not fit[one.test]:
                print(f"    {one.test} fails by itself without any bug: not used", flush=True)
        return fit[one.test]

    for done in in_children(jobs, work, at_once):
        job: Job = done.job
        judged = _judged(done)
        while judged.kind == "killed":
            killer = next(
                one for one in job.tests if judged.by in (one.test, f"{one.test} ({done.how})")
            )
            if is_fit(killer):
                break
            job = Job(job.mutant, [one for one in job.tests if one is not killer])
            (done,) = in_children([job], work, 1)
            judged = _judged(done)
        yield judged


def _judged(done: Done) -> Judged:
    job: Job = done.job
    assert job.mutant is not None
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


def living_functions() -> Functions:
    """All functions of the project that are alive, by file and qualified name."""
    found: Functions = {}
    for one in gc.get_objects():
        if type(one) is FunctionType and one.__code__.co_filename.startswith(str(ROOT)):
            file = Path(one.__code__.co_filename).relative_to(ROOT).as_posix()
            found.setdefault((file, one.__code__.co_qualname), []).append(one)
    return found


def plant(mutant: Bug, functions: Functions) -> None:
    """Gives the function, and those defined in it that are alive, the code with the bug.

    Raises:
        LookupError: There is no such function.
    """
    if not any(file == mutant.file for file, _ in functions):
        import_module(mutant.file.removesuffix(".py").replace("/", "."))  # commands are lazy
        functions = living_functions()
    for whole in mutant.codes():
        planted = False
        for code in _with_inner(whole):
            for function in functions.get((mutant.file, code.co_qualname), ()):
                if _can_become(function.__code__, code):
                    function.__code__ = code
                    planted |= code is whole
        if not planted:
            raise LookupError(f"{mutant}: there is no function {whole.co_qualname}")


def _can_become(old: CodeType, new: CodeType) -> bool:
    return bool(_lines(old) & _lines(new)) and old.co_freevars == new.co_freevars


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
        self.collected = False
        self.uses_a_device: Path | None = None  # the first file that does when it is imported

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        report = yield
        if self.uses_a_device is None and backends_are_initialized():
            self.uses_a_device = collector.path
        return report

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self.collected = not session.testsfailed and not self.uses_a_device
        if self.collected:
            self._work(session.items)
        return True


def with_tests(paths: Iterable[str], work: Callable[[list[pytest.Item]], None]) -> None:
    """Collects tests, as `pytest PATHS` would, and hands them to `work`.

    What their programs compile to is kept here, with and without bugs: each fork begins without.
    """
    os.environ["HYPOTHESIS_PROFILE"] = "generated"
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(KEPT_IN / "xla")
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.02"
    os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "0"
    started = time.perf_counter()

    def announced(items: list[pytest.Item]) -> None:
        print(f"{len(items)} tests collected in {time.perf_counter() - started:.0f} s", flush=True)
        work(items)

    quiet = ["-p", "no:terminal", "-o", "addopts=", "-s"]  # no line that looks like a result
    options = [*quiet, "-p", "no:cacheprovider", "-W", "ignore", f"--rootdir={ROOT}"]
    plugin = InPytest(announced)
    code = pytest.main([*options, *paths], plugins=[plugin])
    if plugin.uses_a_device:
        raise SystemExit(f"{plugin.uses_a_device} uses a device when it is imported: forks hang")
    # Behind that the code says nothing: whole suites miss what their tests would have seen.
    if not plugin.collected:
        raise SystemExit(f"the tests could not be collected: {code!r}")
