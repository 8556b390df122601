"""How decode splits one context over several programs (split KV, as in flash decoding).

The number of splits is static, like the grid; their lengths depend on the context. A short context
uses only the first splits, and the programs of the others exit at once. With a number of splits
that is always the same, a row's splits depend on its own context alone.
"""

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Int

# Programs per SM, if there is enough work: two run at the same time.
PROGRAMS_PER_SM = 2
# Even if rows alone give enough programs, a long context among short ones is split.
LEAST_SPLITS = 4
# One program merges all splits of a row, and more sums would not fit into its registers.
MOST_SPLITS = 64
# Splits of each context where no order may depend on the step's other rows. Too few to fill a GPU
# with one row of a single KV head, and few enough that the partial sums of 256 rows stay small.
FIXED_SPLITS = 32
# Fewest steps of the loop in a split, so that loads overlap.
LEAST_STEPS = 2


def num_splits(programs: int, longest: int, block_kv: int, num_sms: int) -> int:
    """Splits of each context.

    Args:
        programs: number of programs without splits.
        longest: longest context that fits into a block table, in tokens.
        block_kv: tokens of one step.
        num_sms: streaming multiprocessors of the device.
    """
    wanted = max(PROGRAMS_PER_SM * num_sms // programs, LEAST_SPLITS)
    useful = -(-longest // (block_kv * LEAST_STEPS))
    return min(wanted, useful, MOST_SPLITS)


def first_visible(context_len: Int[Array, ""], window: int | None) -> Int[Array, ""]:
    """First position that the last token of a context attends to."""
    return jnp.zeros_like(context_len) if window is None else jnp.maximum(context_len - window, 0)


def split_steps(
    context_len: Int[Array, ""], window: int | None, block_kv: int, splits: int
) -> tuple[Int[Array, ""], Int[Array, ""], Int[Array, ""]]:
    """Cuts a decode's context into splits, in steps of `block_kv` tokens.

    Returns:
        The first step with a visible token, the last step plus 1, and the number of steps of each
        split but the last.
    """
    first = lax.div(first_visible(context_len, window), block_kv)
    end = lax.div(context_len + (block_kv - 1), block_kv)
    each = lax.div(end - first + (splits - 1), splits)
    return first, end, jnp.maximum(each, LEAST_STEPS)
