"""The figures of a run, named as `vllm bench serve` names them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jax_engine.commands.bench.benchmark_request import Outcome

METRICS = {  # name: its title, and what stands above its lines
    "ttft": ("TTFT", "Time to First Token"),
    "tpot": ("TPOT", "Time per Output Token (excl. 1st token)"),
    "itl": ("ITL", "Inter-token Latency"),
    "e2el": ("E2EL", "End-to-end Latency"),
}


def figures(
    outcomes: Sequence[Outcome],
    duration: float,
    *,
    percentiles: Sequence[float] = (99,),
    goodput: Mapping[str, float] | None = None,
) -> dict[str, Any]:
    """Counts, throughput, and mean, median, spread and percentiles of each of `METRICS`.

    Args:
        duration: seconds of the run.
        goodput: milliseconds that "ttft", "tpot" and "e2el" of a good request do not exceed.
    """
    done = [one for one in outcomes if one.error is None]
    num_in, num_out = sum(one.num_prompt for one in done), sum(one.num_output for one in done)
    found: dict[str, Any] = {
        "duration": duration,
        "completed": len(done),
        "failed": len(outcomes) - len(done),
        "total_input_tokens": num_in,
        "total_output_tokens": num_out,
        "request_throughput": len(done) / duration,
        "request_goodput": None,
        "output_throughput": num_out / duration,
        "total_token_throughput": (num_in + num_out) / duration,
        "mean_normalized_latency_ms": _mean([one.latency / one.num_output for one in done]),
    }
    if goodput:
        found["request_goodput"] = sum(_is_good(one, goodput) for one in done) / duration
    for name, seconds in _values(done).items():
        found |= _spread(name, seconds, percentiles)
    return found


def _is_good(one: Outcome, limits: Mapping[str, float]) -> bool:
    mine = {"ttft": one.time_to_first, "tpot": one.per_token, "e2el": one.latency}
    return all(1e3 * mine[name] <= limit for name, limit in limits.items())


def _values(done: Sequence[Outcome]) -> dict[str, list[float]]:
    """Seconds of each metric; TPOT is one of requests with more than one token."""
    return {
        "ttft": [one.time_to_first for one in done],
        "tpot": [one.per_token for one in done if one.num_output > 1],
        "itl": [gap for one in done for gap in one.between],
        "e2el": [one.latency for one in done],
    }


def _mean(seconds: Sequence[float]) -> float:
    return 1e3 * float(np.mean(seconds or [0.0]))


def _spread(name: str, seconds: Sequence[float], percentiles: Sequence[float]) -> dict[str, float]:
    values = 1e3 * np.asarray(seconds or [0.0])
    found = {f"mean_{name}_ms": values.mean(), f"median_{name}_ms": np.median(values)}
    found[f"std_{name}_ms"] = values.std()
    for one in percentiles:
        found[f"p{one:g}_{name}_ms"] = np.percentile(values, one)
    return {key: float(value) for key, value in found.items()}


def block(
    found: Mapping[str, Any],
    metrics: Sequence[str],
    percentiles: Sequence[float],
    *,
    rate: float,
    max_concurrency: int | None = None,
) -> str:
    """The figures as lines under headings.

    Args:
        metrics: those of `METRICS` that are shown.
        rate: requests a second that were asked for.
    """
    rows = [
        ("Successful requests:", found["completed"]),
        ("Failed requests:", found["failed"]),
        ("Maximum request concurrency:", max_concurrency),
        ("Request rate configured (RPS):", rate if np.isfinite(rate) else None),
        ("Benchmark duration (s):", found["duration"]),
        ("Total input tokens:", found["total_input_tokens"]),
        ("Total generated tokens:", found["total_output_tokens"]),
        ("Request throughput (req/s):", found["request_throughput"]),
        ("Request goodput (req/s):", found["request_goodput"]),
        ("Output token throughput (tok/s):", found["output_throughput"]),
        ("Total token throughput (tok/s):", found["total_token_throughput"]),
        ("Mean normalized latency (ms/tok):", found["mean_normalized_latency_ms"]),
    ]
    lines = [f"{' Serving Benchmark Result ':=^50}"]
    lines += [_line(title, value) for title, value in rows if value is not None]
    for name in metrics:
        title, heading = METRICS[name]
        lines.append(f"{heading:-^50}")
        lines.append(_line(f"Mean {title} (ms):", found[f"mean_{name}_ms"]))
        lines.append(_line(f"Median {title} (ms):", found[f"median_{name}_ms"]))
        for one in percentiles:
            lines.append(_line(f"P{one:g} {title} (ms):", found[f"p{one:g}_{name}_ms"]))
    return "\n".join([*lines, "=" * 50])


def _line(title: str, value: float) -> str:
    return f"{title:<40} {value:<10.2f}" if isinstance(value, float) else f"{title:<40} {value:<10}"
