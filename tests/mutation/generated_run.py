"""Judges the generated bugs, folder by folder, and takes up where it stopped."""

import os
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.mutation import verdicts
from tests.mutation.generated import FOLDERS, Generated, all_generated
from tests.mutation.judging import Job, Judged, judge, tests_for, with_tests
from tests.mutation.reach import Reach, measure
from tests.mutation.verdicts import Verdict, Verdicts

# Where a folder's bugs are looked for.
PAIRS = (
    "tests/properties/test_block_manager_pair.py",
    "tests/properties/test_scheduler_pair.py",
    "tests/properties/test_overlap.py",
)
TESTS = {
    "core": ("tests/core", *PAIRS),
    "tokenization": ("tests/tokenization", "tests/engine", "tests/compat"),
    "sampling": ("tests/sampling", "tests/engine", "tests/properties"),
    "engine": ("tests/engine", "tests/compat", "tests/guided", "tests/properties"),
    "worker": ("tests/worker", "tests/engine", "tests/properties"),
}
# Verdicts are written after so many, so that little is lost.
KEEP_AFTER = 20


def run(folder: str, at_once: int, budget_s: float, again: frozenset[str], only: str) -> None:
    """Judges the bugs of a folder that have no verdict that still holds.

    Args:
        at_once: Processes.
        budget_s: How long the tests that reach a bug may take together, without it.
        again: Kinds of verdict ("killed", "survived") to try again.
        only: Bugs whose name has this.
    """
    os.environ["HYPOTHESIS_PROFILE"] = "generated"
    mutants = all_generated([folder])
    known = verdicts.read(folder)
    todo = [m for m in mutants if only in str(m.name) and _is_open(m, known, again)]
    print(f"{folder}: {len(todo)} of {len(mutants)} generated bugs to judge", flush=True)
    if not todo:
        return

    def work(items: list[pytest.Item]) -> None:
        reaches = measure(items, at_once)
        jobs = _jobs(todo, known, reaches, budget_s)
        for number, one in enumerate(judge(jobs, items, at_once), 1):
            _note(known, one)
            print(f"{number}/{len(todo)} {one.kind}: {one.mutant.name} {one.by}", flush=True)
            if number % KEEP_AFTER == 0 or number == len(todo):
                verdicts.write(folder, known, mutants)

    with_tests(TESTS[folder], work)
    print(Counter(one.kind for one in known.values()))


def _is_open(mutant: Generated, known: Verdicts, again: frozenset[str]) -> bool:
    verdict = known.get(mutant.name)
    return verdict is None or verdict.key != mutant.function.key or verdict.kind in again


def _jobs(
    todo: list[Generated], known: Verdicts, reaches: list[Reach], budget_s: float
) -> Iterator[Job]:
    """The test that noticed a bug before is asked first."""
    for mutant in todo:
        if mutant.compiled() == mutant.function.compiled():
            continue
        tests = tests_for(mutant, reaches, budget_s)
        if mutant.name in known:
            by = known[mutant.name].by
            tests.sort(key=lambda one: not by.startswith(one.test))
        yield Job(mutant, tests)


def _note(known: Verdicts, judged: Judged) -> None:
    mutant = judged.mutant
    before = known.get(mutant.name)
    by = judged.by
    if judged.kind == "broken":
        return
    if judged.kind == "survived" and before and before.kind == "equivalent":
        by = f"{by}; was equivalent before the function changed: {before.by}"
    change = verdicts.change_of(mutant)
    known[mutant.name] = Verdict(mutant.function.key, judged.kind, by, change)


def run_all(folders: list[str], at_once: int, budget_s: float, again: str, only: str) -> None:
    """Each folder in a process of its own, since pytest collects once in one."""
    for folder in folders or list(FOLDERS):
        pid = os.fork()
        if pid == 0:
            run(folder, at_once, budget_s, frozenset(filter(None, again.split(","))), only)
            os._exit(0)
        if os.waitpid(pid, 0)[1]:
            raise SystemExit(f"{folder}: ended too early")
