"""Requests that run out of time: aborted wherever they are, and nobody else notices."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_engine import LLM, InvalidRequestError, SamplingParams
from jax_engine.engine.running_requests import Deadlines
from tests.core.test_complexity import lines_run
from tests.support.in_process import check_idle, run

SETTINGS = {"skip_tokenizer_init": True, "block_size": 4, "max_model_len": 40, "max_num_seqs": 4}


class Clock:
    """Time that passes when a test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(scope="module", params=[False, True], ids=["in turn", "ahead"])
def shared_llm(request, tiny):
    ahead = request.param
    return LLM(tiny, num_gpu_blocks_override=24, async_scheduling=ahead,
               preemption_mode="swap", **SETTINGS)  # fmt: skip


@pytest.fixture
def llm(shared_llm):
    shared_llm.llm_engine.clock = Clock()
    return shared_llm


def greedy(**changes) -> SamplingParams:
    return SamplingParams(**({"temperature": 0.0, "max_tokens": 8, "ignore_eos": True} | changes))


@pytest.mark.parametrize("steps", [0, 1, 3])
@pytest.mark.slow
def test_a_request_past_its_deadline_ends_as_far_as_it_came(llm, steps: int) -> None:
    """Waiting, just computed, running (and in flight, one step ahead)."""
    alone = llm.generate([[7, 8]], greedy(), use_tqdm=False)[0].outputs[0].token_ids
    engine, clock = llm.llm_engine, llm.llm_engine.clock
    engine.add_request("late", [4, 5, 6], greedy(max_tokens=30), timeout=2.5)
    engine.add_request("other", [7, 8], greedy())
    for _ in range(steps):
        engine.step()
    clock.now += 2.4
    assert all(not one.finished for one in engine.step())
    clock.now += 0.1
    ended = [one for one in engine.step() if one.finished]
    assert [one.request_id for one in ended] == ["late"]
    (one,) = ended[0].outputs
    assert (one.finish_reason, one.stop_reason) == ("abort", "timeout")
    assert len(one.token_ids) == steps + 1
    assert ended[0].metrics.finished_time == clock.now
    assert run(engine)[-1].outputs[0].token_ids == alone
    check_idle(engine)


def test_waiting_and_swapped_requests_time_out_too(llm) -> None:
    """More than the pool holds: the youngest is swapped out, and one never starts."""
    engine, clock = llm.llm_engine, llm.llm_engine.clock
    for i in range(4):
        engine.add_request(str(i), [3 + i] * 4, greedy(max_tokens=30), timeout=5 + i % 2)
    engine.add_request("waiting", [3], greedy(), timeout=5)
    while not engine.scheduler.swapped:
        engine.step()
    swapped = engine.scheduler.swapped[-1].request_id
    assert engine.scheduler.waiting[-1].request_id == "waiting"
    clock.now += 6
    ended = {one.request_id: one for one in engine.step()}
    assert {"0", "1", "2", "3", "waiting"} == ended.keys()
    assert ended["waiting"].outputs[0].token_ids == []
    assert len(ended[swapped].outputs[0].token_ids) > 0
    assert {one.outputs[0].stop_reason for one in ended.values()} == {"timeout"}
    check_idle(engine)
    assert engine.step() == []


def test_a_timeout_in_a_step_that_fails_is_lost_with_it(llm) -> None:
    """`step` raises for all requests at once; no later step speaks of one of them."""
    engine, clock = llm.llm_engine, llm.llm_engine.clock
    engine.add_request("late", [4, 5, 6], greedy(), timeout=1)
    engine.add_request("other", [7, 8], greedy())
    clock.now += 2
    launch = engine.worker.launch

    def failing(*args):
        raise RuntimeError("no device")

    engine.worker.launch = failing
    try:
        with pytest.raises(RuntimeError, match="no device"):
            engine.step()
    finally:
        engine.worker.launch = launch
    check_idle(engine)
    engine.add_request("next", [7, 8], greedy())
    assert {one.request_id for one in run(engine)} == {"next"}


def test_an_id_that_comes_back_has_a_deadline_of_its_own(llm) -> None:
    engine, clock = llm.llm_engine, llm.llm_engine.clock
    engine.add_request("a", [4, 5], greedy(), timeout=1)
    engine.abort_request("a")
    engine.add_request("a", [4, 5], greedy())
    clock.now += 2
    assert run(engine)[-1].outputs[0].finish_reason == "length"
    engine.add_request("a", [4, 5], greedy(), arrival_time=clock.now - 3, timeout=2)
    assert run(engine)[-1].outputs[0].stop_reason == "timeout"


