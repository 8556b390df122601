"""Steps planned ahead: how many are launched, and when what was computed is forgotten."""

import itertools
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from jax_engine import LLMEngine, SamplingParams
from jax_engine.config.speculative_config import SpeculativeConfig
from jax_engine.engine.pipeline import StepPipeline
from jax_engine.outputs import RequestOutput
from jax_engine.step import Step
from tests.support.builders import SETTINGS, pair_without_device, small_engine
from tests.support.in_process import check_idle, run
from tests.support.strategies import VOCABULARY


def free(count: int, **changes: Any) -> SamplingParams:
    return SamplingParams(**({"max_tokens": count, "ignore_eos": True, "seed": 1} | changes))


def launches(engine: LLMEngine) -> list[list[int]]:
    """Filled with the numbers of the requests in each step that computes any, as it is launched."""
    worker: Any = engine.worker
    launch, found = worker.launch, list[list[int]]()

    def noted(step: Step) -> Any:
        if step.rows:
            found.append([row.request for row in step.rows])
        return launch(step)

    worker.launch = noted
    return found


def alone(prompt: list[int], params: SamplingParams) -> list[int]:
    """What a request draws that is the only one."""
    engine = small_engine(enable_prefix_caching=False)
    engine.add_request("alone", prompt, params)
    (*_, last) = run(engine)
    assert isinstance(last, RequestOutput)
    return last.outputs[0].token_ids


@pytest.mark.parametrize("ahead", [False, True])
def test_the_worker_is_told_once_who_begins_and_who_has_ended(ahead: bool) -> None:
    """It is told with the next step. A request that ended before it began is never told."""
    engine = small_engine(ahead=ahead)
    worker: Any = engine.worker
    launch, opened, closed = worker.launch, list[list[int]](), list[list[int]]()

    def noted(step: Step) -> Any:
        opened.append([setup.number for setup in step.opened])
        closed.append(step.closed)
        return launch(step)

    worker.launch = noted
    for i, count in enumerate([5, 1, 9, 4]):
        engine.add_request(str(i), [0, 1], free(count))
    engine.abort_request("0")
    engine.step()
    engine.abort_request("2")
    run(engine)
    engine.add_request("0", [0, 1], free(1))
    run(engine)
    assert [one for one in opened if one] == [[1, 2, 3], [4]] and opened[0]
    assert [one for one in closed if one] == [[1, 2], [3]] and closed[1 + ahead]
    assert list(worker.setups) == [4]


@pytest.mark.parametrize("ahead", [False, True])
def test_each_step_is_launched_once(ahead: bool) -> None:
    """A step in which somebody has ended is of use to the others; one of nobody's is not run."""
    engine = small_engine(ahead=ahead)
    found = launches(engine)
    for i, count in enumerate([2, 4]):
        engine.add_request(str(i), [0, 1], free(count))
    for _ in range(4):
        engine.step()
        assert len(engine.worker.in_flight) == (ahead and engine.has_unfinished_requests())  # type: ignore[attr-defined]
    assert not engine.has_unfinished_requests()
    assert found == [[0, 1], [0, 1], [1], [1]]
    check_idle(engine)


def test_behind_a_long_prompt_the_next_step_is_planned_when_its_tokens_are_known() -> None:
    """A request that comes meanwhile joins that step. One token a sequence is not a prompt's."""
    engine = small_engine(ahead=True, behind=3)
    found = launches(engine)
    engine.add_request("a", [0] * 5, free(9))
    engine.step()
    assert found == [[0]]
    engine.add_request("b", [1] * 4, free(3))
    engine.step()
    assert found == [[0], [0, 1], [0, 1]]
    run(engine)
    check_idle(engine)


@pytest.mark.parametrize("stages", [2, 3])
def test_all_stages_have_a_step_whatever_prompts_it_has(stages: int) -> None:
    """A stage without one would be idle; so what is launched does not depend on who may come."""
    settings = replace(SETTINGS, max_num_batched_tokens=4)
    engine, _ = pair_without_device(settings, ahead=True, behind=1, stages=stages)
    found = launches(engine)
    engine.add_request("a", [0] * 30, free(1))
    engine.step()
    assert found == [[0]] * stages
    run(engine)
    check_idle(engine)


def test_a_step_of_which_all_have_ended_is_not_waited_for() -> None:
    """What comes then is planned anew, as if that step had never been."""
    engine = small_engine(ahead=True)
    found = launches(engine)
    engine.add_request("a", [0, 1], free(9))
    engine.step()
    engine.abort_request("a")
    engine.add_request("b", [0, 1, 1], free(2))
    engine.add_request("c", [1], free(1))
    outputs = run(engine)
    assert found == [[0], [0], [1, 2], [1]]
    (mine,) = [one for one in outputs if one.request_id == "b" and one.finished]
    assert isinstance(mine, RequestOutput)
    assert mine.outputs[0].token_ids == alone([0, 1, 1], free(2))
    check_idle(engine)


