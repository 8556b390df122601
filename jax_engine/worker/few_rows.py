"""Sampling for fewer rows than a step has room for.

A step with a prompt has up to 256 rows, of which few have a token to sample. A CPU would write and
read the logits of all of them, 50 MB with 49,152 tokens: as long as a prompt of 30 tokens takes.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Int

from jax_engine.operations import this_device
from jax_engine.sampling.sampler import SamplerOutput
from jax_engine.worker.step_shape import StepShape

FEW_ROWS = 32


def sample_needed_rows(
    shape: StepShape, num_samples: Int[Array, ""], sample_first: Callable[[int], SamplerOutput]
) -> SamplerOutput:
    """All rows' output, where rows beyond the first `num_samples` may hold anything.

    Args:
        sample_first: The output of the first so many rows.
    """
    all_are_cheap = shape.num_rows <= FEW_ROWS or not this_device().logits_are_slow
    if shape.decode_only or all_are_cheap:
        return sample_first(shape.num_rows)

    def few() -> SamplerOutput:
        sampled: SamplerOutput = jax.tree.map(padded, sample_first(FEW_ROWS))
        return sampled

    def padded(array: Array) -> Array:
        missing = max(shape.num_rows - len(array), 0)  # there are more token_ids than rows
        return jnp.pad(array, [(0, missing)] + [(0, 0)] * (array.ndim - 1))

    needed: SamplerOutput = lax.cond(
        num_samples <= FEW_ROWS, few, lambda: sample_first(shape.num_rows)
    )
    return needed
