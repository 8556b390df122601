"""Goodput of 1 to 1,000 replicas by the router's rule, simulated on the oracle's scheduler.

    python -m benchmarks replicas --counts 1,10         fewer replicas
    python -m benchmarks replicas --processes 8         with more cores

Nothing is measured: the figures follow from the seed, whatever the machine.
"""

import argparse
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

from benchmarks.paper.figure import rounded
from benchmarks.registry import Benchmark, Figures, flag, lines, positive
from benchmarks.replicas.expected import EXPECTED
from benchmarks.replicas.goodput import FIRST_TOKEN_S, PER_TOKEN_S, figures
from benchmarks.replicas.traffic import ASSUMPTIONS, MAX_MODEL_LEN, conversations
from reference.cost_model import ModelOnGpus
from reference.routing import PrefixAndLoad, Rule, least_loaded, longest_prefix, round_robin
from reference.simulated_replicas import ReplicaServer, simulate_replicas

MODEL = ModelOnGpus(32, 1024, 1, 1.555e12, 16, 18)
"""Llama-3.1-8B on one A100: layers, width of keys, GPUs, bandwidth, GB of weights and KV cache."""
BLOCK_SIZE = 64
MAX_EXCESS = 8
RULES: dict[str, Rule] = {
    "round robin": round_robin,
    "least loaded": least_loaded,
    "prefix": longest_prefix,
    "both": PrefixAndLoad(max_excess=MAX_EXCESS),
}
COUNTS = (1, 3, 10, 30, 100, 300, 1000)
RATES = (1.0, 1.5, 2.0)
EXCESSES = (0, 8, 64)
COUNT_BY_RATE, COUNT_BY_EXCESS = 10, 100
SEVERAL = 10  # replicas that a figure is the mean of at least, in several runs if they are few
LONGER = 5  # times the time
SYSTEM = (
    "A replica is Llama-3.1-8B in bfloat16 on an A100 of 40 GB under reference/cost_model.py: "
    f"{MODEL.num_slots:,} tokens of KV cache in blocks of {BLOCK_SIZE}, 2,048 tokens a step.",
    "The load is the number of requests sent and not ended. The router knows each replica's cached "
    "blocks, and routing takes no time.",
    f"`both` is PrefixAndLoad of reference/routing.py: a match of 30 % of the prompt, at most "
    f"{MAX_EXCESS} requests above the least load or 1.5 times as many.",
    f"A request is good if its first token comes within {FIRST_TOKEN_S:g} s and the others within "
    f"{1000 * PER_TOKEN_S:g} ms each on average. Goodput counts good requests that end in the time "
    "measured.",
)


@dataclass(frozen=True)
class Case:
    """Where some figures go, and what is simulated for them."""

    key: tuple[str, str, str]
    rule: Rule
    count: int
    rate: float
    seconds: float
    warm_up: float

    @property
    def runs(self) -> int:
        """How many, each with conversations of its own."""
        return max(1, SEVERAL // self.count)

    @property
    def work(self) -> float:
        """How long it takes, relatively."""
        return self.runs * self.count * self.rate * self.seconds


def simulate(case: Case) -> Figures:
    """Its figures by its key: means over its runs."""
    runs = [simulate_once(case, seed) for seed in range(case.runs)]
    found: Figures = {name: rounded(sum(one[name] for one in runs) / len(runs)) for name in runs[0]}
    for name in reversed(case.key):
        found = {name: found}
    return found


def simulate_once(case: Case, seed: int) -> dict[str, float]:
    servers = [
        ReplicaServer(MODEL.num_slots, block_size=BLOCK_SIZE, max_model_len=MAX_MODEL_LEN)
        for _ in range(case.count)
    ]
    chats = conversations(case.rate * case.count, case.seconds, seed)
    cost = MODEL.step_cost(block_size=BLOCK_SIZE)
    answers = simulate_replicas(chats, servers, case.rule, cost, until=case.seconds)
    return figures(answers, case.count, case.warm_up, case.seconds)


def cases(args: argparse.Namespace) -> list[Case]:
    """All runs, those that take longest first."""
    rate, times = args.rate, (args.seconds, args.warm_up)
    longer = (LONGER * args.seconds, args.warm_up)
    found = []
    for name, rule in RULES.items():
        found += [
            Case(("by_replicas", name, str(count)), rule, count, rate, *times)
            for count in args.counts
        ]
        if args.rates:
            found += [
                Case(("by_rate", name, f"{one:g}"), rule, COUNT_BY_RATE, one, *times)
                for one in args.rates
            ]
            found.append(
                Case(("longer", name, str(COUNT_BY_RATE)), rule, COUNT_BY_RATE, rate, *longer)
            )
    for excess in args.excesses:
        rule = PrefixAndLoad(max_excess=excess)
        key = ("by_excess", "both", str(excess))
        found.append(Case(key, rule, COUNT_BY_EXCESS, rate, *times))
    return sorted(found, key=lambda case: -case.work)


def run(args: argparse.Namespace) -> Iterator[Figures]:
    assumptions = [*SYSTEM, *ASSUMPTIONS]
    times = (
        f"{args.seconds:g} s are simulated, the first {args.warm_up:g} s do not count. Figures of "
        f"fewer than {SEVERAL} replicas are means over several runs, {SEVERAL} replicas in all."
    )
    yield {"assumptions": [*assumptions, times], "expected": list(EXPECTED)}
    with ProcessPoolExecutor(args.processes, get_context("spawn")) as pool:
        for done in as_completed([pool.submit(simulate, case) for case in cases(args)]):
            yield done.result()


def show(part: Figures) -> str:
    """A line for each run."""
    return lines({key: part[key] for key in part if key not in ("assumptions", "expected")})


def numbers_of(kind: Callable[[str], Any]) -> Callable[[str], list[Any]]:
    """A type for argparse: numbers with commas between them."""

    def parse_numbers(text: str) -> list[Any]:
        return [kind(one) for one in text.split(",") if one]

    return parse_numbers


def merge(args: argparse.Namespace, saved: Figures, new: Figures) -> Figures:
    """New runs replace the same ones, and keep the others."""
    found = saved | new
    for group in saved.keys() & new.keys() & {"by_replicas", "by_rate", "by_excess", "longer"}:
        old, fresh = saved[group], new[group]
        rules = [rule for rule in RULES if rule in {*old, *fresh}]
        found[group] = {rule: old.get(rule, {}) | fresh.get(rule, {}) for rule in rules}
    return found


BENCHMARK = Benchmark(
    run,
    flags=(
        flag("--counts", type=numbers_of(positive(int)), default=list(COUNTS), help="of replicas"),
        flag("--rate", type=positive(float), default=1.5, help="turns a second for each replica"),
        flag("--rates", type=numbers_of(positive(float)), default=list(RATES), help="others"),
        flag("--excesses", type=numbers_of(int), default=list(EXCESSES), help="of the rule `both`"),
        flag("--seconds", type=positive(float), default=36.0, help="to simulate"),
        flag("--warm-up", type=positive(float), default=16.0, help="seconds that do not count"),
        flag("--processes", type=positive(int), default=2),
    ),
    smoke={
        "counts": [1, 2],
        "rates": [],
        "excesses": [],
        "seconds": 12.0,
        "warm_up": 2.0,
        "processes": 1,
    },
    merge=merge,
    show=show,
)