@pytest.mark.parametrize("ahead", [False, True])
def test_a_step_that_is_of_use_to_one_is_collected(ahead: bool) -> None:
    """The other one has been aborted since the launch."""
    engine = small_engine(ahead=ahead)
    found = launches(engine)
    for i in range(2):
        engine.add_request(str(i), [0, 1], free(4))
    engine.step()
    engine.abort_request("0")
    run(engine)
    assert [len(one) for one in found] == [2, 2 if ahead else 1, 1, 1]


@pytest.mark.parametrize("ahead", [False, True])
def test_reset_forgets_the_cached_blocks_of_those_that_run(ahead: bool) -> None:
    """At once, or behind the step that is on its way; who runs is computed again."""
    engine = small_engine(ahead=ahead, block_size=2)
    prompt = [0, 1, 1, 0, 1]
    engine.add_request("a", prompt, free(6))
    engine.step()
    assert engine.stats().num_cached_blocks == 2 and not engine.reset_prefix_cache()
    assert engine.reset_prefix_cache(reset_running_requests=True) is True
    stats = engine.stats()
    assert stats.num_cached_blocks == (2 if ahead else 0)
    assert (stats.num_running, stats.num_waiting) == ((1, 0) if ahead else (0, 1))
    engine.step()  # the one on its way, or one that computes all tokens again
    assert engine.stats().num_tokens == (6 if ahead else 11)
    outputs = run(engine)
    assert engine.stats().num_tokens == (5 + 1 + 7 + 3 if ahead else 5 + 6 + 4)
    last, wanted = outputs[-1], alone(prompt, free(6))
    assert isinstance(last, RequestOutput) and last.num_cached_tokens == 0
    assert last.outputs[0].token_ids == wanted
    check_idle(engine)


@pytest.mark.parametrize("ahead", [False, True])
def test_reset_between_requests(ahead: bool) -> None:
    engine = small_engine(ahead=ahead, block_size=2)
    for reset in (False, True):
        cached = []
        for name in "ab":
            engine.add_request(name, [0, 1, 1, 0, 1], free(2))
            (*_, last) = run(engine)
            assert isinstance(last, RequestOutput)
            cached.append(last.num_cached_tokens)
            assert engine.stats().num_cached_blocks
            if reset:
                assert engine.reset_prefix_cache()
                assert not engine.stats().num_cached_blocks
        assert cached == ([0, 4] if not reset else [4, 0])


@pytest.mark.parametrize("place", ["launch", "collect"])
def test_after_a_failure_a_reset_and_the_step_ahead_are_forgotten(place: str) -> None:
    engine = small_engine(ahead=True, block_size=2)
    worker: Any = engine.worker
    engine.add_request("a", [0, 1, 1, 0, 1], free(6))
    engine.step()
    assert engine.reset_prefix_cache(reset_running_requests=True)
    worker.fail_at = "collect"
    with pytest.raises(worker.Error):
        engine.step()
    check_idle(engine)
    assert not worker.in_flight and not worker.setups and not engine._pipeline._flight
    found = launches(engine)
    engine.add_request("b", [0, 1, 1, 0, 1], free(3))
    engine.step()
    assert found == [[1], [1]], "a step, and the one ahead of it"
    worker.fail_at = place
    with pytest.raises(worker.Error):
        engine.step()
    check_idle(engine)
    assert not engine._pipeline._flight, "it holds memory of the device"


def test_a_reset_while_only_those_are_computed_that_have_ended() -> None:
    engine = small_engine(ahead=True, block_size=2)
    engine.add_request("a", [0, 1, 1, 0, 1], free(6))
    engine.step()
    assert engine.reset_prefix_cache(reset_running_requests=True)
    engine.abort_request("a")
    engine.add_request("b", [0, 1, 1, 0, 1], free(2))
    (*_, last) = run(engine)
    assert isinstance(last, RequestOutput) and last.num_cached_tokens == 0
    check_idle(engine)


@pytest.mark.parametrize(
    ("stages", "guesses", "ahead"),
    [(1, False, True), (1, True, True), (2, False, True), (2, True, False)],
)
def test_several_stages_have_no_step_ahead_where_there_are_guesses(
    stages: int, guesses: bool, ahead: bool
) -> None:
    """Nor has anybody who does not ask for it."""
    runner: Any = SimpleNamespace(capabilities=SimpleNamespace(max_concurrent_batches=stages))
    some: Any = object()
    for asked_for in (True, False):
        made = StepPipeline(
            some, runner, look_ahead=asked_for, speculator=some if guesses else None
        )
        assert made.look_ahead is (asked_for and ahead)


