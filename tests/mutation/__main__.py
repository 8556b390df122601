"""Runs the mutation check; exits 1 when a planted bug survives."""

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from tests.mutation.generated import FOLDERS
from tests.mutation.generated_run import run_all
from tests.mutation.mutants import MUTANTS
from tests.mutation.planting import Mutant, Outcome, Trial, make_copy, run_tests, try_mutant


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation")
    parser.add_argument("--only", default="", help="mutants whose file, code or reason has this")
    parser.add_argument("--list", action="store_true", help="list them and run nothing")
    parser.add_argument("--jobs", type=int, default=1, help="how many at a time")
    parser.add_argument(
        "--generated",
        nargs="*",
        metavar="FOLDER",
        help=f"the bugs made by rule, in these folders: {', '.join(FOLDERS)}",
    )
    parser.add_argument("--budget", type=float, default=60, help="seconds of tests for each")
    parser.add_argument("--again", default="", help='kinds to judge again: "survived,killed"')
    return parser.parse_args()


def try_all(mutants: list[Mutant], jobs: int) -> Iterator[Trial]:
    """Tries the mutants, each job in a copy of its own; in order."""
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


def main() -> None:
    args = parse_args()
    if args.generated is not None:
        run_all(args.generated, args.jobs, args.budget, args.again, args.only)
        return
    chosen = [m for m in MUTANTS if args.only in f"{m.file} {m.old} {m.new} {m.why}"]
    if args.list or not chosen:
        print("\n".join(f"{m.file}: {m.why}" for m in chosen) or "no such mutant")
        return
    trials: list[Trial] = []
    for trial in try_all(chosen, args.jobs):
        trials.append(trial)
        where = f"{trial.mutant.file}: {trial.mutant.why}"
        print(
            f"{len(trials)}/{len(chosen)} {trial.outcome.value}, {trial.seconds:.0f} s, {where}"
            f"\n    {trial.noticed_by}",
            flush=True,
        )
    lost = [t for t in trials if t.outcome in (Outcome.SURVIVED, Outcome.BROKEN)]
    for trial in lost:
        print(f"\n{trial.outcome.value}: {trial.mutant.file}, {trial.mutant.why}")
        print(f"    - {trial.mutant.old}\n    + {trial.mutant.new}")
    print(f"\n{len(trials) - len(lost)} of {len(trials)} planted bugs were caught")
    sys.exit(bool(lost))


if __name__ == "__main__":
    main()
