"""A step that samples few rows computes no others, and gives the tokens of one that does."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_engine.sampling.sampler import SamplerOutput
from jax_engine.worker.step_output import FEW_ROWS, sample_needed_rows
from jax_engine.worker.step_shape import StepShape

MAX_ROWS = 300  # tokens of any step


def outputs(rows: int) -> SamplerOutput:
    """Row i's numbers begin with i; `ranks` says how many rows there were."""
    row = jnp.arange(rows)
    top = row[:, None] + jnp.arange(3)
    tokens = jnp.pad(row, (0, MAX_ROWS - rows))
    ranks = jnp.full(rows, rows, jnp.int32)
    return SamplerOutput(tokens, row + 0.5, ranks, top, top / 2)


@pytest.mark.parametrize("count", [0, 1, FEW_ROWS, FEW_ROWS + 1, 256])
def test_rows_beyond_the_few_are_computed_only_if_they_are_needed(count: int) -> None:
    shape, whole = StepShape(512, 256), outputs(256)
    needed = jax.jit(partial(sample_needed_rows, shape, sample_first=outputs))
    found = needed(num_samples=jnp.int32(count))
    computed = FEW_ROWS if count <= FEW_ROWS else 256
    assert (np.asarray(found.ranks[:computed]) == computed).all()
    assert not np.asarray(found.ranks[computed:]).any()
    for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(whole), strict=True):
        assert ours.shape == theirs.shape
        if ours is not found.ranks:
            np.testing.assert_array_equal(ours[:count], theirs[:count])


@pytest.mark.parametrize("shape", [StepShape(64, 64, decode_only=True), StepShape(64, 32)])
def test_a_shape_without_room_for_many_has_one_form(shape: StepShape) -> None:
    text = str(jax.make_jaxpr(lambda n: sample_needed_rows(shape, n, outputs))(jnp.int32(1)))
    assert "cond" not in text
