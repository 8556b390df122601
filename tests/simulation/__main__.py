"""`python -m tests.simulation`: replays one seed, or runs many; exits 1 when one fails."""

import argparse
import logging
import sys
import time

from tests.simulation.run import SimulationFailed, run_seed, run_seeds


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("--seed", type=int, help="replay this one, and print what happens in it")
    parser.add_argument("--seeds", metavar="FROM:TO", help="run all of these")
    parser.add_argument("--worker", choices=["stub", "tiny"], default="stub")
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    logging.getLogger("jax_engine").setLevel(logging.ERROR)
    try:
        if args.seeds is None:
            replay(args.seed or 0, args.worker)
        else:
            run_many(args.seeds, args.worker)
    except SimulationFailed as error:
        raise error.__cause__ or error from None


def replay(seed: int, worker: str) -> None:
    try:
        report = run_seed(seed, worker)
    except SimulationFailed as error:
        print(error, file=sys.stderr)
        raise
    print("\n".join(report.log.lines))
    print(f"seed {seed}: {report.num_steps} steps, log {report.log.digest}")


def run_many(seeds: str, worker: str) -> None:
    first, last = map(int, seeds.split(":"))
    started = time.monotonic()
    try:
        totals = run_seeds(range(first, last), worker, show=lambda line: print(line, flush=True))
    except SimulationFailed as error:
        print(error, file=sys.stderr)
        raise
    print(f"{totals}, in {time.monotonic() - started:.0f} s")
    for name, count in sorted(totals.seen.items()):
        print(f"{count:9d}  {name}")
    if totals.missing and worker == "stub":  # with a model some of it cannot happen
        print(f"never happened: {', '.join(totals.missing)}")
        sys.exit(1)


if __name__ == "__main__":
    main()
