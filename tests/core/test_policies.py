"""I24: order of service under the two policies."""

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from jax_engine.core import BlockManager, Scheduler, SequenceGroup
from jax_engine.errors import InvalidRequestError
from tests.core.build import make_group, make_scheduler, step
from tests.support.drive import draw as draw_tokens
from tests.support.strategies import Request, Settings, requests, settings


def decisions(chosen: Settings, batch: list[Request]) -> list[Any]:
    """What a scheduler does with these requests, from the first step to the last."""
    scheduler = Scheduler(chosen.block_manager(BlockManager), **chosen.scheduler_arguments)
    for index, request in enumerate(batch):
        try:
            scheduler.add_group(request.group(SequenceGroup, str(index)))
        except InvalidRequestError:
            continue
    record: list[Any] = []
    while scheduler.has_unfinished():
        output = scheduler.schedule()
        assert output.scheduled, "I20: an empty step"
        record.append([(i.seq.seq_id, i.start, i.num_tokens) for i in output.scheduled])
        record.append(output.preempted)
        scheduler.update({i.seq.seq_id: draw_tokens(i) for i in output.scheduled if i.num_samples})
    return record


@given(data=st.data())
def test_i24_equal_priorities_are_first_come_first_served(data: st.DataObject) -> None:
    chosen = data.draw(settings())
    some = st.lists(requests(chosen.max_model_len, beams=True), min_size=1, max_size=6)
    batch = [replace(request, priority=1) for request in data.draw(some)]
    first_come = decisions(replace(chosen, policy="fcfs"), batch)
    assert first_come == decisions(replace(chosen, policy="priority"), batch)


def test_i24_a_preempted_request_takes_no_budget() -> None:
    """Victims are younger than all that was scheduled: the step's tokens are those that run."""
    scheduler = make_scheduler(12, preemption_mode="recompute")
    for i in range(3):
        scheduler.add_group(make_group(f"r{i}", max_tokens=8))
    while not (output := step(scheduler)).preempted:
        pass
    running = {item.group.request_id for item in output.scheduled}
    assert output.num_batched_tokens == len(output.scheduled) == 2
    assert not running & {name for name, _ in output.preempted}


def test_i17_nobody_is_admitted_in_a_step_that_preempts() -> None:
    """A chunk that would fit is not either: the victim would return into the blocks it gave up."""
    scheduler = make_scheduler(12, preemption_mode="recompute", max_num_batched_tokens=5)
    for i in range(3):
        scheduler.add_group(make_group(f"r{i}", max_tokens=8))
    while not (output := step(scheduler)).preempted:
        pass
    assert [item.group.request_id for item in output.scheduled] == ["r0", "r1"]
    assert output.num_batched_tokens == 2 and scheduler.block_manager.num_free_gpu_blocks == 3
    assert [group.request_id for group in scheduler.waiting] == ["r2"]


def test_smaller_priorities_are_served_first_and_preempted_last() -> None:
    scheduler = make_scheduler(12, policy="priority", preemption_mode="recompute")
    for name, priority in (("low", 5), ("high", 0), ("middle", 1)):
        group = make_group(name, max_tokens=8)
        group.priority = priority
        scheduler.add_group(group)
    first = step(scheduler)
    assert [item.group.request_id for item in first.scheduled] == ["high", "middle", "low"]
    while not (output := step(scheduler)).preempted:
        pass
    assert output.preempted[0][0] == "low"
