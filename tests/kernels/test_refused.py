"""Arguments of `paged_attention` and `make_metadata` that do not fit are refused, by name."""

from typing import Any

import jax.numpy as jnp
import pytest

from pallas_kernels import MetadataError, make_metadata, paged_attention

pytestmark = pytest.mark.usefixtures("unchecked_shapes")


def arguments() -> dict[str, Any]:
    return {
        "q": jnp.zeros((3, 4, 8)),
        "kv_cache": jnp.zeros((1, 2, 5, 2, 4, 8)),
        "block_tables": jnp.zeros((2, 6), jnp.int32),
        "context_lens": jnp.ones(2, jnp.int32),
        "query_start_loc": jnp.arange(3),
        "layer": 0,
        "scale": 1.0,
    }


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"q": jnp.zeros((3, 32))}, r"q\.shape=\(3, 32\)"),
        ({"q": jnp.zeros((0, 4, 8))}, r"q\.shape=\(0, 4, 8\)"),
        ({"q": jnp.zeros((3, 4, 16))}, r"head dimensions differ: q\.shape=\(3, 4, 16\)"),
        ({"q": jnp.zeros((3, 5, 8))}, r"multiple of the KV heads K: q\.shape=\(3, 5, 8\)"),
        ({"kv_cache": jnp.zeros((1, 3, 5, 2, 4, 8))}, r"kv_cache\.shape=\(1, 3, 5, 2, 4, 8\)"),
        ({"kv_cache": jnp.zeros((2, 5, 2, 4, 8))}, r"kv_cache\.shape=\(2, 5, 2, 4, 8\)"),
        ({"block_tables": jnp.zeros((3, 6), jnp.int32)}, r"block_tables\.shape=\(3, 6\)"),
        ({"block_tables": jnp.zeros(6, jnp.int32)}, r"block_tables\.shape=\(6,\)"),
        ({"block_tables": jnp.zeros((2, 6))}, "block_tables must hold integers, not float32"),
        ({"context_lens": jnp.zeros(0, jnp.int32)}, r"context_lens\.shape=\(0,\)"),
        ({"context_lens": jnp.zeros(2)}, "context_lens must hold integers, not float32"),
        ({"prompt_lens": jnp.zeros(3, jnp.int32)}, r"prompt_lens\.shape=\(3,\)"),
        ({"prompt_lens": jnp.zeros(2)}, "prompt_lens must hold integers, not float32"),
        ({"query_start_loc": jnp.arange(2)}, r"query_start_loc\.shape=\(2,\)"),
        ({"window": 0}, "window=0 must be at least 1"),
        ({"soft_cap": 0.0}, r"soft_cap=0\.0 must be positive"),
        ({"alibi_slopes": jnp.zeros(2)}, r"alibi_slopes\.shape=\(2,\)"),
        ({"sinks": jnp.zeros(2)}, r"sinks\.shape=\(2,\)"),
        ({"kv_scales": jnp.ones((1, 2, 2))}, "float32.* kv_scales are given"),
        ({"kv_cache": jnp.zeros((1, 2, 5, 2, 4, 8), jnp.int8)}, "int8.* kv_scales is None"),
        (
            {"kv_cache": jnp.zeros((1, 2, 5, 2, 4, 8), jnp.int8), "kv_scales": jnp.ones((1, 2, 3))},
            r"kv_scales\.shape=\(1, 2, 3\)",
        ),
    ],
)
def test_paged_attention_refuses(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        paged_attention(**arguments() | change)


def test_metadata_of_another_step_is_refused() -> None:
    given = arguments()
    arrays = [given[name] for name in ("block_tables", "context_lens", "query_start_loc")]
    with pytest.raises(MetadataError, match="metadata of another step"):
        paged_attention(**given, metadata=make_metadata(*arrays, 7))
    tables, lens, starts = arrays
    one_sequence = make_metadata(tables[:1], lens[:1], starts[:2], len(given["q"]))
    with pytest.raises(MetadataError, match="S=1, given with T=3 S=2"):
        paged_attention(**given, metadata=one_sequence)


@pytest.mark.parametrize(
    ("tables", "lens", "starts", "tokens"),
    [((2,), 2, 3, 4), ((3, 6), 2, 3, 4), ((2, 6), 2, 2, 4), ((0, 6), 0, 1, 4), ((2, 6), 2, 3, 0)],
)
def test_make_metadata_refuses(
    tables: tuple[int, ...], lens: int, starts: int, tokens: int
) -> None:
    with pytest.raises(ValueError, match="shape"):
        make_metadata(
            jnp.zeros(tables, jnp.int32), jnp.zeros(lens, int), jnp.zeros(starts, int), tokens
        )
