"""What `LLM.embed` needs of a step: each sequence's hidden states, added up, and its last one."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class PooledStates:
    """Of each sequence of a step, in float32; padding sequences hold anything finite.

    Attributes:
        total: Sum of the final hidden states of its tokens in this step.
        last: That of the last of them.
        tokens: Those of all tokens of the step.
    """

    total: Float[Array, "S E"]
    last: Float[Array, "S E"]
    tokens: Float[Array, "T E"]


@jax.named_scope("pooling")
def pool_states(hidden: Float[Array, "T E"], query_start_loc: Int[Array, " S1"]) -> PooledStates:
    """Sums over each sequence's own tokens, those of a ragged batch."""
    count = query_start_loc.shape[0] - 1
    token = jnp.arange(hidden.shape[0], dtype=jnp.int32)
    owner = jnp.searchsorted(query_start_loc, token, side="right", method="compare_all") - 1
    states = hidden.astype(jnp.float32)
    # Padding tokens come after all sequences: their number is out of range and so they are dropped.
    total = jax.ops.segment_sum(states, owner, num_segments=count)
    last = states[jnp.maximum(query_start_loc[1:] - 1, 0)]
    return PooledStates(total, last, states)
