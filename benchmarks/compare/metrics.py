"""Figures of one pass, and how alike two peers' tokens are."""

from typing import Any

import numpy as np

from benchmarks.compare.workloads import Job


def figures(jobs: list[Job], answer: dict[str, Any]) -> dict[str, float]:
    """Throughput and latencies of a pass, from its answer (see `peers/wire.py`).

    Raises:
        ValueError: A sample does not have the length that was asked for.
    """
    first, per_token, normalised, num_out = [], [], [], 0
    for job, row in zip(jobs, answer["requests"], strict=True):
        lengths = [len(sample) for sample in row["tokens"]]
        if lengths != [job.output_len] * job.n:
            raise ValueError(f"asked for {job.n} x {job.output_len} tokens, got {lengths}")
        num_out += sum(lengths)
        first.append(row["first_s"] - job.arrival_s)
        per_token.append((row["finish_s"] - row["first_s"]) / max(1, job.output_len - 1))
        normalised.append((row["finish_s"] - job.arrival_s) / job.output_len)
    seconds = max(row["finish_s"] for row in answer["requests"])
    return {
        "seconds": round(seconds, 3),
        "output_tokens_per_s": round(num_out / seconds, 2),
        **_spread("time_to_first_token", first),
        **_spread("time_per_output_token", per_token),
        "normalised_latency_ms": round(1e3 * float(np.mean(normalised)), 2),
    }


def _spread(name: str, seconds: list[float]) -> dict[str, float]:
    values = 1e3 * np.asarray(seconds)
    return {f"{name}_p{q}_ms": round(float(np.percentile(values, q)), 2) for q in (50, 99)}


def medians(passes: list[dict[str, float]]) -> dict[str, float]:
    """The median of each figure over the passes."""
    return {key: round(float(np.median([one[key] for one in passes])), 3) for key in passes[0]}


def ratio(ours: list[dict[str, float]], theirs: list[dict[str, float]], quiet: list[bool]) -> float:
    """Our tokens a second over theirs: pass by pass, then the median.

    Pairs with a pass on a busy machine (not `quiet`) count only where there are no others.
    """
    key = "output_tokens_per_s"
    pairs = [mine[key] / other[key] for mine, other in zip(ours, theirs, strict=True)]
    calm = [one for one, is_quiet in zip(pairs, quiet, strict=True) if is_quiet]
    return round(float(np.median(calm or pairs)), 3)


def agreement(ours: dict[str, Any], theirs: dict[str, Any]) -> dict[str, Any]:
    """Greedy tokens of two peers on the same requests.

    Returns:
        The share of positions that are equal; how many requests are equal throughout; for each
        request the first position that differs, or None. After a near-tie the rest may differ.
    """
    equal = total = 0
    first: list[int | None] = []
    for mine, other in zip(ours["requests"], theirs["requests"], strict=True):
        same = [a == b for a, b in zip(mine["tokens"][0], other["tokens"][0], strict=True)]
        equal, total = equal + sum(same), total + len(same)
        first.append(None if all(same) else same.index(False))
    return {
        "equal_tokens_percent": round(100 * equal / total, 2),
        "equal_requests": sum(one is None for one in first),
        "requests": len(first),
        "first_difference": " ".join("-" if one is None else str(one) for one in first),
    }