def test_generate_takes_one_timeout_or_one_each(llm) -> None:
    clock = llm.llm_engine.clock
    launch = llm.llm_engine.worker.launch

    def slowly(*args):
        clock.now += 1
        return launch(*args)

    llm.llm_engine.worker.launch = slowly
    try:
        one, two = llm.generate([[4], [5]], greedy(), timeout=[3, None], use_tqdm=False)
        both = llm.generate([[4], [5]], greedy(), timeout=2, use_tqdm=False)
    finally:
        llm.llm_engine.worker.launch = launch
    assert (one.outputs[0].stop_reason, two.outputs[0].stop_reason) == ("timeout", None)
    assert 0 < len(one.outputs[0].token_ids) < 8 == len(two.outputs[0].token_ids)
    assert [output.outputs[0].stop_reason for output in both] == ["timeout"] * 2


@pytest.mark.parametrize("timeout", [0, -1.0, math.inf, math.nan, "1", True])
def test_bad_timeouts_are_refused(llm, timeout) -> None:
    with pytest.raises(InvalidRequestError, match="timeout must be"):
        llm.llm_engine.add_request("bad", [3], greedy(), timeout=timeout)
    with pytest.raises(InvalidRequestError, match="timeout must"):
        llm.generate([[3], [4]], greedy(), timeout=[1.0, timeout], use_tqdm=False)
    assert not llm.llm_engine.has_unfinished_requests()


def test_there_must_be_a_timeout_for_each_prompt(llm) -> None:
    with pytest.raises(InvalidRequestError, match="timeout must have one number for each of the 2"):
        llm.generate([[3], [4]], greedy(), timeout=[1.0], use_tqdm=False)


@given(
    st.lists(
        st.tuples(st.sampled_from(["add", "remove", "expire"]), st.integers(0, 9)), max_size=60
    )
)
def test_deadlines_are_those_of_a_dictionary(commands) -> None:
    deadlines, model = Deadlines(), {}
    for command, number in commands:
        name = f"r{number % 5}"
        if command == "remove":
            deadlines.remove(name)
            model.pop(name, None)
        elif command == "expire":
            found = deadlines.expired(number)
            assert sorted(found) == sorted(key for key, at in model.items() if at <= number)
            times = [model.pop(key) for key in found]
            assert times == sorted(times)
        elif name not in model:
            deadlines.add(name, number)
            model[name] = number
        assert len(deadlines) == len(model)


def test_work_does_not_depend_on_how_many_there_are() -> None:
    """Looking, and forgetting requests that finished long before their deadline."""
    counts = []
    for size in (1000, 20_000):
        deadlines = Deadlines()
        for i in range(size):
            deadlines.add(str(i), float(i + 10))
        counts.append(lines_run(lambda d=deadlines: d.expired(5.0)))
        for i in range(size - 1):
            deadlines.remove(str(i))
        assert len(deadlines._heap) < 200
        assert deadlines.expired(math.inf) == [str(size - 1)]
    assert counts[0] == counts[1]


def test_clean_ups_cost_each_request_the_same() -> None:
    """However many there are; and a few are not worth one."""
    costs = []
    for size in (20, 1000, 8000):
        deadlines = Deadlines()
        for i in range(size):
            deadlines.add(str(i), float(i))

        def forget_all(deadlines: Deadlines = deadlines, size: int = size) -> None:
            for i in range(size):
                deadlines.remove(str(i))

        costs.append(lines_run(forget_all) / size)
    assert costs[0] == costs[0] // 1 and costs[0] < 5, costs
    assert max(costs) < costs[0] + 10, costs


def test_deadlines_after_a_clean_up_come_in_their_order() -> None:
    """Soonest first; of those at the same time who was added first; `now` is not too early."""
    deadlines, times = Deadlines(), {f"r{i}": float(i * 37 % 101 // 2) for i in range(300)}
    for name, at in times.items():
        deadlines.add(name, at)
    for i in range(300):
        if i % 10:
            deadlines.remove(f"r{i}")
    left = {name: at for i, (name, at) in enumerate(times.items()) if i % 10 == 0}
    assert len(deadlines._heap) < 300, "a clean-up"
    early = [name for name in sorted(left, key=lambda one: left[one]) if left[name] <= 16.0]
    assert 16.0 in left.values() and deadlines.expired(16.0) == early
    assert len(deadlines) == len(left) - len(early)
    assert deadlines.expired(999.0) == sorted(left, key=lambda one: left[one])[len(early) :]
    assert not deadlines


def test_an_id_that_comes_back_has_lost_its_old_deadline() -> None:
    deadlines = Deadlines()
    deadlines.add("a", 1.0)
    deadlines.remove("a")
    deadlines.add("a", 9.0)
    assert deadlines.expired(5.0) == [] and deadlines.expired(9.0) == ["a"]
