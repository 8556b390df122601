"""Judges the bugs made by rule, folder by folder, and takes up where it stopped."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from tests.mutation import equivalents, killers, results, verdicts
from tests.mutation.children import in_new_process
from tests.mutation.generated import Generated, all_generated
from tests.mutation.judging import Job, Judged, judge, tests_for, with_tests
from tests.mutation.reach import Reach, measure
from tests.mutation.verdicts import Verdict, Verdicts
from tests.mutation.where import SOME, WHOLE, tests_of

# Verdicts are written after so many, so that little is lost.
KEEP_AFTER = 20


@dataclass(frozen=True)
class Options:
    """How bugs are judged.

    Attributes:
        at_once: Processes.
        budget_s: How long the tests that reach a bug may take together, without it.
        again: Kinds of verdict ("killed", "survived") to try again.
        only: Bugs whose name has this.
        tests: Paths of tests, if not the folder's own.
        draw: How many of a folder's bugs, function by function, drawn by `seed`; None: all.
    """

    at_once: int = 1
    budget_s: float = 20.0
    again: frozenset[str] = frozenset()
    only: str = ""
    tests: list[str] | None = None
    draw: int | None = None
    seed: str = ""


def run_all(folders: list[str], options: Options) -> bool:
    """Judges the bugs of each folder, in a process of its own.

    Returns:
        Whether one survives that the results did not name as a survivor.
    """
    known = {name for one in results.read().values() for name in one.survivors}
    found = [bug for folder in folders for bug in in_new_process(run, folder, options)]
    lost = [bug for bug in found if bug not in known]
    print("\n".join([f"{len(lost)} survivors that were not known", *lost]))
    return bool(lost)


def of_all_folders(folders: list[str], options: Options) -> bool:
    """Judges all bugs of the folders of `WHOLE`, and some of each other: all would take days."""
    some = replace(options, draw=options.draw or SOME)
    whole = run_all([one for one in folders if one in WHOLE], options)
    return run_all([one for one in folders if one not in WHOLE], some) or whole


def run(folder: str, options: Options) -> list[str]:
    """Judges the bugs of a folder that have no verdict that still holds; those that survive."""
    known, mutants = verdicts.read(folder), plantable(folder)
    asked = [one for one in mutants if options.only in str(one)]
    if options.draw is not None:
        asked = _drawn(asked, options.draw, f"{folder} {options.seed}")
        print(f"{folder}: drawn by --draw {options.draw} --seed {options.seed!r}", flush=True)
    todo = [one for one in asked if _is_open(one, known, options.again)]
    print(f"{folder}: {len(todo)} of {len(mutants)} generated bugs to judge", flush=True)

    def work(items: list[pytest.Item]) -> None:
        jobs = _jobs(todo, known, measure(items, options.at_once), options.budget_s)
        for number, one in enumerate(judge(jobs, items, options.at_once), 1):
            _note(known, one)
            print(f"{number}/{len(todo)} {one.kind}: {one.mutant} {one.by}", flush=True)
            if number % KEEP_AFTER == 0:
                verdicts.write(folder, known, mutants)
        verdicts.write(folder, known, mutants)
        if results.note(folder, known, mutants):
            killers.note(folder, known, mutants)

    if todo:
        with_tests(options.tests or tests_of(folder), work)
    now = {str(name) for name, one in known.items() if one.kind == "survived"}
    return [bug for bug in map(str, asked) if bug in now]


def plantable(folder: str) -> list[Generated]:
    """The bugs of a folder that change its code, and of which nobody has said that none is seen."""
    same = equivalents.read()
    return [
        mutant
        for mutant in all_generated([folder])
        if not equivalents.is_equivalent(mutant, same)
        and mutant.compiled() != mutant.function.compiled()
    ]


def _drawn(asked: list[Generated], count: int, seed: str) -> list[Generated]:
    """All bugs of some functions, so many or more: the same ones while the code is what it is."""
    functions: dict[tuple[str, str, str], list[Generated]] = {}
    for one in asked:
        functions.setdefault((one.file, one.function.name, one.function.key), []).append(one)
    order = list(functions.values())
    random.Random(seed).shuffle(order)
    drawn: list[Generated] = []
    for bugs in order:
        if len(drawn) >= count:
            break
        drawn.extend(bugs)
    return drawn


def _is_open(mutant: Generated, known: Verdicts, again: frozenset[str]) -> bool:
    return not verdicts.holds(mutant, known) or known[mutant.name].kind in again


def _jobs(
    todo: list[Generated], known: Verdicts, reaches: list[Reach], budget_s: float
) -> Iterator[Job]:
    """The test that noticed a bug before is asked first."""
    for mutant in todo:
        tests = tests_for(mutant, reaches, budget_s)
        if mutant.name in known:
            test = known[mutant.name].test
            tests.sort(key=lambda one: one.test != test)
        yield Job(mutant, tests)


def _note(known: Verdicts, judged: Judged) -> None:
    mutant = judged.mutant
    assert isinstance(mutant, Generated)
    if judged.kind != "broken":
        known[mutant.name] = Verdict(mutant.function.key, judged.kind, judged.by)
