"""Bugs written by hand, planted in a fork where that can be done: in the body of a function."""

import ast
from dataclasses import dataclass
from types import CodeType

import pytest

from tests.mutation import results, verdicts
from tests.mutation.generated import Function, functions
from tests.mutation.judging import Job, judge, tests_for, with_tests
from tests.mutation.mutants import MUTANTS
from tests.mutation.planting import ROOT, Mutant
from tests.mutation.reach import measure

KEPT_IN = verdicts.KEPT_IN / "by_hand.tsv"
# Others need a process of their own: the oracle's tests, and those of chosen kernels.
TOGETHER = ("tests/reference", "tests/kernels", "reference", "--")
BUDGET_S = 60.0
BY_HAND = "by hand: "  # before the folder's name in the results
KEEP_AFTER = 20


@dataclass(frozen=True)
class ByHand:
    """A bug of the list, as the functions that it changes."""

    mutant: Mutant
    lines: range
    changed: tuple[Function, ...]

    @property
    def file(self) -> str:
        return self.mutant.file

    def codes(self) -> list[CodeType]:
        return [function.compiled() for function in self.changed]

    def __str__(self) -> str:
        return f"{self.mutant.file}: {self.mutant.why}"


def in_functions(mutant: Mutant) -> ByHand | None:
    """The bug, if it is in bodies of functions and its tests can share a process with others.

    The functions must use the same variables of their surroundings with the bug as without.
    """
    apart = any(test.startswith(TOGETHER) for test in mutant.tests)
    if apart or not mutant.file.startswith("jax_engine/"):
        return None
    text = (ROOT / mutant.file).read_text("utf-8")
    wrong = mutant.apply(text)
    before, after = list(functions(mutant.file, text)), list(functions(mutant.file, wrong))
    if _outside_of_functions(text) != _outside_of_functions(wrong):
        return None
    changes = [pair for pair in zip(before, after, strict=True) if pair[0].key != pair[1].key]
    if any(old.compiled().co_freevars != new.compiled().co_freevars for old, new in changes):
        return None  # a living function keeps its closure: it cannot begin to call `super`
    changed = [new for _, new in changes]
    first = text[: text.index(mutant.old)].count("\n") + 1
    return ByHand(mutant, range(first, first + mutant.old.count("\n") + 1), tuple(changed))


def _outside_of_functions(text: str) -> str:
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [ast.Pass()]
    return ast.dump(tree)


def noticed() -> dict[str, str]:
    """Which test noticed a bug of the list when all were last tried, by the bug's text."""
    rows = KEPT_IN.read_text("utf-8").splitlines() if KEPT_IN.exists() else []
    return dict(row.rsplit("\t", 1) for row in rows)


def note(by: dict[str, str]) -> None:
    """Keeps which test noticed which bug; those that are no longer in the list are forgotten."""
    known = noticed() | by
    rows = [f"{text}\t{known[text]}" for text in map(text_of, MUTANTS) if text in known]
    KEPT_IN.parent.mkdir(parents=True, exist_ok=True)
    KEPT_IN.write_text("\n".join([*rows, ""]), "utf-8")


def count(lost: list[Mutant]) -> None:
    """Adds up by folder what was noticed whenever it was tried, and what was not by now."""
    known = noticed()
    listed: dict[str, list[Mutant]] = {}
    for mutant in MUTANTS:
        listed.setdefault(folder_of(mutant), []).append(mutant)
    for folder, its in listed.items():
        caught = [one for one in its if text_of(one) in known and one not in lost]
        survived = [f"{one.file}: {one.why}" for one in its if one in lost]
        results.keep(f"{BY_HAND}{folder}", len(its), len(caught), survived)


def folder_of(mutant: Mutant) -> str:
    return "/".join(mutant.file.split("/")[: 2 if mutant.file.count("/") > 1 else 1])


def text_of(mutant: Mutant) -> str:
    """What a bug is called in the table."""
    old, new = (" ".join(code.split()) for code in (mutant.old, mutant.new))
    return f"{mutant.file}\t{mutant.why}\t{old} -> {new}"


def try_in_forks(mutants: list[Mutant], at_once: int) -> dict[str, str]:
    """Which tests notice which bugs, of those that can be planted in a fork."""
    bugs = [bug for bug in map(in_functions, mutants) if bug is not None]
    found: dict[str, str] = {}

    def work(items: list[pytest.Item]) -> None:
        reaches = measure(items, at_once)
        jobs = []
        for bug in bugs:
            own = [one for one in reaches if one.test.startswith(bug.mutant.tests)]
            jobs.append(Job(bug, tests_for(bug, own, BUDGET_S)))
        for number, one in enumerate(judge(jobs, items, at_once), 1):
            print(f"{number}/{len(bugs)} {one.kind}: {one.mutant} {one.by}", flush=True)
            if one.kind == "killed" and isinstance(one.mutant, ByHand):
                found[text_of(one.mutant.mutant)] = one.by
            if number % KEEP_AFTER == 0:
                note(found)

    paths = sorted({part for bug in bugs for part in bug.mutant.tests if part[0] != "-"})
    if bugs:
        with_tests(paths, work)
    return found
