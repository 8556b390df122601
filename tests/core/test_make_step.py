"""The scheduler's decision as a step: rows, tables, moves."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from jax_engine.core.block_manager import BlockManager
from jax_engine.core.scheduler_output import ScheduledSequence, SchedulerOutput, make_step
from jax_engine.core.sequence import Sequence
from jax_engine.step import Row, Samples
from tests.core.build import make_group

TOKENS = [10, 11, 12, 13, 14]
BLOCKS: Any = SimpleNamespace(
    block_table_rows=lambda seq_ids: np.array([[seq_id, 0] for seq_id in seq_ids], np.int32)
)


def row(start: int, num_tokens: int, num_samples: int, pending: int, *, history: bool) -> Row:
    """The row of sequence 6, the third sample of request 4."""
    group = make_group("a", 3, has_penalties=history)
    group.number = 4
    seq = Sequence(2, list(TOKENS), 3, 6)
    seq.pending = pending
    plan = SchedulerOutput([ScheduledSequence(seq, group, start, num_tokens, num_samples)])
    step = make_step(plan, BLOCKS, [], [])
    seq.token_ids.append(99)
    (found,) = step.rows
    assert (found.seq_id, found.request, found.start) == (6, 4, start)
    assert step.samples.tokens == [num_tokens - 1] * num_samples
    assert step.samples.indices == [2, 3, 4][:num_samples]
    assert step.block_tables.tolist() == [[6, 0]]
    return found


@pytest.mark.parametrize(
    ("start", "num_tokens", "pending", "tokens"),
    [
        (0, 5, 0, TOKENS),
        (1, 2, 0, [11, 12]),
        (4, 1, 0, [14]),
        (0, 1, 0, [10]),
        (5, 1, -3, [-3]),
        (3, 3, -1, [13, 14, -1]),
    ],
)
def test_a_row_has_its_tokens_a_pending_one_last(
    start: int, num_tokens: int, pending: int, tokens: list[int]
) -> None:
    assert row(start, num_tokens, 1, pending, history=False).tokens == tokens


@pytest.mark.parametrize("num_samples", [0, 1, 3])
@pytest.mark.parametrize("history", [False, True])
@pytest.mark.parametrize("pending", [0, -2])
def test_history_is_for_what_is_sampled_with_penalties(
    num_samples: int, history: bool, pending: int
) -> None:
    found = row(5 if pending else 4, 1, num_samples, pending, history=history).history
    wanted = [*TOKENS, pending] if pending else TOKENS
    assert found == (wanted if history and num_samples else None)


def test_samples_are_behind_the_last_token_of_their_row() -> None:
    """A decode, a chunk, a fork of three, another decode and a fork of two: where rows end."""
    group = make_group("a", 3)
    rows = [(2, 4, 1, 1), (0, 0, 2, 0), (0, 2, 3, 3), (1, 4, 1, 1), (1, 3, 2, 2)]
    plan = SchedulerOutput(
        [
            ScheduledSequence(Sequence(index, list(TOKENS), 3, 6), group, *counts)
            for index, *counts in rows
        ]
    )
    wanted = Samples([0, 5, 5, 5, 6, 8, 8], [2, 0, 1, 2, 1, 1, 2])
    assert make_step(plan, BLOCKS, [], []).samples == wanted


@pytest.mark.parametrize("history", [False, True])
def test_a_row_with_drafts_draws_behind_each_of_its_tokens(history: bool) -> None:
    """Between a decode and a fork, which draw once and twice behind their last tokens."""
    group = make_group("a", 3, has_penalties=history)
    group.number = 4
    seqs = [Sequence(index, list(TOKENS), 3, 6 + index) for index in range(3)]
    counts = [(3, 2, 1, ()), (4, 4, 1, (21, 22, 23)), (2, 3, 2, ())]
    plan = SchedulerOutput(
        [ScheduledSequence(seq, group, *its) for seq, its in zip(seqs, counts, strict=True)]
    )
    step = make_step(plan, BLOCKS, [], [])
    known = [*TOKENS, 21, 22, 23] if history else None
    assert step.rows[1] == Row(7, 4, 4, [14, 21, 22, 23], known, 3)
    assert [row.num_draft for row in step.rows] == [0, 3, 0]
    assert step.samples == Samples([1, 2, 3, 4, 5, 8, 8], [0, 1, 1, 1, 1, 2, 3])


@pytest.mark.parametrize(
    "work",
    ["scheduled", "blocks_to_swap_in", "blocks_to_swap_out", "blocks_to_copy", "adapters"],
)
def test_any_work_makes_a_step(work: str) -> None:
    empty: Any = {"preempted": [("a", "recompute")]}
    assert SchedulerOutput(**empty).is_empty
    assert not SchedulerOutput(**empty, **{work: [(1, 2)]}).is_empty


def test_moves_setups_and_masks_go_with_the_step() -> None:
    moves = {"in": [(1, 2)], "out": [(3, 4)], "copy": [(5, 6)]}
    plan = SchedulerOutput([], moves["in"], moves["out"], moves["copy"])
    opened: Any = ["setup"]
    blocks: Any = BlockManager(2, 8)
    step = make_step(plan, blocks, opened, [7], masked=True)
    assert step.moves == (moves["in"], moves["out"], moves["copy"])
    assert (step.opened, step.closed, step.masked) == (opened, [7], True)
    assert step.rows == [] and step.samples == Samples([], [])
    assert step.block_tables.shape == (0, 0)
    assert step.block_tables.dtype == np.int32
    assert not make_step(plan, blocks, [], []).masked
