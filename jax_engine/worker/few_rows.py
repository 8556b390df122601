"""Sampling for fewer rows than a step has room for.

A step with a prompt has up to 256 rows, but few of them sample a token. Logits of all 256 rows are
50 MB with a vocabulary of 49,152. A CPU writes and reads these in the time of a 30-token prompt.
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
    """The sampler's output for all rows. Rows from `num_samples` on hold arbitrary values.

    Args:
        sample_first: Returns the output of the first n rows, given n.
    """
    all_are_cheap = shape.num_rows <= FEW_ROWS or not this_device().logits_are_slow
    if shape.decode_only or all_are_cheap:
        return sample_first(shape.num_rows)

    def few() -> SamplerOutput:
        sampled: SamplerOutput = jax.tree.map(padded, sample_first(FEW_ROWS))
        return sampled

    def padded(array: Array) -> Array:
        missing = max(shape.num_rows - len(array), 0)  # token_ids is longer than the rows
        return jnp.pad(array, [(0, missing)] + [(0, 0)] * (array.ndim - 1))

    needed: SamplerOutput = lax.cond(
        num_samples <= FEW_ROWS, few, lambda: sample_first(shape.num_rows)
    )
    return needed
