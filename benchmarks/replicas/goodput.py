"""Answers of a simulation as figures: goodput, what was cached, how even the load was."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from benchmarks.paper.figure import rounded
from reference.simulated_replicas import Answer

FIRST_TOKEN_S: Final = 0.5
PER_TOKEN_S: Final = 0.03


def is_good(answer: Answer) -> bool:
    """Did it come in time?"""
    return answer.first_token_s <= FIRST_TOKEN_S and answer.per_token_s <= PER_TOKEN_S


def figures(answers: Sequence[Answer], replicas: int, start: float, end: float) -> dict[str, float]:
    """What happened between two times, with at least one answer that ended.

    Returns a replica's good and all answers a second, the share of cached tokens in prompts that
    began, the 95th percentiles of answers that ended, and the busiest replica's mean number of
    requests over that of all.
    """
    ended = [one for one in answers if start < one.arrival + one.latency_s <= end]
    began = [one for one in answers if start < one.arrival + one.first_token_s <= end]
    good = sum(is_good(one) for one in ended)
    rates = {"goodput_per_s": good, "answers_per_s": len(ended)}
    cached, prompts = (
        sum(vars(one)[name] for one in began) for name in ("num_cached", "prompt_len")
    )
    loads = mean_loads(answers, replicas, start, end)
    return {name: rounded(n / (end - start) / replicas) for name, n in rates.items()} | {
        "good_percent": rounded(100 * good / len(ended)),
        "cached_percent": rounded(100 * cached / prompts),
        "busiest_over_mean": rounded(loads.max() / loads.mean()),
        "first_token_p95_s": rounded(_p95([one.first_token_s for one in ended])),
        "per_token_p95_ms": rounded(1000 * _p95([one.per_token_s for one in ended])),
    }


def mean_loads(answers: Sequence[Answer], replicas: int, start: float, end: float) -> np.ndarray:
    """Mean number of requests between two times, [replicas]."""
    loads = np.zeros(replicas)
    for one in answers:
        there = min(end, one.arrival + one.latency_s) - max(start, one.arrival)
        loads[one.replica] += max(0.0, there)
    return loads / (end - start)


def _p95(values: Sequence[float]) -> float:
    return float(np.percentile(values, 95))
