"""What a step takes from steps that the host has not read: tokens, and how many guesses were right.

A step is one packed array that the host sends (`step_plan`). What the host does not know is added
to it on the device, by small programs, so the step's own program is the same either way.
"""

from collections.abc import Sequence
from functools import partial
from itertools import accumulate
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from jax_engine.step import Step, Unread
from jax_engine.worker.step_plan import field_offsets
from jax_engine.worker.step_shape import StepShape, bucket

_SIZES = (8,)  # and 16, 32, ..: what lists are padded to, so that there are few programs


def num_right(step: Step, previous: Int[Array, " M"], drawn: Int[Array, " M"]) -> Int[Array, " S"]:
    """How many guesses of each row of a step were right: those before the first wrong one.

    Args:
        previous: What the step was given as the tokens drawn before it.
        drawn: The tokens that it drew.
    """
    counts = [row.num_draft for row in step.rows]
    fed = [token for row in step.rows for token in row.tokens[len(row.tokens) - row.num_draft :]]
    ends = accumulate([len(row.tokens) for row in step.rows])
    known = [end - 1 - count for end, count in zip(ends, counts, strict=True)]
    samples = np.searchsorted(step.samples.tokens, known).tolist()  # behind these tokens
    places = [[*accumulate(counts, initial=0)][:-1], samples, counts]
    padded = _padded(fed, len(fed)), previous, _padded(places, len(counts))
    right: Array = _num_right(*padded, drawn, most=bucket(max([1, *counts]), _SIZES))
    return right


@partial(jax.jit, static_argnames="most")
def _num_right(fed: Any, previous: Any, places: Any, drawn: Any, *, most: int) -> Any:
    fed = jnp.where(fed < 0, previous[jnp.maximum(-1 - fed, 0)], fed)
    first, sample, count = places[:, :, None]
    i = jnp.arange(most)
    right = (fed[first + i] == drawn[sample + i]) & (i < count)
    return jnp.cumprod(right, axis=1).sum(axis=1, dtype=jnp.int32)


def own_numbers(step: Step) -> tuple[Step, list[int]]:
    """Counts the samples that a step is fed by themselves: there may be more that it is not fed.

    Returns:
        The step, in which token -(i + 1) is the i-th of the other list: samples, as `Unread` counts
        them.
    """
    numbers: dict[int, int] = {}

    def renamed(tokens: list[int]) -> list[int]:
        return [
            token if token >= 0 else -1 - numbers.setdefault(-1 - token, len(numbers))
            for token in tokens
        ]

    rows = [
        row._replace(
            tokens=renamed(row.tokens),
            history=None if row.history is None else renamed(row.history),
        )
        for row in step.rows
    ]
    return step._replace(rows=rows), list(numbers)


def gather(
    drawn: Sequence[Int[Array, " _"]],
    counts: Sequence[int],
    samples: Sequence[int],
    num_tokens: int,
    vocab_size: int,
) -> Int[Array, " M"]:
    """Some tokens of several steps, as the next step takes those that were drawn before it.

    Args:
        counts: How many of each step's are tokens, and no padding.
        samples: Which ones, counted over all steps; at most `num_tokens`.
        num_tokens: M.
    """
    assert len(samples) <= num_tokens, "a step is fed more drawn tokens than it has rows"
    ends = np.cumsum(counts)
    step = np.searchsorted(ends, samples, side="right")
    at = np.zeros((2, num_tokens), np.int32)
    at[:, : len(samples)] = step, samples - (ends - counts)[step]
    tokens: Array = _gather(tuple(drawn), at, vocab_size=vocab_size)
    return tokens


@partial(jax.jit, static_argnames="vocab_size")
def _gather(drawn: tuple[Any, ...], at: Any, *, vocab_size: int) -> Any:
    tokens = jnp.stack(drawn)[at[0], at[1]]
    return jnp.where(tokens < vocab_size, tokens, 0)


def moved(
    packed: np.ndarray,
    shape: StepShape,
    table_width: int,
    step: Step,
    unread: Unread,
    right: Int[Array, " S"],
) -> Int[Array, " P"]:
    """The packed step with its rows, or its samples, moved by the number of right guesses."""
    offsets, count = field_offsets(shape, table_width), len(step.samples)
    borders = np.cumsum([len(row.tokens) for row in step.rows])
    row_of_sample = np.searchsorted(borders, step.samples.tokens, side="right")
    follows = np.array(unread.rows, np.int32)
    samples, rows = np.arange(count), np.arange(len(step.rows))
    parts = [(offsets["position_of_sample"] + samples, follows[row_of_sample])]
    if unread.along:
        parts.append((offsets["token_of_sample"] + samples, follows[row_of_sample]))
    else:
        assert int(borders[-1]) == len(rows), "a row that moves has one token"
        parts.append((offsets["context_lens"] + rows, follows))
    at = np.full((2, 2 * shape.num_rows), len(packed), np.int32)  # behind the end: dropped
    both = [np.concatenate(part) for part in zip(*parts, strict=True)]
    at[:, : len(both[0])] = both
    found: Array = _moved(packed, at, right)
    return found


@jax.jit
def _moved(packed: Any, at: Any, right: Any) -> Any:
    return jnp.asarray(packed).at[at[0]].add(right.at[at[1]].get(mode="clip"), mode="drop")


def _padded(numbers: Any, length: int) -> np.ndarray:
    """Zeros behind the numbers, so that programs are few."""
    found = np.asarray(numbers, np.int32)
    missing = bucket(max(1, length), _SIZES) - length
    return np.pad(found, [(0, 0)] * (found.ndim - 1) + [(0, missing)])
