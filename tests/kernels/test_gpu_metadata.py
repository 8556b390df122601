"""The work list of a GPU step covers every query exactly once."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pallas_kernels.gpu_metadata import GpuMetadata, make_gpu_metadata

SEQS, TOKENS = 6, 64


def metadata_of(lengths: list[tuple[int, int]], tile_queries: int) -> GpuMetadata:
    """Metadata of sequences with the given numbers of (query tokens, earlier tokens)."""
    lens = np.zeros((SEQS, 2), np.int32)
    lens[: len(lengths)] = np.array(lengths, np.int32).reshape(-1, 2)
    starts = np.concatenate([[0], lens[:, 0].cumsum()]).astype(np.int32)
    return make_gpu_metadata(
        jnp.asarray(lens.sum(1, dtype=np.int32)),
        jnp.asarray(starts),
        TOKENS,
        tile_queries=tile_queries,
        decode_only=False,
    )


@pytest.mark.slow
@given(
    st.lists(st.tuples(st.integers(1, 12), st.integers(0, 40)), max_size=SEQS - 1),
    st.sampled_from([1, 4, 16]),
)
def test_every_query_is_in_one_row_or_one_tile(
    lengths: list[tuple[int, int]], tile_queries: int
) -> None:
    found = metadata_of(lengths, tile_queries)
    seen = []
    for i, (seq, token, context) in enumerate(
        zip(found.row_seq, found.row_token, found.row_context_len, strict=True)
    ):
        if context:
            assert int(context) == sum(lengths[int(seq)])
            assert int(found.token_row[int(token)]) == i
            seen.append((int(seq), 0))
    for tile_seq, start in zip(found.tile_seq, found.tile_start, strict=True):
        if tile_seq < SEQS:
            end = min(int(start) + tile_queries, lengths[int(tile_seq)][0])
            assert start < end
            seen += [(int(tile_seq), query) for query in range(int(start), end)]
    assert sorted(seen) == [
        (i, query) for i, (new, _) in enumerate(lengths) for query in range(new)
    ]
    rows = sum(new == 1 for new, _ in lengths)
    assert int((found.token_row >= 0).sum()) == int((found.row_context_len > 0).sum()) == rows


@pytest.mark.slow
def test_the_list_of_tiles_has_room_for_the_worst_case() -> None:
    """Sequences one query longer than whole tiles, and all T tokens used."""
    found = metadata_of([(17, 0)] * 3 + [(13, 0)], 4)
    assert int((found.tile_seq < SEQS).sum()) == 3 * 5 + 4
    assert found.tile_seq.shape == (TOKENS // 4 + SEQS,)


def test_padding_is_in_no_row_even_if_every_sequence_decodes() -> None:
    found = metadata_of([(1, 3)] * SEQS, 4)
    assert found.token_row.tolist() == [*range(SEQS), *[-1] * (TOKENS - SEQS)]
