"""`get_metrics`: each request counts once, when it ends, under vLLM's names."""

from types import SimpleNamespace
from typing import Any

import pytest

from jax_engine.engine.pipeline import TakenStep
from jax_engine.engine.stats import Counter, Gauge, Histogram, Metric, RequestRecorder
from jax_engine.kv_store.folder_store import StoreStats
from jax_engine.outputs import RequestMetrics

NO_LOAD: dict[str, Any] = {
    "num_running": 0, "num_waiting": 0, "num_swapped": 0, "num_used_blocks": 0, "num_blocks": 10,
    "num_recomputed": 0, "num_swapped_out": 0, "kv_cache_dir": None,
}  # fmt: skip


def ended(lengths: list[int], reason: str | None, *times: float | None, **more: Any) -> Any:
    """A request of 5 prompt tokens whose samples have these lengths.

    Args:
        times: as in `RequestMetrics`.
    """
    given: dict[str, Any] = {
        "reads_cache": True, "num_cached_tokens": None, "num_loaded_tokens": 0,
        "num_preemptions": 0,
    }  # fmt: skip
    given |= more
    seqs = [SimpleNamespace(finish_reason=reason, output_len=length) for length in lengths]
    group = SimpleNamespace(prompt_len=5, seqs=seqs, **given)
    results = SimpleNamespace(num_generated=sum(lengths), counts_samples=True)
    params = SimpleNamespace(n=len(lengths), max_tokens=more.get("max_tokens"))
    metrics = RequestMetrics(*times)  # type: ignore[arg-type]
    return SimpleNamespace(group=group, metrics=metrics, results=results, params=params)


def by_name(metrics: list[Metric]) -> dict[str, Metric]:
    return {
        "/".join([one.name.removeprefix("vllm:"), *list(one.labels.values())[2:]]): one
        for one in metrics
    }


def read(recorder: RequestRecorder, **load: Any) -> dict[str, Metric]:
    stats: Any = SimpleNamespace(**(NO_LOAD | load))
    return by_name(recorder.metrics(stats, "a model"))


def histograms(found: dict[str, Metric]) -> dict[str, tuple[int, Any]]:
    """Count and sum of those that saw something."""
    return {
        name: (one.count, pytest.approx(one.sum))
        for name, one in found.items()
        if isinstance(one, Histogram) and one.count
    }


def counters(found: dict[str, Metric]) -> dict[str, int]:
    return {
        name: one.value for name, one in found.items() if isinstance(one, Counter) and one.value
    }


def test_requests_that_have_ended() -> None:
    recorder = RequestRecorder()
    # arrived, first token, finished, queued, planned, last token
    recorder.take(ended([3, 5], "length", 10.0, 10.5, 13.0, 10.1, 10.25, 12.5, max_tokens=5,
                        num_preemptions=2))  # fmt: skip
    recorder.take(ended([1], "stop", 20.0, 21.0, 24.0, 20.0, 20.5, 21.0))
    recorder.take(ended([0], None, 30.0, None, 31.0, 30.5, None, None))  # it never ran
    recorder.take_failed(2)
    found = read(recorder)
    assert counters(found) == {
        "request_success/stop": 1,
        "request_success/length": 1,
        "request_success/abort": 1,
        "request_success/error": 2,
    }
    assert histograms(found) == {
        "e2e_request_latency_seconds": (3, 3.0 + 4.0 + 1.0),
        "request_queue_time_seconds": (2, 0.15 + 0.5),
        "request_prefill_time_seconds": (2, 0.25 + 0.5),
        "request_decode_time_seconds": (2, 2.0),
        "request_inference_time_seconds": (2, 2.25 + 0.5),
        "request_time_per_output_token_seconds": (1, 2.0 / 4),  # of the longest sample
        "request_prompt_tokens": (3, 15),
        "request_generation_tokens": (3, 9),
        "request_max_num_generation_tokens": (3, 6),
        "request_num_preemptions": (3, 2),
        "request_params_n": (3, 4),
        "request_params_max_tokens": (1, 5),
    }
    assert all(list(one.labels.items())[:2] == [("model_name", "a model"), ("engine", "0")]
               for one in found.values())  # fmt: skip


def test_tokens_count_when_they_come() -> None:
    recorder = RequestRecorder()
    cached = ended([2], None, 1.0, num_cached_tokens=4)
    pooled = ended([0], None, 2.0, reads_cache=False)  # it generates nothing
    for one in (cached, pooled):
        recorder.take_planned(one)
    recorder.take_step(10, TakenStep(first=[cached, pooled], num_first=1), 3.0)
    recorder.take_step(3, TakenStep(before=[3.0, 2.5, 3.0]), 3.5)
    found = read(recorder)
    assert counters(found) == {
        "prompt_tokens": 10,
        "generation_tokens": 4,
        "prefix_cache_queries": 5,
        "prefix_cache_hits": 4,
    }
    assert histograms(found) == {
        "time_to_first_token_seconds": (2, 2.0 + 1.0),
        "inter_token_latency_seconds": (3, 0.5 + 1.0 + 0.5),
        "iteration_tokens_total": (2, 13),
    }


def test_tokens_from_a_folder_are_no_hits_of_the_prefix_cache() -> None:
    recorder = RequestRecorder()
    recorder.take_planned(ended([2], None, 1.0, num_cached_tokens=4, num_loaded_tokens=3))
    found = counters(read(recorder, kv_cache_dir=StoreStats(bytes_loaded=7, failures=2)))
    assert found == {
        "prefix_cache_queries": 5,
        "prefix_cache_hits": 1,
        "external_prefix_cache_queries": 4,
        "external_prefix_cache_hits": 3,
        "kv_offload_load_bytes": 7,
        "jax_engine:kv_cache_dir_failures": 2,
    }


def test_the_tokens_found_for_all_requests_add_up() -> None:
    """A prompt of which nothing was found, or was looked for, has 0 of them."""
    recorder = RequestRecorder()
    for cached, loaded in ((4, 1), (None, 0), (3, 2)):
        one = ended([2], None, 1.0, num_cached_tokens=cached, num_loaded_tokens=loaded)
        recorder.take_planned(one)
    found = counters(read(recorder, kv_cache_dir=StoreStats()))
    assert {name: value for name, value in found.items() if "prefix" in name} == {
        "prefix_cache_queries": 3 * 5,
        "prefix_cache_hits": 3 + 1,
        "external_prefix_cache_queries": 2 + 5 + 4,
        "external_prefix_cache_hits": 1 + 2,
    }


def test_a_beam_search_counts_when_its_beams_are_chosen() -> None:
    recorder, beams = RequestRecorder(), ended([3, 3], "length", 1.0)
    beams.results.counts_samples = False
    recorder.take(beams)
    assert counters(read(recorder))["generation_tokens"] == 6


def test_what_runs_and_waits_now() -> None:
    """A swapped-out request counts as waiting, as in vLLM. Both kinds of preemption are counted."""
    load = {"num_running": 2, "num_waiting": 3, "num_swapped": 4, "num_used_blocks": 5,
            "num_recomputed": 6, "num_swapped_out": 7}  # fmt: skip
    found = read(RequestRecorder(), **load)
    gauges = {name: one.value for name, one in found.items() if isinstance(one, Gauge)}
    assert gauges == {
        "num_requests_running": 2,
        "num_requests_waiting": 7,
        "num_requests_waiting_by_reason/capacity": 7,
        "num_requests_waiting_by_reason/deferred": 0,
        "kv_cache_usage_perc": 0.5,
    }
    preemptions = found["num_preemptions"]
    assert isinstance(preemptions, Counter) and preemptions.value == 13
