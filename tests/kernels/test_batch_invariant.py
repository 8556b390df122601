"""Attention with `batch_invariant`, interpreted: a query's bits, whatever step computes it."""

from functools import partial
from typing import Any, NamedTuple
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pallas_kernels import make_metadata, paged_attention
from pallas_kernels.triton import attention
from pallas_kernels.tuning import TritonDecodeConfig, TritonPrefillConfig

BLOCK_SIZE, BLOCKS_EACH, KV_HEADS, GROUP, DIM = 8, 40, 2, 3, 16
CONTEXT = BLOCK_SIZE * BLOCKS_EACH  # 320 tokens: 20 steps, in up to 10 splits
CONFIGS = {"triton_decode": TritonDecodeConfig(16), "triton_prefill": TritonPrefillConfig()}
SEQS = 4
# Steps are padded to one of these numbers of tokens and sequences, as an engine's are.
SIZES = ((1, 1), (4, 4), (24, 4), (304, 4))
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "all": {
        "window": 100,
        "soft_cap": 5.0,
        "alibi_slopes": jnp.linspace(0.0, 0.3, KV_HEADS * GROUP),
        "sinks": jnp.linspace(-1.0, 1.0, KV_HEADS * GROUP),
    },
}


class Part(NamedTuple):
    """Some consecutive tokens of a sequence, which are computed in one step."""

    seq: int
    start: int
    stop: int


@partial(jax.jit, static_argnames=("decodes", "option"))
def attend(
    q: Any, kv_cache: Any, tables: Any, lens: Any, starts: Any, ends: Any, *,
    decodes: bool, option: str,
) -> jax.Array:  # fmt: skip
    """Compiled as a whole, as a model's step is."""
    batch = tables, lens, starts
    metadata = make_metadata(
        *batch,
        len(q),
        decode_only=decodes,
        backend="triton",
        prompt_lens=ends,
        batch_invariant=True,
    )
    return paged_attention(
        q, kv_cache, *batch, layer=0, scale=0.25, metadata=metadata, **OPTIONS[option]
    )


class Pool:
    """The keys and values of four sequences, and their queries."""

    def __init__(self, dtype: str) -> None:
        rng = np.random.default_rng(0)
        blocks = SEQS * BLOCKS_EACH
        shape = (1, 2, blocks, KV_HEADS, BLOCK_SIZE, DIM)
        self.kv_cache = jnp.asarray(rng.standard_normal(shape), dtype)
        self.q = rng.standard_normal((SEQS, CONTEXT, KV_HEADS * GROUP, DIM))
        self.tables = rng.permutation(blocks).reshape(SEQS, BLOCKS_EACH).astype(np.int32)
        self.dtype = dtype

    def attend(
        self, parts: list[Part], prompts: list[int], size: tuple[int, int], option: str
    ) -> list[np.ndarray]:
        """Each part's results, [stop - start, H, D], of one step that is padded to `size`."""
        num_tokens, num_seqs = size
        q = np.zeros((num_tokens, *self.q.shape[2:]))
        tables = np.zeros((num_seqs, BLOCKS_EACH), np.int32)
        lens, ends, starts = (np.zeros(num_seqs + extra, np.int32) for extra in (0, 0, 1))
        at = 0
        for i, (seq, start, stop) in enumerate(parts):
            q[at : at + stop - start] = self.q[seq, start:stop]
            tables[i], lens[i], ends[i] = self.tables[seq], stop, prompts[seq]
            at += stop - start
            starts[i + 1 :] = at
        arrays = tuple(map(jnp.asarray, (tables, lens, starts)))
        decodes = all(stop == start + 1 > prompts[seq] for seq, start, stop in parts)
        # Steps so short that one row would get other splits than 24 rows.
        with mock.patch.object(attention, "lookup", lambda kernel, *_: CONFIGS[kernel]):
            out = attend(
                jnp.asarray(q, self.dtype), self.kv_cache, *arrays, jnp.asarray(ends),
                decodes=decodes, option=option,
            )  # fmt: skip
        borders = np.cumsum([part.stop - part.start for part in parts])
        found = np.asarray(out.astype(jnp.float32))
        assert not found[at:].any()  # padding
        return np.split(found[:at], borders[:-1])


POOLS = {dtype: Pool(dtype) for dtype in ("float32", "bfloat16")}


def size_of(parts: list[Part]) -> tuple[int, int]:
    tokens = sum(part.stop - part.start for part in parts)
    return next(size for size in SIZES if size[0] >= tokens and size[1] >= len(parts))


