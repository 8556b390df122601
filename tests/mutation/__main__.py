"""Runs the mutation check; exits 1 when a bug survives that is not a known survivor."""

import argparse
import sys

from tests.mutation import generated_run, sample, table
from tests.mutation.by_hand import noticed, text_of
from tests.mutation.generated import FOLDERS
from tests.mutation.listed_run import run as run_listed
from tests.mutation.mutants import MUTANTS
from tests.mutation.where import SOME, WHOLE


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation")
    parser.add_argument("--only", default="", help="mutants whose file, code or reason has this")
    parser.add_argument("--unjudged", action="store_true", help="only mutants without a verdict")
    parser.add_argument("--list", action="store_true", help="list them and run nothing")
    parser.add_argument("--jobs", type=int, default=1, help="how many at a time")
    rules = parser.add_argument_group("bugs made by rule")
    rules.add_argument(
        "--generated",
        nargs="*",
        metavar="FOLDER",
        help="judge those without a verdict, in these folders; without any: each of "
        f"{', '.join(WHOLE)}, and {SOME} or more of each other folder ({', '.join(FOLDERS)})",
    )
    rules.add_argument("--budget", type=float, default=20, help="seconds of tests for each")
    rules.add_argument("--again", default="", help='verdicts to judge again: "survived,killed"')
    rules.add_argument("--draw", type=int, help="so many or more, drawn by the seed")
    rules.add_argument("--tests", nargs="*", help="paths of tests, instead of the folder's own")
    some = parser.add_argument_group("some of both")
    some.add_argument("--sample", type=float, metavar="SECONDS", help="as many as fit in it")
    some.add_argument("--seed", default="", help="which: the commit, if nothing is said")
    parser.add_argument("--table", action="store_true", help="docs/mutants.md from results.json")
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    if args.table:
        table.write()
    elif args.sample is not None:
        sample.run(args.sample, args.seed, args.jobs)
    elif args.generated is not None:
        again = frozenset(args.again.split(","))
        options = generated_run.Options(
            args.jobs, args.budget, again, args.only, args.tests, args.draw, args.seed
        )
        if args.generated:
            sys.exit(generated_run.run_all(args.generated, options))
        sys.exit(generated_run.of_all_folders(list(FOLDERS), options))
    else:
        chosen = [m for m in MUTANTS if args.only in f"{m.file} {m.old} {m.new} {m.why}"]
        if args.unjudged:
            known = noticed()
            chosen = [mutant for mutant in chosen if text_of(mutant) not in known]
        if args.list or not chosen:
            print("\n".join(f"{m.file}: {m.why}" for m in chosen) or "no such mutant")
        else:
            sys.exit(run_listed(chosen, args.jobs))


if __name__ == "__main__":
    main()
