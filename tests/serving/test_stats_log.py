"""The line about what the engine does."""

from typing import Any

from jax_engine.serving.stat_loggers import StatsLog

NAMES = {
    "prompt": "prompt_tokens", "generated": "generation_tokens", "queries": "prefix_cache_queries",
    "hits": "prefix_cache_hits", "running": "num_requests_running",
    "waiting": "num_requests_waiting", "usage": "kv_cache_usage_perc",
}  # fmt: skip


def metrics(engine: str = "0", **values: float) -> list[dict[str, Any]]:
    zeros, labels = dict.fromkeys(NAMES, 0), {"engine": engine}
    found: list[dict[str, Any]] = [
        {"name": f"vllm:{NAMES[name]}", "value": value, "labels": labels}
        for name, value in (zeros | values).items()
    ]
    return [*found, {"name": "vllm:request_params_n", "count": 5, "labels": labels}]


def test_rates_are_since_the_line_before_and_idle_is_silent() -> None:
    log = StatsLog(100.0)
    assert log.line(metrics(), 110.0) is None
    first = metrics(prompt=50, generated=20, queries=50, hits=10, running=2, waiting=1, usage=0.125)
    assert log.line(first, 120.0) == (
        "Avg prompt throughput: 5.0 tokens/s, Avg generation throughput: 2.0 tokens/s, "
        "Running: 2 reqs, Waiting: 1 reqs, GPU KV cache usage: 12.5%, Prefix cache hit rate: 20.0%"
    )
    later: dict[str, float] = {"prompt": 50, "generated": 30, "queries": 50, "hits": 10}
    line = log.line(metrics(**later), 122.0)
    assert line is not None and "generation throughput: 5.0" in line and "20.0%" in line
    line = log.line(metrics(**later), 132.0)
    assert line is not None and "generation throughput: 0.0" in line, "the end is told, once"
    assert log.line(metrics(**later), 142.0) is None


def test_several_engines_are_one_line() -> None:
    one = metrics(prompt=50, generated=20, queries=50, hits=10, running=2, waiting=1, usage=0.125)
    other = metrics("1", prompt=10, generated=5, queries=10, hits=2, running=1, usage=0.375)
    assert StatsLog(100.0).line([*one, *other], 110.0) == (
        "Avg prompt throughput: 6.0 tokens/s, Avg generation throughput: 2.5 tokens/s, "
        "Running: 3 reqs, Waiting: 1 reqs, GPU KV cache usage: 25.0%, Prefix cache hit rate: 20.0%"
    )
