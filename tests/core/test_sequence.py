"""A request's sequences: how they end, and what their request asks of the prefix cache."""

import pytest

from jax_engine.core import SequenceStatus
from tests.core.build import make_group, make_scheduler, step


@pytest.mark.parametrize(
    ("reason", "status"),
    [
        ("stop", SequenceStatus.FINISHED_STOPPED),
        ("length", SequenceStatus.FINISHED_LENGTH),
        ("abort", SequenceStatus.FINISHED_ABORTED),
    ],
)
def test_a_sequence_ends_once_and_says_the_last_reason(reason: str, status: SequenceStatus) -> None:
    scheduler = make_scheduler()
    group = make_group("a", 4)
    scheduler.add_group(group)
    step(scheduler)
    seq = group.seqs[0]
    assert seq.status is SequenceStatus.RUNNING
    assert scheduler.finish_sequence(seq, group, reason, "why")
    assert (seq.status, seq.finish_reason, seq.stop_reason) == (status, reason, "why")
    assert not scheduler.finish_sequence(seq, group, "stop", "word"), "its group ends once"
    said = (seq.status, seq.finish_reason, seq.stop_reason)
    assert said == (SequenceStatus.FINISHED_STOPPED, "stop", "word")


def test_who_wants_something_of_each_prompt_token_reads_no_cache() -> None:
    scheduler = make_scheduler(caching=True)
    scheduler.add_group(make_group("first", 8, max_tokens=1))
    step(scheduler)
    asks, plain = make_group("asks", 8, wants_prompt=True), make_group("plain", 8)
    scheduler.add_group(asks)
    scheduler.add_group(plain)
    starts = {one.group.request_id: one.start for one in scheduler.schedule().scheduled}
    assert starts == {"asks": 0, "plain": 6}
