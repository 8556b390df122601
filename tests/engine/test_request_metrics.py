"""`get_metrics`: each request counts once, when it ends, under vLLM's names."""

from types import SimpleNamespace
from typing import Any

import pytest

from jax_engine.engine.request_metrics import RequestRecorder
from jax_engine.metrics import Counter, Gauge, Histogram, Metric
from jax_engine.outputs import RequestMetrics

NO_LOAD: dict[str, Any] = {
    "num_running": 0, "num_waiting": 0, "num_swapped": 0, "num_used_blocks": 0, "num_blocks": 10,
    "num_recomputed": 0, "num_swapped_out": 0,
}  # fmt: skip


Times = tuple[float, float | None, float | None]


def ended(lengths: list[int], reason: str | None, times: Times, **more: Any) -> Any:
    """A request of 5 prompt tokens whose samples have these lengths."""
    given: dict[str, Any] = {"reads_cache": True, "num_cached_tokens": None} | more
    group = SimpleNamespace(prompt_len=5, seqs=[SimpleNamespace(finish_reason=reason)], **given)
    results = SimpleNamespace(num_generated=sum(lengths))
    return SimpleNamespace(group=group, metrics=RequestMetrics(*times), results=results)


def by_name(metrics: list[Metric]) -> dict[str, Metric]:
    return {
        "/".join([one.name.removeprefix("vllm:"), *list(one.labels.values())[2:]]): one
        for one in metrics
    }


def read(recorder: RequestRecorder, **load: Any) -> dict[str, Metric]:
    stats: Any = SimpleNamespace(**(NO_LOAD | load))
    return by_name(recorder.metrics(stats, "a model"))


def test_requests_that_have_ended() -> None:
    recorder = RequestRecorder()
    recorder.take(ended([3, 4], "length", (10.0, 10.5, 12.0), num_cached_tokens=4))
    recorder.take(ended([2], "stop", (20.0, 21.0, 24.0)))
    recorder.take(ended([0], None, (30.0, None, None)))  # a step failed: nothing was computed
    # A pooling request generates nothing, and does not read the cache.
    recorder.take(ended([0], "length", (40.0, 42.0, 42.0), reads_cache=False))
    found = read(recorder)
    values = {name: one.value for name, one in found.items() if isinstance(one, Counter)}
    assert values == {
        "prompt_tokens": 20,
        "generation_tokens": 9,
        "prefix_cache_queries": 15,
        "prefix_cache_hits": 4,
        "num_preemptions": 0,
        "request_success/stop": 1,
        "request_success/length": 2,
        "request_success/abort": 1,
    }
    seen = {name: (one.count, one.sum) for name, one in found.items() if isinstance(one, Histogram)}
    assert seen == {
        "time_to_first_token_seconds": (3, pytest.approx(0.5 + 1.0 + 2.0)),
        "e2e_request_latency_seconds": (3, pytest.approx(2.0 + 4.0 + 2.0)),
        "request_prompt_tokens": (4, 20),
        "request_generation_tokens": (4, 9),
    }
    assert all(list(one.labels.items())[:2] == [("model_name", "a model"), ("engine", "0")]
               for one in found.values())  # fmt: skip


def test_what_runs_and_waits_now() -> None:
    """Who was swapped out waits, as in vLLM; both ways to be preempted are preemptions."""
    load = {"num_running": 2, "num_waiting": 3, "num_swapped": 4, "num_used_blocks": 5,
            "num_recomputed": 6, "num_swapped_out": 7}  # fmt: skip
    found = read(RequestRecorder(), **load)
    gauges = {name: one.value for name, one in found.items() if isinstance(one, Gauge)}
    assert gauges == {
        "num_requests_running": 2,
        "num_requests_waiting": 7,
        "kv_cache_usage_perc": 0.5,
    }
    preemptions = found["num_preemptions"]
    assert isinstance(preemptions, Counter) and preemptions.value == 13
