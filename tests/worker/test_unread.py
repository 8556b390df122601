"""What a step takes from steps that the host has not read: the small programs, against a loop."""

import gc
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jax_engine import SamplingParams
from jax_engine.engine.running_requests import request_setup
from jax_engine.step import Moves, RequestSetup, Row, Samples, Step, Unread
from jax_engine.worker.step_plan import (
    gather,
    moved,
    num_right,
    own_numbers,
    pack_step,
    split_fields,
)
from jax_engine.worker.worker import Ticket
from tests.support.builders import Pool, build_one
from tests.support.draft_models import draft_config
from tests.support.in_process import run

M = 128
rows_of_guesses = st.lists(
    st.tuples(st.integers(0, 12), st.booleans(), st.integers(0, 2**12 - 1)), min_size=1, max_size=9
)


def step_of(rows: list[Row], samples: Samples, width: int = 8) -> Step:
    tables = np.arange(1, 1 + len(rows) * width, dtype=np.int32).reshape(len(rows), width)
    return Step(rows, samples, tables, Moves([], [], []), [], [])


@example(rows=[(0, False, 0)], seed=0)
@example(rows=[(12, True, 2**12 - 1)], seed=1)
@example(rows=[(4, False, 0b1011)], seed=2)  # one is right behind a wrong one
@given(rows=rows_of_guesses, seed=st.integers(0, 2**16))
def test_guesses_are_right_up_to_the_first_wrong_one(
    rows: list[tuple[int, bool, int]], seed: int
) -> None:
    """Each row: how many guesses, whether the host knows them, and which are right, as bits."""
    random = np.random.default_rng(seed)
    previous = random.integers(0, 3, M)
    drawn, fed, found_at, expected, token = list[int](), list[Row](), list[int](), list[int](), 0
    for count, known, right in rows:
        at = random.integers(0, M, count).tolist()
        guesses = [int(previous[i]) for i in at]
        bits = [right >> i & 1 for i in range(count)]
        draws = [g if bit else (g + 1) % 3 for g, bit in zip(guesses, bits, strict=True)]
        drawn += [*draws, int(random.integers(0, 3))]
        given = guesses if known else [-(i + 1) for i in at]
        fed.append(Row(0, 0, 7, [5, *given], num_draft=count))
        found_at += range(token, token + count + 1)
        token += count + 1
        expected.append([*bits, 0].index(0))
    step = step_of(fed, Samples(found_at, [0] * len(found_at)))
    padded = np.zeros(M, np.int32)
    padded[: len(drawn)] = drawn
    right = num_right(step, jnp.asarray(previous, jnp.int32), jnp.asarray(padded))
    assert np.asarray(right)[: len(rows)].tolist() == expected


def test_rows_of_prompts_lie_between_those_with_guesses() -> None:
    """A chunk that draws nothing, a prompt that forks, and behind them a row with two guesses."""
    rows = [Row(0, 0, 0, [1, 1, 1]), Row(1, 1, 0, [1, 1]), Row(2, 2, 5, [1, 6, 7], num_draft=2)]
    step = step_of(rows, Samples([4, 4, 4, 5, 6, 7], [0, 1, 2, 0, 0, 0]))
    drawn = jnp.zeros(M, jnp.int32).at[:6].set(jnp.array([9, 9, 9, 6, 8, 7]))
    right = num_right(step, jnp.zeros(M, jnp.int32), drawn)
    assert np.asarray(right)[:3].tolist() == [0, 0, 1]


def test_tokens_of_several_steps_stand_behind_each_other() -> None:
    drawn = [jnp.array([4, 5, 99, 99]), jnp.array([6, 99, 99, 99]), jnp.array([7, 50, 8, 99])]
    found = gather(drawn, [2, 1, 3], [0, 1, 2, 3, 4, 5], 8, 40)
    assert np.asarray(found)[:6].tolist() == [4, 5, 6, 7, 0, 8]  # 50 is no token of the model
    assert found.shape == (8,)
    assert np.asarray(gather(drawn, [2, 1, 3], [5, 1], 2, 40)).tolist() == [8, 5]


def test_a_step_takes_no_more_tokens_than_it_is_fed() -> None:
    """More may be drawn than a step has room for: guesses of rows that take none of them."""
    rows = [Row(0, 0, 7, [5, -31, -40], [1, 5, -31, -40], 2), Row(1, 1, 3, [6, -2])]
    step, samples = own_numbers(step_of(rows, Samples([2, 4], [0, 0])))
    assert samples == [30, 39, 1]
    assert [row.tokens for row in step.rows] == [[5, -1, -2], [6, -3]]
    assert [row.history for row in step.rows] == [[1, 5, -1, -2], None]


