"""How decode shares one context among several programs (split KV, as in flash decoding).

The number of splits is static, as the grid is; how much of a context each takes is not. A context
too short for all of them uses the first few, and the others exit at once.
"""

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Int

# Programs that one SM is given when there is work for it: two run at the same time.
PROGRAMS_PER_SM = 2
# With many rows there are programs enough, but one long context among short ones must not be the
# work of one program.
LEAST_SPLITS = 4
# More are never merged at once: their sums would not fit into the registers of a program.
MOST_SPLITS = 64
# A split takes at least so many steps of the loop, so that loads overlap.
LEAST_STEPS = 2


def num_splits(programs: int, longest: int, block_kv: int, num_sms: int) -> int:
    """Splits of each context.

    Args:
        programs: programs of a grid without splits.
        longest: tokens that the block table has room for.
        block_kv: tokens that a program takes in one step.
        num_sms: streaming multiprocessors of the device.
    """
    wanted = max(PROGRAMS_PER_SM * num_sms // programs, LEAST_SPLITS)
    useful = -(-longest // (block_kv * LEAST_STEPS))
    return min(wanted, useful, MOST_SPLITS)


def first_visible(context_len: Int[Array, ""], window: int | None) -> Int[Array, ""]:
    """First position that the last token of a context sees."""
    return jnp.zeros_like(context_len) if window is None else jnp.maximum(context_len - window, 0)


def split_steps(
    context_len: Int[Array, ""], window: int | None, block_kv: int, splits: int
) -> tuple[Int[Array, ""], Int[Array, ""], Int[Array, ""]]:
    """How a decode's context is shared out, in steps of `block_kv` tokens.

    Returns:
        The first step that is not wholly before the window, the step to stop before, and the
        steps of each split but the last.
    """
    first = lax.div(first_visible(context_len, window), block_kv)
    end = lax.div(context_len + (block_kv - 1), block_kv)
    each = lax.div(end - first + (splits - 1), splits)
    return first, end, jnp.maximum(each, LEAST_STEPS)
