"""As many bugs as fit in a minute or two, others each time: is what was noticed noticed still?"""

import random
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from tests.mutation import verdicts
from tests.mutation.by_hand import in_functions, noticed, text_of
from tests.mutation.generated import FOLDERS, all_generated
from tests.mutation.judging import Bug, Job, Judged, judge, with_tests
from tests.mutation.mutants import MUTANTS
from tests.mutation.planting import ROOT
from tests.mutation.reach import Reach

# Far more than there is time for, and few enough that the tests of all are collected soon.
DRAWN = 240
# Of the longest test of a file, where nobody has measured it.
SECONDS = 5.0


def run(seconds: float, seed: str, at_once: int) -> None:
    """Plants bugs that a test has noticed, drawn by a seed; exits 1 if one is not noticed now."""
    seed = seed or _commit()
    begun = time.monotonic()
    drawn = _draw(random.Random(seed))
    print(
        f"bugs drawn by seed {seed} (python -m tests.mutation --sample {seconds:.0f} --seed {seed})"
    )
    found: list[Judged] = []
    by_chance: set[str] = set()

    def work(items: list[pytest.Item]) -> None:
        by_chance.update(one.nodeid for one in items if one.get_closest_marker("hypothesis"))
        # However long the tests took to collect, some bugs are planted.
        ends = max(begun + seconds, time.monotonic() + seconds / 3)
        found.extend(judge(_jobs(drawn, items, ends), items, at_once))

    files = {test.split("::")[0] for _, test in drawn}
    with_tests(sorted(name for name in files if (ROOT / name).exists()), work)
    lost = [one for one in found if one.kind != "killed"]
    tests = {str(bug): test for bug, test in drawn}
    # What a property noticed is noticed again if it draws such an example again.
    unlucky = [one for one in lost if tests[str(one.mutant)] in by_chance]
    for one in lost:
        print(f"{one.kind}{', by chance' * (one in unlucky)}: {one.mutant}: {one.by}")
    print(
        f"{len(found) - len(lost)} of {len(found)} planted bugs were noticed, of {len(drawn)} drawn"
    )
    sys.exit(len(lost) > len(unlucky) or not found)


def _commit() -> str:
    """Names the seed: another for each commit, or each day where there is no git."""
    command = ["git", "rev-parse", "--short=12", "HEAD"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() or time.strftime("%Y-%m-%d")


def _draw(rng: random.Random) -> list[tuple[Bug, str]]:
    """Bugs and the test that noticed each: made by rule and written by hand, in turns."""
    known = {name: one for folder in FOLDERS for name, one in verdicts.read(folder).items()}
    by_rule: list[tuple[Bug, str]] = []
    for made in all_generated(list(FOLDERS)):
        one = known.get(made.name)
        if one is not None and one.kind == "killed" and one.key == made.function.key:
            by_rule.append((made, one.by.split(" (")[0]))
    tests = noticed()
    listed = [mutant for mutant in MUTANTS if text_of(mutant) in tests]
    by_hand: list[tuple[Bug, str]] = []
    for mutant in rng.sample(listed, min(DRAWN // 3, len(listed))):
        bug = in_functions(mutant)
        if bug is not None:
            by_hand.append((bug, tests[text_of(mutant)].split(" (")[0]))
    drawn = rng.sample(by_rule, min(DRAWN - len(by_hand), len(by_rule))) + by_hand
    rng.shuffle(drawn)
    return drawn


def _jobs(drawn: list[tuple[Bug, str]], items: list[pytest.Item], ends: float) -> Iterator[Job]:
    """Until the time is up; after a test, the rest of its file. Verdicts of tests that are gone
    have lapsed.
    """
    by_file: dict[str, list[str]] = {}
    for item in items:
        by_file.setdefault(item.nodeid.split("::")[0], []).append(item.nodeid)
    for bug, test in drawn:
        rest = by_file.get(test.split("::")[0], [])
        if time.monotonic() > ends:
            return
        if test in rest:
            names = [test, *(name for name in rest if name != test)]
            yield Job(bug, [Reach(name, 0.0, {}, SECONDS) for name in names])