def fields_of(step: Step, setups: dict[int, RequestSetup], right: list[int], **how: Any) -> Any:
    """The packed fields, moved, and those of the step as it was."""
    shape, packed = pack_step(step, setups, 8)
    counts = jnp.zeros(8, jnp.int32).at[: len(right)].set(jnp.array(right))
    unread = Unread([], object(), **how)
    found = np.asarray(moved(packed, shape, 8, step, unread, counts))
    return split_fields(found, shape, 8), split_fields(packed, shape, 8)


def setups() -> dict[int, RequestSetup]:
    return {i: request_setup(i, [1, 2], SamplingParams(), 1, frozenset()) for i in range(3)}


def test_a_sample_moves_along_its_row() -> None:
    """The rows follow rows 2 and 0 of the other step, of which 3 guesses and none were right."""
    rows = [Row(0, 0, 9, [1, 2, 3, 4, 5], num_draft=4), Row(0, 1, 4, [1, 2], num_draft=1)]
    step = step_of(rows, Samples([1, 6], [0, 0]))
    found, before = fields_of(step, setups(), [0, 8, 3], rows=[2, 0], along=True)
    assert found["token_of_sample"][:2].tolist() == [4, 6]
    assert found["position_of_sample"][:2].tolist() == [14, 6]
    for name in before.keys() - {"token_of_sample", "position_of_sample"}:
        np.testing.assert_array_equal(found[name], before[name], err_msg=name)


def test_a_row_moves_with_its_sample() -> None:
    rows = [Row(0, 0, 9, [-1]), Row(0, 1, 4, [-2]), Row(0, 2, 6, [-3])]
    step = step_of(rows, Samples([0, 1, 2], [0, 0, 0]))
    found, before = fields_of(step, setups(), [5, 0, 2], rows=[2, 1, 0])
    assert found["context_lens"][:3].tolist() == [12, 5, 12]
    assert found["position_of_sample"][:3].tolist() == [12, 5, 12]
    for name in before.keys() - {"context_lens", "position_of_sample"}:
        np.testing.assert_array_equal(found[name], before[name], err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("branches_wait", [False, True])
@pytest.mark.parametrize("sampling", ["greedy", "probabilistic"])
def test_a_model_that_drafts_for_itself_is_always_right(sampling: str, branches_wait: bool) -> None:
    """Unread tokens and right guesses are those of the step that they are taken from."""
    pool = Pool(4, 60, draft="itself", accepts_guesses=True, branches_wait=branches_wait)
    config = draft_config(3, draft_sample_method=sampling)
    engine = build_one(
        pool, num_cpu_blocks=0, prefix_caching=True, speculation=config, max_num_batched_tokens=40
    )
    params = SamplingParams(temperature=0.9, seed=5, max_tokens=17, ignore_eos=True)
    if sampling == "greedy":
        params = SamplingParams(temperature=0.0, max_tokens=17, ignore_eos=True)
    for i in range(3):
        engine.add_request(str(i), {"prompt_token_ids": [5, 6 + i, 7]}, params)
    assert {len(one.outputs[0].token_ids) for one in run(engine) if one.finished} == {17}
    assert engine.stats().num_steps == 1 + 4  # of 4 tokens each


@pytest.mark.slow
def test_who_is_left_takes_guesses_from_far_behind() -> None:
    """Five rows draw more guesses than the target's step has rows; four of them leave then."""
    pool = Pool(4, 60, draft="itself", accepts_guesses=True, max_len=32, max_seqs=5)
    said = []
    for config in (None, draft_config(6)):
        engine = build_one(
            pool,
            num_cpu_blocks=0,
            prefix_caching=True,
            speculation=config,
            max_num_batched_tokens=32,
        )
        assert engine.worker.capabilities.max_samples < 5 * 6
        params = SamplingParams(temperature=0.0, max_tokens=28, ignore_eos=True)
        for i in range(5):
            engine.add_request(str(i), {"prompt_token_ids": [5, 6 + i, 7]}, params)
        for _ in range(3):
            engine.step()
        engine.abort_request(["0", "1", "2", "3"])
        said += [one.outputs[0].token_ids for one in run(engine) if one.finished]
    assert len(said) == 2 and said[0] == said[1]


@pytest.mark.slow
def test_a_ticket_keeps_none_of_those_before_it() -> None:
    """Each step is unread from the one before, so otherwise all would stay until the end."""
    pool = Pool(4, 60, draft="itself", accepts_guesses=True)
    engine = build_one(
        pool,
        num_cpu_blocks=0,
        prefix_caching=True,
        speculation=draft_config(1),
        max_num_batched_tokens=40,
    )
    params = SamplingParams(temperature=0.0, max_tokens=30, ignore_eos=True)
    engine.add_request("0", {"prompt_token_ids": [5, 6, 7]}, params)
    alive, steps = 0, 0
    while engine.has_unfinished_requests():
        engine.step()
        gc.collect()
        alive = max(alive, sum(type(one) is Ticket for one in gc.get_objects()))
        steps += 1
    assert steps > 12 and alive <= 6
