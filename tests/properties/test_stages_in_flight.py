"""Several stages, each with another step: the oracle's outputs, whoever shares a step with whom.

The engine has a `StubRunner` that takes as many steps at once as there are stages. It refuses a
token that the first stage could not know. The oracle has one step at a time.
"""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.properties.test_engine_shell import CROWD, CROWDED, FAILURES, LATER, SCORED, cases, serve
from tests.support.engine_under_test import Request
from tests.support.engine_workloads import BETWEEN, IN_OUTPUTS, Abort
from tests.support.sometimes import SEEN
from tests.support.strategies import Settings

ROOMY = Settings(3, 40, 8, 0.0, True, 8, 64, 40, "unified", "fcfs", None, True, 0)


@given(case=cases(), stages=st.integers(2, 4), through_bytes=st.booleans())
def test_i29_to_i37_steps_of_several_stages_give_the_oracle_s_outputs(
    case: Any, stages: int, through_bytes: bool
) -> None:
    """With every kind of request, deadlines, aborts, ids that come back, and steps that fail."""
    serve(*case, ahead=True, stages=stages, through_bytes=through_bytes)


@pytest.mark.parametrize("stages", [2, 3])
@pytest.mark.parametrize("mode", ["recompute", "swap"])
def test_what_must_happen_happens(stages: int, mode: str) -> None:
    """Whatever Hypothesis draws: preemption and aborts of requests whose steps are in flight."""
    chosen = replace(CROWDED, preemption_mode=mode, num_gpu_blocks=18)
    long = SCORED | {"max_tokens": 14}
    crowd = [Request(str(i), [0, 1, i % 3], long | {"seed": i}, 0, 0.0) for i in range(5)]
    before = SEEN.copy()
    serve(chosen, crowd, {0: Abort(9, BETWEEN)}, {}, ahead=True, stages=stages)
    wanted = {f"preempted by {mode}", "aborted", "preempted in flight"}
    wanted |= {"three steps at once", "abort in flight"} if stages == 3 else set()
    assert not {name for name in wanted if SEEN[name] == before[name]}


@pytest.mark.parametrize(("place", "when"), FAILURES)
def test_after_a_step_that_failed_nothing_is_left_of_it(place: str, when: int) -> None:
    """The steps in flight beside it are gone, too, and the same requests run later."""
    later = [replace(one, step=LATER, arrival_time=float(LATER)) for one in CROWD]
    name = f"a step failed: {place}"
    before = SEEN[name]
    pair = serve(CROWDED, [*CROWD, *later], {}, {when: place}, ahead=True, stages=3)
    assert SEEN[name] == before + 1
    lost = [one.lost for one in pair.served]
    assert any(lost[: len(CROWD)]) and not any(lost[len(CROWD) :])


@pytest.mark.parametrize("where", [BETWEEN, IN_OUTPUTS])
@pytest.mark.parametrize("first", [0, 1, 2])
@pytest.mark.parametrize("after", [1, 2, 4])
def test_an_abort_while_several_steps_are_in_flight(first: int, after: int, where: Any) -> None:
    requests = [Request(str(i), [0, 1, 1, i], SCORED, 0, 0.0) for i in range(3)]
    plan = {first: Abort(after, where)}
    pair = serve(ROOMY, requests, plan, {}, ahead=True, stages=3)
    reasons = [one.output.outputs[0].finish_reason for one in pair.served]
    assert reasons == ["abort" if i == first else "length" for i in range(3)]
