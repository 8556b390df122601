"""A step planned while the one before it runs: its tokens are pending, and nobody is lost."""

from types import SimpleNamespace
from typing import Any

import pytest

from jax_engine.core import SequenceGroup, SequenceStatus
from tests.core.build import TOKEN, make_group, make_params, make_scheduler, tokens_for

END = 2  # what ends a sequence of `make_group`


def test_pending_tokens_are_named_by_the_row_that_draws_them() -> None:
    """Row r of a step is that of its r-th sampled token; a chunk in between has none."""
    scheduler = make_scheduler(max_num_batched_tokens=11, long_prefill_token_threshold=4)
    groups = [make_group("a", 4), make_group("b", 6), make_group("c", 3)]
    for group in groups:
        scheduler.add_group(group)
    first = scheduler.schedule()
    assert [(one.num_tokens, one.num_samples) for one in first.scheduled] == [
        (4, 1),
        (4, 0),
        (3, 1),
    ]
    scheduler.advance()
    a, b, c = (group.seqs[0] for group in groups)
    assert (a.pending, b.pending, c.pending) == (-1, 0, -2)
    assert (a.num_tokens, b.num_tokens, c.num_tokens) == (5, 6, 4)
    second = scheduler.schedule()
    assert [(one.start, one.num_tokens) for one in second.scheduled] == [(4, 1), (4, 2), (3, 1)]
    scheduler.update(tokens_for(first))
    assert (a.token_ids[-1], a.pending, a.num_tokens) == (TOKEN, 0, 5)
    scheduler.advance()
    assert (a.pending, b.pending, c.pending) == (-1, -2, -3)


def test_what_was_counted_is_planned_no_more() -> None:
    scheduler = make_scheduler()
    group = make_group("a", 4)
    scheduler.add_group(group)
    for computed in (4, 5):
        out = scheduler.schedule()
        for _ in range(2):  # the second time nothing is planned
            scheduler.advance()
        assert group.seqs[0].num_computed_tokens == computed
        scheduler.update(tokens_for(out))
        assert group.seqs[0].output_token_ids == [TOKEN] * (computed - 3)


@pytest.mark.parametrize(
    ("needs", "batches", "scheduling", "can"),
    [
        (False, 1, "unified", True),
        (True, 1, "unified", False),
        (True, 2, "unified", True),  # its token is not fed: it waits for it
        (False, 1, "sosp", False),
        (False, 1, "sosp-mixed", False),
    ],
)
def test_who_can_be_planned_ahead(needs: bool, batches: int, scheduling: Any, can: bool) -> None:
    scheduler = make_scheduler(scheduling=scheduling, max_concurrent_batches=batches)
    constraints: Any = SimpleNamespace(needs_last_token=needs, num_free=0)
    scheduler.add_group(SequenceGroup("a", [1, 2], make_params(), constraints=constraints))
    scheduler.schedule()
    assert scheduler.can_advance() == can


def test_the_last_token_by_length_is_never_pending() -> None:
    scheduler = make_scheduler()
    group = make_group("a", 4, max_tokens=1)
    scheduler.add_group(group)
    out = scheduler.schedule()
    scheduler.advance()
    assert group.seqs[0].pending == 0 and scheduler.schedule().scheduled == []
    assert scheduler.update(tokens_for(out)) == [group]


def test_who_ends_after_the_step_ahead_preempted_him_leaves_his_queue() -> None:
    """Its token ends it; by then the next step has taken its blocks and put it back."""
    scheduler = make_scheduler(9, block_size=2, preemption_mode="recompute")
    groups = [make_group("old", 5, max_tokens=12), make_group("young", 6, max_tokens=8)]
    for group in groups:
        scheduler.add_group(group)
    young = groups[1]
    running = scheduler.schedule()
    while True:
        scheduler.advance()
        ahead = scheduler.schedule()
        if ahead.preempted:
            break
        scheduler.update(tokens_for(running))
        running = ahead
    assert ahead.preempted == [("young", "recompute")] and scheduler.waiting == [young]
    ended = scheduler.update(tokens_for(running) | {young.seqs[0].seq_id: [END]})
    assert ended == [young] and young.seqs[0].status is SequenceStatus.FINISHED_STOPPED
    assert young not in scheduler.waiting and "young" not in scheduler.groups


@pytest.mark.parametrize("how", ["stop token", "stop string", "abort"])
def test_the_block_that_an_ended_sequence_filled_last_is_cached_under_its_salt(how: str) -> None:
    """The step ahead has computed one token more by then, which fills the first block."""
    scheduler = make_scheduler(block_size=2, caching=True)
    group = make_group("a", 1, max_tokens=8)
    group.cache_salt = "salt"
    scheduler.add_group(group)
    first = scheduler.schedule()
    scheduler.advance()
    scheduler.schedule()
    scheduler.update(tokens_for(first))
    scheduler.advance()
    (seq,) = group.seqs
    token = END if how == "stop token" else TOKEN
    assert scheduler.update({seq.seq_id: [token]}) == ([group] if token == END else [])
    if how == "stop string":
        assert scheduler.finish_sequence(seq, group, "stop", "word")
    if how == "abort":
        assert scheduler.abort("a")
    manager, tokens = scheduler.block_manager, seq.token_ids
    assert len(manager.cached_blocks(tokens, "salt", [])) == 1
    assert manager.cached_blocks(tokens, None, []) == []
