"""`python -m tests.thorough`: rounds of random tests for some minutes; exits 1 when one fails."""

import argparse
import secrets
import sys

from tests.thorough import record, tables
from tests.thorough.parts import PARTS
from tests.thorough.rounds import run_rounds


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.thorough")
    parser.add_argument("--minutes", type=float, default=30, help="parts begin for so long")
    parser.add_argument("--seed", type=int, help="what all parts' seeds come from; else a new one")
    parser.add_argument("--jobs", type=int, default=1, help="parts at a time")
    names = [part.name for part in PARTS]
    parser.add_argument("--part", action="append", choices=names, help="only these; all of them")
    parser.add_argument("--table", action="store_true", help="write the docs' tables, run nothing")
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    if args.table:
        tables.write()
        return
    parts = [part for part in PARTS if args.part is None or part.name in args.part]
    runs = record.read()
    run = record.begin(secrets.randbelow(2**32) if args.seed is None else args.seed)
    runs.append(run)
    print(f"seed {run.seed}, commit {run.commit}", flush=True)
    passed = run_rounds(
        run,
        args.minutes,
        parts,
        jobs=args.jobs,
        keep=lambda: record.write(runs),
        show=lambda line: print(line, flush=True),
    )
    print(f"{run.rounds.total()} parts, {run.seconds / 60:.0f} minutes, seed {run.seed}")
    sys.exit(not passed)


if __name__ == "__main__":
    main()
