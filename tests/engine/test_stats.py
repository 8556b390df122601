"""What `EngineStats` counts, step by step, against numbers worked out by hand."""

from types import SimpleNamespace
from typing import Any

import pytest

from jax_engine.core.scheduler_output import SchedulerOutput
from jax_engine.engine.stats import EngineStats, Observations, StatsRecorder
from jax_engine.kv_store.folder_store import StoreStats

STEPS = [(4, 4, 0, 10), (6, 8, 2, 3), (3, 12, 1, 1)]  # used, logical, shared; tokens


def recorder_of(blocks: Any, costs: Any = None) -> StatsRecorder:
    scheduler: Any = SimpleNamespace(
        block_manager=blocks,
        waiting=[1],
        running=[1, 2],
        swapped=[1, 2, 3],
        num_preemptions={"recompute": 5, "swap": 7},
        preemption_costs=costs,
    )
    return StatsRecorder(scheduler)


def holds(blocks: SimpleNamespace, used: int, logical: int, shared: int) -> None:
    """Sets the counts of a manager's double, and of the pool that it has on the device."""
    blocks.num_used_gpu_blocks, blocks.num_logical_blocks = used, logical
    blocks.num_shared_blocks = shared
    free = blocks.num_gpu_blocks - used
    blocks.gpu = SimpleNamespace(
        num_blocks=blocks.num_gpu_blocks, num_free=free, num_refs=logical, num_shared=shared
    )


def test_counters_peaks_and_means() -> None:
    blocks = SimpleNamespace(num_gpu_blocks=20, num_free_gpu_blocks=17, num_cached_blocks=9)
    costs: Any = "measured"
    recorder = recorder_of(blocks, costs)
    for used, logical, shared, tokens in STEPS:
        holds(blocks, used, logical, shared)
        recorder.record(SchedulerOutput(num_batched_tokens=tokens))
    assert recorder.now() == EngineStats(
        num_waiting=1,
        num_running=2,
        num_swapped=3,
        num_blocks=20,
        num_used_blocks=3,
        num_shared_blocks=1,
        num_logical_blocks=12,
        num_free_blocks=17,
        num_cached_blocks=9,
        peak_used_blocks=6,
        peak_shared_blocks=2,
        mean_sharing_saving=pytest.approx(1 - 13 / 24),
        peak_sharing_saving=pytest.approx(1 - 3 / 12),
        num_steps=3,
        num_tokens=14,
        num_recomputed=5,
        num_swapped_out=7,
        preemption_costs=costs,
    )


def test_before_and_without_any_sharing_nothing_is_saved() -> None:
    blocks = SimpleNamespace(num_gpu_blocks=20, num_free_gpu_blocks=20, num_cached_blocks=0)
    holds(blocks, used=0, logical=0, shared=0)
    recorder = recorder_of(blocks)
    stats = recorder.now()
    assert (stats.num_steps, stats.num_tokens, stats.peak_used_blocks) == (0, 0, 0)
    assert stats.kv_cache_dir is None
    assert (stats.peak_shared_blocks, stats.peak_sharing_saving) == (0, 0.0)
    assert stats.mean_sharing_saving == 0.0
    assert stats.preemption_costs is None
    recorder.record(SchedulerOutput())  # of a step that only swaps out
    assert recorder.now().peak_sharing_saving == recorder.now().mean_sharing_saving == 0.0
    holds(blocks, used=5, logical=5, shared=0)
    recorder.record(SchedulerOutput(num_batched_tokens=1))
    stats = recorder.now()
    assert (stats.mean_sharing_saving, stats.peak_sharing_saving) == (0.0, 0.0)
    assert (stats.peak_used_blocks, stats.peak_shared_blocks) == (5, 0)


def test_a_folder_s_counts_are_those_of_that_moment() -> None:
    blocks = SimpleNamespace(num_gpu_blocks=20, num_free_gpu_blocks=20, num_cached_blocks=0)
    holds(blocks, used=0, logical=0, shared=0)
    recorder, counts = recorder_of(blocks), StoreStats()
    recorder._store = SimpleNamespace(stats=counts)  # type: ignore[assignment]
    counts.bytes_stored = 7
    before = recorder.now().kv_cache_dir
    counts.bytes_stored = 9
    assert before is not None and before.bytes_stored == 7


def test_the_buckets_of_a_histogram_add_up() -> None:
    """As in Prometheus: each has what is at most its limit, the last one all."""
    seen = Observations((1, 5))
    for value, count in ((0.5, 1), (1, 2), (5, 4), (9, 8)):
        seen.add(value, count)
    found = seen.histogram("a name", {"a": "label"})
    assert (found.name, found.labels, found.count) == ("a name", {"a": "label"}, 15)
    assert found.sum == 0.5 + 2 + 20 + 72
    assert found.buckets == {"1.0": 3, "5.0": 7, "+Inf": 15}
