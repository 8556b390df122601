"""Pooling for `LLM.embed`: the sum of each sequence's hidden states, and the last of them."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class PooledStates:
    """Final hidden states of a step in float32. Padding sequences hold arbitrary finite values.

    Attributes:
        total: Each sequence's sum over its tokens in this step.
        last: The state of each sequence's last token in this step.
        tokens: The states of all tokens of the step.
    """

    total: Float[Array, "S E"]
    last: Float[Array, "S E"]
    tokens: Float[Array, "T E"]


@jax.named_scope("pooling")
def pool_states(hidden: Float[Array, "T E"], query_start_loc: Int[Array, " S1"]) -> PooledStates:
    """Sums the states of each sequence of a ragged batch, and takes its last one."""
    count = query_start_loc.shape[0] - 1
    token = jnp.arange(hidden.shape[0], dtype=jnp.int32)
    owner = jnp.searchsorted(query_start_loc, token, side="right", method="compare_all") - 1
    states = hidden.astype(jnp.float32)
    # Padding tokens follow all sequences: their owner is out of range, so the sum drops them.
    total = jax.ops.segment_sum(states, owner, num_segments=count)
    last = states[jnp.maximum(query_start_loc[1:] - 1, 0)]
    return PooledStates(total, last, states)
