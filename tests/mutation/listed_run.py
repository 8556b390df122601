"""Tries the bugs written by hand: in forks of one process where that can be, then in a copy."""

import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from tests.mutation import by_hand
from tests.mutation.by_hand import text_of
from tests.mutation.children import in_new_process
from tests.mutation.planting import Mutant, Outcome, Trial, make_copy, run_tests, try_mutant


def run(mutants: list[Mutant], jobs: int) -> bool:
    """Whether one of them survived, or its tests could not run."""
    found: dict[str, str] = in_new_process(by_hand.try_in_forks, mutants, jobs)
    by_hand.note(found)
    rest = [mutant for mutant in mutants if text_of(mutant) not in found]
    lost: list[Trial] = []
    for number, trial in enumerate(_in_copies(rest, jobs), 1):
        where = f"{trial.mutant.file}: {trial.mutant.why}"
        print(f"{number}/{len(rest)} {trial.outcome.value}, {trial.seconds:.0f} s, {where}")
        print(f"    {trial.noticed_by}", flush=True)
        if trial.outcome in (Outcome.SURVIVED, Outcome.BROKEN):
            lost.append(trial)
        else:
            by = trial.noticed_by or trial.outcome.value
            by_hand.note({text_of(trial.mutant): by})
    for trial in lost:
        print(f"\n{trial.outcome.value}: {trial.mutant.file}, {trial.mutant.why}")
        print(f"    - {trial.mutant.old}\n    + {trial.mutant.new}")
    print(f"\n{len(mutants) - len(lost)} of {len(mutants)} planted bugs were caught")
    by_hand.count([trial.mutant for trial in lost])
    return bool(lost)


def _in_copies(mutants: list[Mutant], jobs: int) -> Iterator[Trial]:
    """Each job in a copy of its own; in order."""
    if not mutants:
        return
    with tempfile.TemporaryDirectory(prefix="mutation-") as scratch:
        folders: SimpleQueue[Path] = SimpleQueue()
        for job in range(jobs):
            folder = Path(scratch) / str(job)
            folder.mkdir()
            make_copy(folder)
            folders.put(folder)
        limits = _time_without_bugs(folder, mutants)

        def one(mutant: Mutant) -> Trial:
            folder = folders.get()
            try:
                return try_mutant(folder, mutant, limits[mutant.tests])
            finally:
                folders.put(folder)

        with ThreadPoolExecutor(jobs) as pool:
            yield from pool.map(one, mutants)


def _time_without_bugs(folder: Path, mutants: list[Mutant]) -> dict[tuple[str, ...], float]:
    """The longest that each set of tests may take with a bug: far more than it takes without.

    Without a bug they must pass, or a failure would prove nothing.
    """
    limits = {}
    for tests in sorted({mutant.tests for mutant in mutants}):
        started = time.perf_counter()
        outcome, noticed_by = run_tests(folder, tests)
        if outcome is not Outcome.SURVIVED:
            raise SystemExit(f"without any bug, {' '.join(tests)}: {outcome.value}\n{noticed_by}")
        seconds = time.perf_counter() - started
        print(f"without any bug {' '.join(tests)} passes in {seconds:.0f} s", flush=True)
        limits[tests] = 60 + 4 * seconds
    return limits
