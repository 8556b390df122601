"""Schedulers under random requests, in each mode (I1 to I24), on the oracle alone."""

import copy
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, note
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from reference.admission import AdmissionError
from reference.blocks import BlockManager
from reference.scheduler import Scheduler
from reference.sequence import SequenceGroup
from tests.support.drive import Driver
from tests.support.strategies import EOS, Request, Settings, next_token, requests, settings


def drive(chosen: Settings) -> Driver:
    blocks = chosen.block_manager(BlockManager)
    return Driver(Scheduler(blocks, **chosen.scheduler_arguments), blocks, chosen)


def all_state(driver: Driver) -> Any:
    """Everything that a refused request could have left a trace in."""
    queues = [group.request_id for group in driver.groups()]
    blocks, scheduler = driver.blocks, driver.scheduler
    return copy.deepcopy([queues, [*scheduler.groups], vars(blocks.gpu), blocks._tables])


def add(driver: Driver, name: str, request: Request) -> bool:
    """I21: a refused request leaves no trace, and its error has both numbers."""
    before = all_state(driver)
    try:
        driver.add(request.group(SequenceGroup, name), request)
    except AdmissionError as error:
        assert f"{error.field} = {error.need}, the limit is {error.limit}" in str(error)
        assert all_state(driver) == before
        return False
    return True


class SchedulerMachine(RuleBasedStateMachine):
    """Requests come, steps are taken, requests are dropped; `Driver` asserts I1 to I23."""

    @initialize(chosen=settings())
    def build(self, chosen: Settings) -> None:
        note(repr(chosen))
        self.driver = drive(chosen)
        self.num_requests = 0

    @rule(data=st.data(), count=st.integers(1, 4))
    def add(self, data: st.DataObject, count: int) -> None:
        for _ in range(count):
            request = data.draw(requests(self.driver.settings.max_model_len))
            add(self.driver, f"r{self.num_requests}", request)
            self.num_requests += 1

    @rule(count=st.integers(1, 6))
    def step(self, count: int) -> None:
        for _ in range(count):
            self.driver.step()

    @precondition(lambda self: self.driver.accepted)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        """I22: any request, in any state, finished ones included."""
        name = data.draw(st.sampled_from(sorted(self.driver.accepted)))
        unfinished = name in self.driver.scheduler.groups
        assert self.driver.abort(name) == unfinished

    @rule()
    def abort_unknown(self) -> None:
        """I22."""
        assert not self.driver.abort("nobody")

    @precondition(lambda self: self.driver.accepted)
    @rule(data=st.data())
    def finish_one_sequence(self, data: st.DataObject) -> None:
        """What an engine does when it finds a stop string."""
        group = self.driver.accepted[data.draw(st.sampled_from(sorted(self.driver.accepted)))]
        seq = data.draw(st.sampled_from(group.seqs))
        reason = seq.finish_reason
        self.driver.scheduler.finish_sequence(seq.seq_id, "stop", "word")
        assert seq.finish_reason == (reason or "stop")
        assert seq.stop_reason == ("word" if reason is None else seq.stop_reason)
        self.driver.check_state()

    @invariant()
    def contents_are_right(self) -> None:
        """I13, between steps."""
        if hasattr(self, "driver"):
            self.driver.check_contents()

    def teardown(self) -> None:
        """I20: everything accepted finishes; I9."""
        if hasattr(self, "driver"):
            self.driver.finish_all()


TestSchedulerMachine = SchedulerMachine.TestCase


def outputs(driver: Driver) -> dict[str, Any]:
    """What each accepted request became."""
    return {
        name: [(seq.token_ids, seq.finish_reason, seq.stop_reason) for seq in group.seqs]
        for name, group in driver.accepted.items()
    }


def run_all(chosen: Settings, workload: list[Request]) -> Driver:
    driver = drive(chosen)
    for index, request in enumerate(workload):
        add(driver, f"r{index}", request)
    driver.finish_all()
    return driver


def alone(request: Request, index: int, max_model_len: int) -> tuple[list[int], str, int | None]:
    """What sample `index` of a request becomes, with no scheduler at all."""
    token_ids = list(request.prompt)
    while True:
        token_ids.append(token_id := next_token(token_ids, index))
        output_len = len(token_ids) - len(request.prompt)
        if output_len >= request.min_tokens:
            if token_id == EOS and not request.ignore_eos:
                return token_ids, "stop", None
            if token_id in request.stop_token_ids:
                return token_ids, "stop", token_id
        if output_len == request.max_tokens or len(token_ids) == max_model_len:
            return token_ids, "length", None


@given(data=st.data(), chosen=settings())
def test_outputs_do_not_depend_on_how_they_were_scheduled(
    data: st.DataObject, chosen: Settings
) -> None:
    """I19 and I33: however often it was preempted, by swap or recompute, each sequence becomes what
    it would have become alone; its finish reason, too."""
    workload = data.draw(st.lists(requests(chosen.max_model_len), min_size=1, max_size=6))
    driver = run_all(chosen, workload)
    for name, sequences in outputs(driver).items():
        request = workload[int(name.removeprefix("r"))]
        samples = range(request.num_samples)
        assert sequences == [alone(request, i, chosen.max_model_len) for i in samples]


@given(data=st.data(), chosen=settings(), priority=st.integers(-3, 3))
def test_equal_priorities_are_first_come_first_served(
    data: st.DataObject, chosen: Settings, priority: int
) -> None:
    """I24."""
    workload = data.draw(st.lists(requests(chosen.max_model_len), min_size=1, max_size=6))
    workload = [replace(request, priority=priority) for request in workload]
    runs = []
    for policy in ("fcfs", "priority"):
        driver = run_all(replace(chosen, policy=policy), workload)
        runs.append((driver.finished, driver.num_steps, driver.num_preempted, outputs(driver)))
    assert runs[0] == runs[1]


def crowd(scheduling: str, preemption_mode: str | None, **more: Any) -> Driver:
    """Six requests in a pool for two, which can only end by preempting each other."""
    chosen = Settings(
        block_size=2,
        num_gpu_blocks=16,
        num_cpu_blocks=40,
        watermark=0.0,
        enable_prefix_caching=False,
        max_num_seqs=12,
        max_num_batched_tokens=24,
        max_model_len=24,
        scheduling=scheduling,
        policy="fcfs",
        preemption_mode=preemption_mode,
        enable_chunked_prefill=True,
        long_prefill_token_threshold=0,
    )
    request = Request((0, 1, 0, 1, 1, 0), 2, None, 8, 0, (), True, 0.0, 0, None)
    workload = [replace(request, prompt=(i % 2, *request.prompt)) for i in range(6)]
    return run_all(replace(chosen, **more), workload)


@pytest.mark.parametrize("scheduling", ["unified", "sosp", "sosp-mixed"])
def test_a_crowd_preempts_and_still_finishes_alike(scheduling: str) -> None:
    """I33, where preemption and copy-on-write are sure to happen; without CPU blocks, swapping
    falls back to recomputing (a group that forked, too)."""
    by_swap = crowd(scheduling, None)
    assert by_swap.scheduler.num_preemptions["swap"] > 0 and by_swap.num_copies > 0
    by_recompute = crowd(scheduling, "recompute")
    assert by_recompute.scheduler.num_preemptions["recompute"] > 0
    fallen_back = crowd(scheduling, "swap", num_cpu_blocks=0)
    assert fallen_back.scheduler.num_preemptions["recompute"] > 0
    assert fallen_back.scheduler.num_preemptions["swap"] == 0
    assert outputs(by_swap) == outputs(by_recompute) == outputs(fallen_back)
