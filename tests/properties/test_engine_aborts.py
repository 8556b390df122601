"""I22 for the whole engine: aborts at any moment, and what they must not touch.

Requests are aborted before their first step, between steps, while the outputs of a step are looked
at, and by their deadline; their ids come back at once. The others get the reference's outputs.
"""

from dataclasses import replace
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from tests.properties.test_engine_against_reference import run_both
from tests.support.engine_pair import MAX_LEN, Pool
from tests.support.engine_under_test import Request
from tests.support.engine_workloads import (
    BETWEEN,
    IN_OUTPUTS,
    PENALISED,
    SCORED,
    Abort,
    Aborts,
    aborts,
    scheduler_settings,
    workloads,
)

POOLS = [PENALISED, SCORED, Pool(16, 6)]  # so small that requests preempt each other


@st.composite
def timed_workloads(draw: st.DrawFn) -> list[Request]:
    """Some have a deadline, which falls between two steps or on one."""
    timeouts = st.sampled_from([None, None, None, 0.5, 2.0, 3.5, 8.0])
    return [replace(request, timeout=draw(timeouts)) for request in draw(workloads())]


SETTINGS: dict[str, Any] = {
    "scheduling": "unified", "max_num_batched_tokens": MAX_LEN, "prefix_caching": True
}  # fmt: skip
LONG: dict[str, Any] = {"max_tokens": 16, "ignore_eos": True}
CROWD = [
    Request(
        str(i), [3 + i] * 9, LONG | {"temperature": 1.3 * (n > 1), "n": n, "seed": i}, 0, float(i)
    )
    for i, n in enumerate([1, 6, 1, 1])
]  # fmt: skip
SWAPPED = SETTINGS | {"preemption_mode": "swap", "num_cpu_blocks": 60}
ALL_AT_ONCE: Aborts = {i: Abort(2, BETWEEN) for i in range(4)}


@given(
    pool=st.sampled_from(POOLS), settings=scheduler_settings(), workload=timed_workloads(),
    plan=aborts(),
)  # fmt: skip
@example(PENALISED, SWAPPED, CROWD, {1: Abort(3, IN_OUTPUTS), 3: Abort(5, BETWEEN)})
@example(PENALISED, SETTINGS | {"num_cpu_blocks": 0}, CROWD, ALL_AT_ONCE)
def test_i22_aborts_at_any_moment_touch_nobody_else(pool, settings, workload, plan) -> None:
    """I9, I20, I22, I36: no leak, no hang, and others' outputs as without the aborts."""
    run_both(pool, settings, workload, plan)