@st.composite
def steps(draw: st.DrawFn) -> tuple[int, list[list[Part]]]:
    """Where sequence 0's prompt ends, and steps that compute tokens of it in company."""
    prompt = draw(st.integers(1, 40))
    cut: list[list[Part]] = []
    at = draw(st.integers(0, 30))
    for _ in range(3):
        stop = at + draw(st.sampled_from([1, 1, 2, 5, 11]))
        others = draw(st.sets(st.integers(1, SEQS - 1)))
        company = [
            Part(seq, last - new, last)
            for seq in others
            for last, new in [(draw(st.integers(4, CONTEXT)), draw(st.integers(1, 4)))]
        ]
        place = draw(st.integers(0, len(company)))
        cut.append([*company[:place], Part(0, at, stop), *company[place:]])
        at = stop
    return prompt, cut


@pytest.mark.slow
@given(steps(), st.sampled_from(["float32", "bfloat16"]), st.sampled_from(list(OPTIONS)))
@example((20, [[Part(0, 19, 20)], [Part(0, 20, 21)], [Part(0, 17, 23)]]), "float32", "plain")
@example((20, [[Part(1, 5, 6), Part(0, 19, 20), Part(2, 299, 300)]]), "bfloat16", "all")
@settings(max_examples=min(12, settings.default.max_examples))
def test_a_query_s_bits_do_not_depend_on_its_step(
    cut: tuple[int, list[list[Part]]], dtype: str, option: str
) -> None:
    prompt, each = cut
    pool, prompts = POOLS[dtype], [prompt, 9, 300, 310]
    expected = pool.attend([Part(0, 0, 80)], prompts, SIZES[-1], option)[0]
    for parts in each:
        found = pool.attend(parts, prompts, size_of(parts), option)
        for (seq, start, stop), result in zip(parts, found, strict=True):
            if seq == 0:
                np.testing.assert_array_equal(result, expected[start:stop])


@pytest.mark.slow
@pytest.mark.parametrize("option", OPTIONS)
def test_long_contexts_are_split_by_their_own_length(option: str) -> None:
    """Decodes at the ends of splits, alone and beside others, as drafts and computed again."""
    pool, prompts = POOLS["float32"], [3, 300, 2, 2]
    drafts = Part(0, 250, 261)
    expected = pool.attend([drafts], prompts, (24, 4), option)[0]
    again = pool.attend([Part(0, 0, 300)], prompts, (304, 4), option)[0]
    np.testing.assert_array_equal(again[drafts.start : drafts.stop], expected)
    for at in (250, 255, 256, 260):
        part = Part(0, at, at + 1)
        alone = pool.attend([part], prompts, (1, 1), option)[0]
        others = [Part(2, 319, 320), part, Part(3, 63, 64)]
        decoding = pool.attend(others, prompts, (4, 4), option)[1]
        beside = pool.attend([*others, Part(1, 0, 20)], prompts, (24, 4), option)[1]
        for found in (alone, decoding, beside):
            np.testing.assert_array_equal(found[0], expected[at - drafts.start])


def test_prompts_and_decodes_differ_so_that_the_test_above_can_fail() -> None:
    """The same query has other bits in a prompt's order than in a decode's."""
    pool = POOLS["float32"]
    part = [Part(0, 250, 261)]
    as_prompt, as_decode = (
        pool.attend(part, [prompt, 0, 0, 0], (24, 4), "plain")[0] for prompt in (261, 3)
    )
    np.testing.assert_allclose(as_prompt, as_decode, atol=1e-5)
    assert (as_prompt != as_decode).any()


@pytest.mark.parametrize("backend", ["mosaic", "xla", ("triton", "xla")])
def test_backends_without_it_are_refused(backend: Any) -> None:
    tables, lens, starts = jnp.zeros((1, 1), int), jnp.ones(1, int), jnp.array([0, 1])
    with pytest.raises(ValueError, match=r"lacks batch_invariant; 'triton' and 'numba' have it"):
        make_metadata(tables, lens, starts, 1, backend=backend, batch_invariant=True)


@pytest.mark.parametrize(("tokens", "seqs"), [(1, 1), (24, 4), (2048, 64), (8192, 1)])
def test_tiles_are_of_one_size(tokens: int, seqs: int) -> None:
    """Interpreted products add alike in tiles of any size, which a GPU's may not."""
    lens, starts = jnp.zeros(seqs, jnp.int32), jnp.zeros(seqs + 1, jnp.int32)
    more: dict[str, Any] = {"prompt_lens": lens, "batch_invariant": True, "decode_only": False}
    assert attention.make_metadata(lens, starts, tokens, **more).tile_queries == 64
