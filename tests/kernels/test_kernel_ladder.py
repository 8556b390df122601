"""The rungs of the documentation's kernel ladder are all the same function."""

from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import reference.attention
from examples.kernel_ladder import RUNGS
from examples.kernel_ladder.work import SHAPES, work

SCALE = 0.3


@pytest.mark.parametrize("rung", RUNGS, ids=lambda rung: rung.__name__)
@pytest.mark.parametrize(("block_size", "group"), [(16, 2), (8, 3)])
def test_every_rung_is_the_oracle(
    rung: Callable[..., jax.Array], block_size: int, group: int
) -> None:
    rng = np.random.default_rng(block_size)
    lens = np.array([1, block_size, 70, 129], np.int32)
    kv_heads, dim, width = 2, 32, 129 // block_size + 2
    cache = np.full((2, 4 * width, kv_heads, block_size, dim), np.nan, np.float32)
    # The last column is past every context; a table may hold anything there.
    tables = rng.permutation(4 * width).astype(np.int32).reshape(4, width)
    for table, length in zip(tables, lens, strict=True):
        for position in range(length):
            slot = (slice(None), table[position // block_size], slice(None), position % block_size)
            cache[slot] = rng.standard_normal((2, kv_heads, dim))
    q = rng.standard_normal((4, kv_heads * group, dim)).astype(np.float32)
    got = rung(*(jnp.asarray(x) for x in (q, cache, tables, lens)), scale=SCALE)
    wanted, _ = reference.attention.paged_attention(
        q, cache[None], tables, lens, np.arange(5), layer=0, scale=SCALE
    )
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)


def test_the_documentation_shows_the_counts() -> None:
    page = (Path(__file__).parents[2] / "docs" / "kernels.md").read_text("utf-8")
    for number, rung in enumerate(RUNGS[:-1], 1):
        row = f"| {number} `{rung.__name__}` |"
        for shape in SHAPES:
            count = work(rung.__name__, shape)
            programs = f"{count.programs:,}" if count.programs else "XLA's"
            row += f" {count.moved / 1e9:.2f} | {programs} |"
        assert row in page
