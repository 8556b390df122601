"""What the Mosaic kernels work out before they read anything: parts, spans, places, pages."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pallas_kernels.call import Call, Options
from pallas_kernels.mosaic import attention
from pallas_kernels.mosaic.decode import SMALLEST_PART, Decode
from pallas_kernels.mosaic.metadata import ALIGNMENT, make_metadata
from pallas_kernels.mosaic.pages import Context, Paging
from pallas_kernels.mosaic.prefill_plan import ROWS, Prefill, Span

windows = st.none() | st.integers(1, 300) | st.integers(1, 3000)
sizes_of_steps = st.sampled_from([64, 128])


def near(step: int, most: int) -> st.SearchStrategy[int]:
    """Numbers up to about `most`, many of them at a multiple of `step`."""
    edge = st.builds(lambda i, d: max(i * step + d, 0), st.integers(0, most // step), _about)
    return edge | st.integers(0, most)


_about = st.integers(-1, 1)


@given(near(64, 3000), windows, st.integers(1, 6), sizes_of_steps)
def test_i42_parts_share_out_every_visible_block_once_and_evenly(
    context: int, window: int | None, splits: int, block_kv: int
) -> None:
    paging, static = Paging(1, 1, 16, 64, block_kv), (2, splits, 8, False, False, True)
    kernel = Decode(paging, Options(1.0, window), *static)
    lens = jnp.full(splits, context, jnp.int32)
    parts = np.stack(kernel.part(lens, jnp.arange(splits, dtype=jnp.int32)), 1)
    shared = [block for begin, end in parts for block in range(begin, end)]
    low = 0 if window is None else max(context - window, 0)
    blocks = sorted({position // block_kv for position in range(low, context)})
    assert shared == blocks
    # No more parts than are worth it, and no two that differ by more than one block.
    sizes = [end - begin for begin, end in parts if begin < end]
    assert len(sizes) == min(splits, -(-len(blocks) * block_kv // SMALLEST_PART))
    assert not sizes or max(sizes) - min(sizes) <= 1


@given(st.data())
def test_spans_are_what_the_rows_see(data: st.DataObject) -> None:
    block_kv, window = data.draw(sizes_of_steps), data.draw(windows)
    warpgroups, group = data.draw(st.integers(1, 3)), data.draw(st.sampled_from([1, 2, 3, 8, 64]))
    tile, position = data.draw(st.sampled_from([8, 32, 128])), data.draw(near(block_kv, 1000))
    paging = Paging(1, 1, 16, 64, block_kv)
    static = (2, warpgroups, False, group, tile, False, False, True)
    kernel = Prefill(paging, Options(1.0, window), *static)
    queries = data.draw(st.integers(1, tile))
    first_row = data.draw(st.integers(0, kernel.parts - 1)) * kernel.rows
    if first_row >= queries * group:
        return  # such a part exits at once
    scalars = [jnp.int32(x) for x in (position, first_row, queries)]
    span = Span(*(int(x) for x in Span.of_rows(kernel, *scalars).__dict__.values()))

    rows = np.arange(first_row, first_row + kernel.rows) // group
    query = position + rows[rows < queries]
    key = np.arange(query.max() + 1 + block_kv)
    seen = key <= query[:, None]
    if window is not None:
        seen &= key > query[:, None] - window
    assert (span.low, span.high) == (np.flatnonzero(seen.any(0))[0], query.max() + 1)
    blocks = np.arange(len(key) // block_kv + 1)
    padded = np.zeros((len(seen), len(blocks) * block_kv), bool)
    padded[:, : len(key)] = seen
    padded = padded.reshape(len(seen), len(blocks), block_kv)
    some, all_ = padded.any((0, 2)), padded.all((0, 2))
    assert (some == ((blocks >= span.first) & (blocks < span.last))).all()
    # A block that is seen whole may be treated as one at an edge, which only costs time.
    inside = (blocks >= span.inner) & (blocks < span.outer)
    assert all_[inside].all() and span.first <= span.inner <= span.outer <= span.last
    if len(query) == kernel.rows:
        assert (all_ == inside).all()


@given(st.data())
def test_pages_are_those_of_the_positions_and_none_outside(data: st.DataObject) -> None:
    block_size, block_kv = (
        data.draw(st.sampled_from([8, 16, 24, 64, 128])),
        data.draw(sizes_of_steps),
    )
    high = 1 + data.draw(near(block_kv, 500))
    low = data.draw(st.integers(0, high - 1))
    paging = Paging(7, 1, block_size, 64, block_kv)
    # With room past the context: JAX would clamp an index that lies outside.
    table = jnp.arange(100, 300, dtype=jnp.int32).reshape(2, 100)
    scalars = [jnp.int32(x) for x in (1, 0, 0, low, high)]
    context = Context(paging, None, table, *scalars)
    block = data.draw(st.integers(low // block_kv, (high - 1) // block_kv))
    found = [int(x) - int(table[1, 0]) for x in context.find(jnp.int32(block))]
    for i, column in enumerate(found):
        begin = block * block_kv + i * paging.run
        if any(low <= position < high for position in range(begin, begin + paging.run)):
            assert column == begin // block_size
        assert low // block_size <= column <= (high - 1) // block_size
    edge = block * block_kv < low or (block + 1) * block_kv > high
    assert bool(context.has_edge(jnp.int32(block))) == edge


SEQS, TOKENS = 5, 45
metadata = jax.jit(make_metadata, static_argnames=("num_tokens", "decode_only"))


@example([TOKENS // SEQS] * SEQS)  # one token more than a group of eight each
@given(st.lists(st.integers(0, TOKENS // SEQS), min_size=SEQS, max_size=SEQS))
def test_places_are_aligned_and_each_token_has_its_own(queries: list[int]) -> None:
    starts = np.concatenate([[0], np.cumsum(queries)]).astype(np.int32)
    batch = (np.int32(queries), starts)
    made = metadata(*map(jnp.asarray, batch), num_tokens=TOKENS, decode_only=False)
    seq_place, token_place, place_token = map(
        np.asarray, (made.seq_place, made.token_place, made.place_token)
    )
    room, ends = len(place_token), 0
    for start, count, place in zip(starts, queries, seq_place, strict=False):
        mine = np.arange(count)
        assert place % ALIGNMENT == 0 and place >= ends
        np.testing.assert_array_equal(token_place[start + mine], place + mine)
        np.testing.assert_array_equal(place_token[place + mine], start + mine)
        ends = place + -(-count // ALIGNMENT) * ALIGNMENT
    assert room % ALIGNMENT == 0 and ends <= room
    assert token_place.min() >= 0 and token_place.max() < room


def call(rows: int, kv_heads: int, width: int) -> Call:
    shapes: list[Any] = [jnp.zeros((rows, 6, 64)), jnp.zeros((1, 2, 3, kv_heads, 16, 64))]
    tables = jnp.zeros((rows, width), jnp.int32)
    return Call(*shapes, tables, jnp.ones(rows), jnp.arange(rows + 1), jnp.int32(0))


def test_numbers_of_heads_stand_for_the_rows_of_their_kv_heads() -> None:
    numbers = attention._per_row(jnp.arange(6.0), call(1, 2, 1), ROWS)
    rows = np.arange(ROWS) % 3
    np.testing.assert_array_equal(numbers, [rows, 3 + rows])
    assert not attention._per_row(None, call(1, 2, 1), ROWS).any()


@pytest.mark.parametrize(
    ("rows", "kv_heads", "width", "splits"),
    [(1, 1, 32, 1), (1, 1, 33, 2), (1, 2, 6400, 200), (1, 2, 32_000, 264), (300, 2, 6400, 1)],
)
def test_splits_fill_the_device_and_none_is_without_work(
    rows: int, kv_heads: int, width: int, splits: int
) -> None:
    """Four blocks of threads for each of the 132 SMs of an H200; 512 tokens each."""
    assert attention._num_splits(call(rows, kv_heads, width), rows) == splits
