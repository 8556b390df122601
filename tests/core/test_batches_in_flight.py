"""Several steps in flight: who waits for a token is in none of them, and each has a share."""

import pytest

from tests.core.build import TOKEN, make_group, make_scheduler, tokens_for


def ids(out) -> list[str]:
    return [item.group.request_id for item in out.scheduled]


def planned(scheduler):
    """The next step, counted as computed."""
    out = scheduler.schedule()
    assert scheduler.can_advance()
    scheduler.advance()
    return out


def test_a_sequence_whose_token_is_drawn_waits_for_it() -> None:
    scheduler = make_scheduler(max_concurrent_batches=2)
    group = make_group("a", 4)
    scheduler.add_group(group)
    first = planned(scheduler)
    (seq,) = group.seqs
    assert (seq.pending, seq.in_flight, seq.num_tokens) == (0, True, 4)
    empty = scheduler.schedule()
    assert empty.scheduled == [] and empty.is_empty
    scheduler.update(tokens_for(first))
    assert not seq.in_flight
    second = scheduler.schedule()
    assert [(item.start, item.num_tokens) for item in second.scheduled] == [(4, 1)]


def test_the_next_chunk_of_a_prompt_does_not_wait() -> None:
    """No chunk but the last draws a token; each stage computes them in order."""
    scheduler = make_scheduler(max_num_batched_tokens=4, max_concurrent_batches=3)
    scheduler.add_group(make_group("a", 10))
    chunks, waits = [], []
    for _ in range(3):
        chunks.append(planned(scheduler))
        waits.append(scheduler.running[0].in_flight)
    starts = [(item.start, item.num_tokens) for out in chunks for item in out.scheduled]
    assert starts == [(0, 4), (4, 4), (8, 2)] and waits == [False, False, True]
    assert scheduler.schedule().is_empty
    for out in chunks:
        scheduler.update(tokens_for(out))
    assert scheduler.groups["a"].seqs[0].token_ids[-1] == TOKEN


def test_a_group_waits_for_the_tokens_of_some_of_its_sequences() -> None:
    """The budget divides it: one sequence's token is drawn, and the other one's is not."""
    scheduler = make_scheduler(max_concurrent_batches=2, max_num_batched_tokens=1)
    group = make_group("a", 1, n=2)
    scheduler.add_group(group)
    scheduler.update(tokens_for(scheduler.schedule()))
    assert len(planned(scheduler).scheduled) == 1
    assert [seq.in_flight for seq in group.seqs] == [True, False] and group.in_flight


@pytest.mark.parametrize(
    ("stages", "shares"), [(1, [6]), (2, [3, 3]), (3, [2, 2, 2]), (4, [2, 2, 1, 1])]
)
def test_each_step_takes_its_share_of_what_waits(stages: int, shares: list[int]) -> None:
    scheduler = make_scheduler(max_concurrent_batches=stages)
    for i in range(6):
        scheduler.add_group(make_group(str(i), 3))
    flight = [planned(scheduler) for _ in range(stages)]
    assert [len(out.scheduled) for out in flight] == shares
    assert [one for out in flight for one in ids(out)] == [str(i) for i in range(6)]


def test_steps_that_have_become_unequal_become_equal_again() -> None:
    """Six requests run in two steps. When two end, the next steps have two of the four each."""
    scheduler = make_scheduler(max_concurrent_batches=2)
    for i in range(6):
        scheduler.add_group(make_group(str(i), 3))
    flight = [planned(scheduler) for _ in range(2)]
    scheduler.update(tokens_for(flight.pop(0)))
    for name in ("0", "1"):
        scheduler.abort(name)
    flight.append(planned(scheduler))
    assert ids(flight[-1]) == ["2"]
    scheduler.update(tokens_for(flight.pop(0)))
    flight.append(planned(scheduler))
    assert ids(flight[-1]) == ["3", "4"]
    scheduler.update(tokens_for(flight.pop(0)))
    assert ids(scheduler.schedule()) == ["2", "5"]


@pytest.mark.parametrize("mode", ["recompute", "swap"])
def test_who_is_preempted_in_flight_comes_back_behind_its_token(mode: str) -> None:
    """It would draw the same token twice if it were computed again before.

    All blocks are free for it at once, since the other one is aborted.
    """
    scheduler = make_scheduler(
        9, num_cpu_blocks=20, block_size=2, preemption_mode=mode, max_concurrent_batches=3
    )
    groups = [make_group("old", 5, max_tokens=12), make_group("young", 6, max_tokens=8)]
    for group in groups:
        scheduler.add_group(group)
    young, flight = groups[1].seqs[0], []
    while True:
        out = scheduler.schedule()
        if out.preempted:
            break
        if out.scheduled:
            scheduler.advance()
            flight.append(out)
        else:
            scheduler.update(tokens_for(flight.pop(0)))
    assert young.in_flight, "it was preempted between two steps"
    scheduler.advance()
    flight.append(out)
    scheduler.abort("old")
    assert scheduler.schedule().is_empty
    length = len(young.token_ids)
    while young.in_flight:
        scheduler.update(tokens_for(flight.pop(0)))
    again = scheduler.schedule()
    (item,) = again.scheduled
    assert item.seq is young and item.start + item.num_tokens == length + 1
    scheduler.advance()
    scheduler.drop_steps()
