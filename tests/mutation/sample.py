"""As many bugs as fit in a minute or two, others each time: is what was noticed noticed still?

A seed, which is the commit, draws files of the engine from `killers.tsv`, and bugs written by hand
that name a few files of tests. One after another, until the time is up, the tests of a draw are
measured (which lines does each run?) and some of its bugs planted.

No verdicts are needed, so this works in a fresh clone, and a survivor has a cause. Of bugs made by
rule only those are drawn that examples killed before, all of them of a function that has not
changed since; a bug written by hand must be noticed anyway. What only a random property noticed may
be missed the next time: such a bug is reported, and does not fail the sample.
"""

import random
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.mutation import killers
from tests.mutation.by_hand import ByHand, in_functions
from tests.mutation.equivalents import is_equivalent
from tests.mutation.equivalents import read as read_equivalents
from tests.mutation.generated import of_file
from tests.mutation.judging import Bug, Job, judge, tests_for, with_tests
from tests.mutation.mutants import MUTANTS
from tests.mutation.planting import ROOT, Mutant
from tests.mutation.reach import Reach, measure
from tests.mutation.results import commit

# So many have their tests collected, of either list: more than there is time for.
BY_RULE, BY_HAND = 8, 4
MOST_BUGS = 15
MOST_FILES = 2
BUDGET_S = 60.0


@dataclass(frozen=True)
class Draw:
    """Bugs that the same files of tests must notice."""

    tests: tuple[str, ...]
    bugs: list[Bug]


def run(seconds: float, seed: str, at_once: int) -> None:
    """Plants bugs that a test has noticed, drawn by a seed; exits 1 if one is not noticed now."""
    seed = seed or commit()
    begun = time.monotonic()
    draws = drawn(random.Random(seed))
    print(
        f"bugs drawn by seed {seed} (python -m tests.mutation --sample {seconds:.0f} --seed {seed})"
    )
    kinds: list[str] = []

    def work(items: list[pytest.Item]) -> None:
        ends = begun + seconds
        for draw in draws:
            if kinds and time.monotonic() > ends:
                return
            own = [one for one in items if one.nodeid.split("::")[0] in draw.tests]
            reaches = measure(own, at_once)
            if not kinds:  # however long all that took, some bugs are planted
                ends = max(ends, time.monotonic() + seconds / 3)
            for one in judge(_jobs(draw, reaches, ends), own, at_once):
                chance = any(test.by_chance for test in tests_for(one.mutant, reaches, BUDGET_S))
                by_chance = one.kind != "killed" and isinstance(one.mutant, ByHand) and chance
                kinds.append("by chance" if by_chance else one.kind)
                if one.kind != "killed":
                    print(f"{kinds[-1]}: {one.mutant}: {one.by}", flush=True)

    with_tests(sorted({test for draw in draws for test in draw.tests}), work)
    print(f"{kinds.count('killed')} of {len(kinds)} planted bugs were noticed")
    sys.exit(not kinds or not {"killed", "by chance"}.issuperset(kinds))


def drawn(rng: random.Random) -> list[Draw]:
    """Some rows of the table of killers, and some bugs written by hand, with their tests."""
    rows = [row for row in killers.read() if _exist(row.tests)]
    draws = [Draw(row.tests, _of_row(row, rng)) for row in _some(rows, BY_RULE, rng)]
    listed: dict[tuple[str, ...], list[Mutant]] = {}
    for mutant in MUTANTS:
        tests = tuple(part for part in mutant.tests if not part.startswith("-"))
        if len(tests) <= MOST_FILES and _exist(tests):
            listed.setdefault(tests, []).append(mutant)
    for tests in _some(list(listed), BY_HAND, rng):
        found = [in_functions(one) for one in _some(listed[tests], MOST_BUGS, rng)]
        draws.append(Draw(tests, [bug for bug in found if bug is not None]))
    rng.shuffle(draws)
    return [one for one in draws if one.bugs]


def _of_row(row: killers.Row, rng: random.Random) -> list[Bug]:
    same = read_equivalents()
    bugs = [one for one in of_file(row.file) if row.covers(one) and not is_equivalent(one, same)]
    changed = [one for one in bugs if one.compiled() != one.function.compiled()]
    return list(_some(changed, MOST_BUGS, rng))


def _some[T](of: list[T], most: int, rng: random.Random) -> list[T]:
    return rng.sample(of, min(most, len(of)))


def _exist(tests: tuple[str, ...]) -> bool:
    return all((ROOT / test).is_file() for test in tests)


def _jobs(draw: Draw, reaches: list[Reach], ends: float) -> Iterator[Job]:
    for bug in draw.bugs:
        if time.monotonic() > ends:
            return
        yield Job(bug, tests_for(bug, reaches, BUDGET_S))
