"""How many replicas a load needs."""

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jax_engine.ray.autoscaling import (
    KV_CACHE_USAGE,
    SPARE,
    QueueAndKVCachePolicy,
    wanted_replicas,
)

QUEUES = st.floats(0, 1000)
USAGES = st.lists(st.floats(0, 1), max_size=8)
CURRENT = st.integers(0, 20)
LIMITS = st.tuples(st.integers(0, 5), st.integers(1, 20)).filter(lambda pair: pair[0] <= pair[1])
MANY = 10**6


def wanted(current: int, queue: float, usage: list[float], low: int = 0, high: int = MANY) -> int:
    return wanted_replicas(
        current,
        queue,
        usage,
        target_ongoing_requests=8,
        target_kv_cache_usage=0.8,
        min_replicas=low,
        max_replicas=high,
    )


@given(CURRENT, QUEUES, USAGES, st.floats(0, 500), LIMITS)
def test_more_load_never_wants_fewer(
    current: int, queue: float, usage: list[float], more: float, limits: tuple[int, int]
) -> None:
    least = wanted(current, queue, usage, *limits)
    assert wanted(current, queue + more, usage, *limits) >= least
    fuller = [min(1.0, one + more / 500) for one in usage]
    assert wanted(current, queue, fuller, *limits) >= least
    assert wanted(current, queue, [*usage, min(1.0, more)], *limits) >= least


@given(CURRENT, QUEUES, USAGES, LIMITS)
def test_the_answer_is_within_bounds_and_carries_the_load(
    current: int, queue: float, usage: list[float], limits: tuple[int, int]
) -> None:
    low, high = limits
    found = wanted(current, queue, usage, low, high)
    assert low <= found <= high
    load = max(queue / 8, sum(usage) / 0.8)
    assert found == high or found >= load * (1 - 1e-9)
    assert found <= max(low, load * (1 + SPARE) + 1)


@given(CURRENT, QUEUES, USAGES)
@example(current=4, queue=24.0, usage=[])
def test_a_constant_load_leads_to_one_number_at_once(
    current: int, queue: float, usage: list[float]
) -> None:
    first = wanted(current, queue, usage)
    assert wanted(first, queue, usage) == first


@given(st.integers(1, 20), st.lists(st.floats(0, 1), min_size=2, max_size=20))
def test_a_load_that_trembles_at_a_border_changes_the_number_once(
    border: int, steps: list[float]
) -> None:
    """It wants one more at most, and keeps it: no replica comes and goes with the load."""
    current, changes = border, 0
    for step in steps:
        queue = 8 * border * (1 + SPARE * (step - 0.5))
        found = wanted(current, queue, [])
        changes += found != current
        current = found
    assert changes <= 1


def test_no_load_needs_no_replica() -> None:
    """The lower bound says how many there are: with 0, Serve may end all."""
    assert wanted(3, 0, [0.0, 0.0, 0.0]) == 0
    assert wanted(0, 0.1, []) == 1


def context(**changes: Any) -> Any:
    """Serve's `AutoscalingContext`, as far as it is read."""
    return SimpleNamespace(
        **{
            "target_num_replicas": 2,
            "total_num_requests": 4.0,
            "aggregated_metrics": {KV_CACHE_USAGE: {"r1": 0.9, "r2": 1.0}, "other": {"r1": 9.0}},
            "capacity_adjusted_min_replicas": 1,
            "capacity_adjusted_max_replicas": 5,
            "config": SimpleNamespace(get_target_ongoing_requests=lambda: 8.0),
        }
        | changes
    )


def test_serve_s_context_is_read() -> None:
    assert QueueAndKVCachePolicy()(context()) == (3, {})  # 1.9 / 0.8 of a cache
    assert QueueAndKVCachePolicy(0.4)(context()) == (5, {})  # 4.75
    for none in (None, {}, {"other": {"r1": 1.0}}):
        assert QueueAndKVCachePolicy()(context(aggregated_metrics=none)) == (1, {})
    assert QueueAndKVCachePolicy()(context(total_num_requests=25.0)) == (4, {})
    assert QueueAndKVCachePolicy()(context(total_num_requests=99.0)) == (5, {})


@pytest.mark.parametrize("usage", [0, -0.1, 1.1, float("nan")])
def test_a_target_out_of_range_is_refused(usage: float) -> None:
    with pytest.raises(ValueError, match=r"target_kv_cache_usage must be in \(0, 1\], got"):
        QueueAndKVCachePolicy(usage)


def test_serve_takes_the_policy_as_it_is_named() -> None:
    """It is pickled by value, and made once from its arguments."""
    pytest.importorskip("ray.serve")
    from ray.serve._private.autoscaling_state import _resolve_policy_callable
    from ray.serve.config import AutoscalingPolicy

    from jax_engine.ray.openai_app import POLICY

    named = AutoscalingPolicy(policy_function=POLICY, policy_kwargs={"target_kv_cache_usage": 0.4})
    assert _resolve_policy_callable(named)(context()) == (5, {})
