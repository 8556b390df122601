"""I22 for the whole engine: aborts at any moment, and what they must not touch.

Requests are aborted before their first step, between steps, while the outputs of a step are looked
at, and by their deadline; the others get the reference's tokens.
"""

from typing import Any

from hypothesis import event, example, given
from hypothesis import strategies as st

from jax_engine import LLMEngine, SamplingParams
from tests.support.engine_driver import (
    EngineDriver,
    check_idle,
    check_samples,
    groups_without_aborts,
    is_refused,
)
from tests.support.engine_pair import (
    MAX_LEN,
    Pool,
    Request,
    build_pair,
    model_pair,
)
from tests.support.tiny_llama import VOCAB

POOLS = [Pool(3, 17), Pool(1, 48), Pool(16, 6)]  # so small that requests preempt each other
STEP_LIMIT = 1000
# When a request is aborted: this many steps after it was added, or by which means.
MOMENTS = ["between steps", "in a step's outputs", "deadline"]


@st.composite
def workloads(draw: st.DrawFn) -> list[Request]:
    stem = draw(st.lists(st.integers(3, VOCAB - 1), min_size=16, max_size=16))
    requests = []
    for i in range(draw(st.integers(2, 7))):
        n = draw(st.sampled_from([1, 1, 2, 3, 6]))  # of 6 not all at once
        params = SamplingParams(
            temperature=0.0 if n == 1 else 1.3,
            n=n,
            max_tokens=draw(st.sampled_from([2, 9, 16])),
            ignore_eos=draw(st.booleans()),
            seed=i,
        )
        prompt = [*stem[: draw(st.integers(1, 16))], 3 + i]
        step = draw(st.sampled_from([0, 0, 0, 1, 4]))
        requests.append(Request(str(i), prompt, params, step, float(i)))
    return requests


@st.composite
def aborts(draw: st.DrawFn) -> dict[str, tuple[int, str]]:
    """Request id to (steps after it was added, by which means)."""
    ids = st.sampled_from([str(i) for i in range(7)])
    when = st.tuples(st.sampled_from([0, 0, 1, 2, 3, 5, 8, 13]), st.sampled_from(MOMENTS))
    return draw(st.dictionaries(ids, when, min_size=1, max_size=5))


class Driver(EngineDriver):
    """Aborts as planned."""

    def __init__(self, engine: LLMEngine, plan: dict[str, tuple[int, str]]) -> None:
        super().__init__(engine)
        self.plan = plan

    def add_as_planned(self, request: Request) -> None:
        after, means = self.plan.get(request.request_id, (0, ""))
        self.add(request, timeout=after + 0.5 if means == "deadline" else None)
        if (after, means) == (0, "between steps"):
            self.abort(request.request_id)

    def step_as_planned(self) -> None:
        self.step(self.due("in a step's outputs"))
        for request_id in self.due("between steps"):
            self.abort(request_id)

    def due(self, means: str) -> list[str]:
        return [
            one
            for one, (after, how) in self.plan.items()
            if how == means and one in self.added and self.now - self.added[one] >= after
        ]


SETTINGS: dict[str, Any] = {"max_num_batched_tokens": MAX_LEN, "prefix_caching": True}
CROWD = [
    Request(str(i), [3 + i] * 9, SamplingParams(
        temperature=1.3 if n > 1 else 0.0, n=n, max_tokens=16, ignore_eos=True, seed=i
    ), 0, float(i))
    for i, n in enumerate([1, 6, 1, 1])
]  # fmt: skip


@given(
    pool=st.sampled_from(POOLS),
    workload=workloads(),
    plan=aborts(),
    ahead=st.booleans(),
    mode=st.sampled_from([None, "recompute", "swap"]),
    scheduling=st.sampled_from(["unified", "unified", "sosp-mixed"]),
    num_cpu_blocks=st.sampled_from([0, 6, 60]),
)
@example(POOLS[0], CROWD, {"1": (3, MOMENTS[1]), "3": (5, MOMENTS[2])}, True, "swap", "unified", 60)
@example(POOLS[0], CROWD, {str(i): (2, MOMENTS[0]) for i in range(4)}, True, None, "unified", 0)
def test_i22_aborts_at_any_moment_touch_nobody_else(
    pool, workload, plan, ahead, mode, scheduling, num_cpu_blocks
) -> None:
    """I9, I20, I22, I36: no leak, no hang, and others' tokens as without the aborts."""
    caching = scheduling == "unified"
    engine, reference = build_pair(
        pool, **SETTINGS | {"prefix_caching": caching}, async_scheduling=ahead,
        preemption_mode=mode, scheduling=scheduling, num_cpu_blocks=num_cpu_blocks,
    )  # fmt: skip
    accepted = [request for request in workload if not is_refused(engine, request)]
    driver = Driver(engine, plan)
    while len(driver.added) < len(accepted) or engine.has_unfinished_requests():
        for request in accepted:
            if request.step == driver.now:
                driver.add_as_planned(request)
        driver.step_as_planned()
        assert driver.now < STEP_LIMIT, "I20: a request hangs"
    check_idle(engine)
    if engine.stats().num_recomputed + engine.stats().num_swapped_out:
        event("preempted")
    groups = groups_without_aborts(reference, accepted)
    _, transformer = model_pair(pool.sliding_window)
    for request in accepted:
        output, group = driver.outputs[request.request_id], groups[request.request_id]
        check_samples(transformer, group, output, may_be_aborted=request.request_id in plan)
