"""Attention in chunks: each chunk that a step's tokens are in becomes a sequence of its own."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jax_engine import LLM
from jax_engine.errors import ConfigError
from jax_engine.layers.chunks import Ragged, in_chunks
from jax_engine.models.registry import config_from_hf
from tests.golden.families.checkpoints import cases
from tests.golden.families.parity import write

CASES = cases()
Sequence = tuple[int, int]  # positions before a step, and the step's tokens


def step(sequences: list[Sequence], width: int) -> Ragged:
    """A step over tables whose entries tell sequence and block."""
    starts, counts = np.array(sequences).T
    tables = 100 * np.arange(len(sequences))[:, None] + np.arange(width)
    ends = np.cumsum([0, *counts])
    lens = np.where(counts > 0, starts + counts, 0)
    arrays = (jnp.asarray(one, jnp.int32) for one in (tables, lens, ends, starts + 1))
    return Ragged(*arrays)


@given(
    sequences=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 30)), min_size=1, max_size=5),
    block_size=st.sampled_from([1, 2, 4]),
    blocks=st.integers(1, 5),
    padding=st.integers(0, 3),
)
@example(sequences=[(7, 2)] * 4, block_size=4, blocks=2, padding=0)  # each crosses a border
@example(sequences=[(0, 17)], block_size=1, blocks=1, padding=0)  # a chunk for each token
@example(sequences=[(0, 0), (15, 2), (0, 0)], block_size=4, blocks=4, padding=1)
def test_each_token_reads_the_blocks_of_its_own_chunk_up_to_itself(
    sequences: list[Sequence], block_size: int, blocks: int, padding: int
) -> None:
    size, total = block_size * blocks, sum(count for _, count in sequences)
    batch = step(sequences, width=80 // block_size)
    found = in_chunks(batch, total + padding, size, block_size)
    assert found.prompt_lens is not None
    lens, begins = np.asarray(found.context_lens), np.asarray(found.query_start_loc)
    assert begins[0] == 0 and begins[-1] == total and (np.diff(begins) >= 0).all()
    expected = [
        (number, start + place)
        for number, (start, count) in enumerate(sequences)
        for place in range(count)
    ]
    for token, (number, position) in enumerate(expected):
        owner = int(np.searchsorted(begins, token, side="right")) - 1
        local = int(lens[owner]) - int(begins[owner + 1] - token)  # its place in the chunk
        assert local == position % size
        first = position // size * size
        wanted = [100 * number + (first + place) // block_size for place in range(local + 1)]
        table = np.asarray(found.block_tables[owner])
        assert [int(table[place // block_size]) for place in range(local + 1)] == wanted
        assert found.prompt_lens[owner] == max(sequences[number][0] + 1 - first, 0)
    assert (lens[np.diff(begins) == 0] == 0).all()  # padding sees nothing


def test_a_step_of_single_tokens_has_no_room_for_borders() -> None:
    batch = step([(7, 1), (8, 1), (0, 0)], width=8)
    found = in_chunks(batch, 0, 8, 4)
    assert found.context_lens.tolist() == [8, 1, 0]
    assert found.block_tables.tolist() == [[0, 1], [102, 103], [200, 201]]


def test_a_chunk_must_be_a_whole_number_of_blocks(tmp_path: object) -> None:
    """Unless no text is longer than a chunk."""
    write(CASES["llama4"], tmp_path)  # type: ignore[arg-type]
    options = {"skip_tokenizer_init": True, "dtype": "float32", "block_size": 16}
    with pytest.raises(ConfigError, match=r"block_size must divide .* \(8\), .* block_size=16"):
        LLM(str(tmp_path), max_model_len=32, **options)
    spec = config_from_hf(CASES["llama4"]["config"]).spec
    assert {one.chunk for one in spec.attentions} == {8, None}
    assert {one.chunk for one in spec.for_length(9).attentions} == {8, None}
    assert {one.chunk for one in spec.for_length(8).attentions} == {None}