def test_blocks_are_moved_before_a_step_is_launched_and_noted_behind_it() -> None:
    """What is filled from a folder must be there when the step that reads it begins."""
    engine = small_engine()
    worker: Any = engine.worker
    launch, events = worker.launch, list[Any]()

    def noted(step: Step) -> Any:
        events.append("launch")
        return launch(step)

    worker.launch = noted
    engine._pipeline._stored = SimpleNamespace(  # type: ignore[assignment]
        before_step=lambda plan: events.append(("before", len(plan.scheduled))),
        after_step=lambda: events.append("after"),
    )
    engine.add_request("a", [0, 1], free(2))
    run(engine)
    assert events == [("before", 1), "launch", "after"] * 2


def test_a_step_has_the_guesses_that_nobody_has_read() -> None:
    """The worker takes them from the steps of the draft model, as the plan has none of them."""
    config = SpeculativeConfig(method="draft_model", model="m", num_speculative_tokens=3)
    engine = small_engine(ahead=True, speculation=config, draft={"accepts": True})
    worker: Any = engine.worker
    launch, unread = worker.launch, list[bool]()

    def noted(step: Step) -> Any:
        unread.append(step.unread is not None)
        return launch(step)

    worker.launch = noted
    engine.add_request("a", [0, 1, 1], free(9, temperature=0.0))
    (*_, last) = run(engine)
    assert isinstance(last, RequestOutput)
    assert last.outputs[0].token_ids == alone([0, 1, 1], free(9, temperature=0.0))
    assert any(unread) and not unread[0]


def masked_steps(engine: LLMEngine) -> list[Any]:
    """Filled with what the worker is asked to do with masked steps, of which all logits are 0."""
    worker: Any = engine.worker
    found, draw = list[Any](), worker.sample

    def logits(ticket: Any) -> np.ndarray:
        found.append("logits")
        return np.zeros((len(ticket.logits), VOCABULARY), np.float32)

    def sample(ticket: Any, allowed: np.ndarray, processed: np.ndarray | None) -> None:
        found.append((allowed.tolist(), None if processed is None else processed.tolist()))
        draw(ticket, allowed, processed)

    worker.logits, worker.sample = logits, sample
    return found


@pytest.mark.parametrize("ahead", [False, True])
def test_only_steps_with_constrained_rows_are_masked(ahead: bool) -> None:
    engine = small_engine(ahead=ahead)
    found = masked_steps(engine)
    engine.add_request("free", [0, 1], free(4))
    assert engine.stats().guided_seconds == 0.0
    engine.step()
    assert not found
    engine.add_request("a", [0, 1], free(1, n=2, allowed_token_ids=[0, 1]))
    run(engine)
    everything = 2**32 - 1
    assert found == [([[everything], [0b11], [0b11]], None)]
    assert engine.stats().guided_seconds > 0.0
    engine.add_request("later", [0], free(2))
    run(engine)
    assert len(found) == 1
    check_idle(engine)


def test_the_time_of_all_masks_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, seconds = small_engine(), itertools.count()
    masked_steps(engine)
    engine.add_request("a", [0, 1], free(3, allowed_token_ids=[0, 1]))
    monkeypatch.setattr(
        "jax_engine.engine.requests.masks.time", SimpleNamespace(perf_counter=lambda: next(seconds))
    )
    run(engine)
    assert engine.stats().guided_seconds == 3.0, "a second for each step"


def test_a_processor_that_raises_ends_its_request() -> None:
    def fail(output: list[int], logits: np.ndarray) -> np.ndarray:
        if output:
            raise RuntimeError("no more")
        return logits + 1

    engine = small_engine(ahead=True)
    found = masked_steps(engine)
    engine.add_request("a", [0], free(5, logits_processors=[fail]))
    engine.add_request("b", [0], free(3))
    ends = {one.request_id: one for one in run(engine) if one.finished}
    assert found[:2] == ["logits", ([[0b111], [2**32 - 1]], [[1.0] * 3, [0.0] * 3])]
    a, b = ends["a"], ends["b"]
    assert isinstance(a, RequestOutput) and isinstance(b, RequestOutput)
    assert (a.outputs[0].finish_reason, len(a.outputs[0].token_ids)) == ("abort", 1)
    assert a.outputs[0].stop_reason == "a logits processor raised RuntimeError('no more')"
    assert len(b.outputs[0].token_ids) == 3
    check_idle(engine)


def test_after_a_failure_constraints_are_forgotten() -> None:
    engine = small_engine()
    masked_steps(engine)
    worker: Any = engine.worker
    engine.add_request("a", [0], free(5, allowed_token_ids=[0]))
    engine.step()
    engine.add_request("b", [0], free(5, allowed_token_ids=[0]))
    worker.fail_at = "launch"
    with pytest.raises(worker.Error):
        engine.step()
    check_idle(engine)
    assert not engine._pipeline.closed, "the worker has forgotten them by itself"
