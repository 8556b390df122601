"""A bit a token: how many words there are, and which bit is whose."""

import numpy as np
import pytest

from jax_engine.sampling.masked_steps import as_booleans, num_words, token_bits


@pytest.mark.parametrize(("vocab", "words"), [(1, 1), (31, 1), (32, 1), (33, 2), (64, 2), (65, 3)])
def test_words_hold_a_bit_for_each_token(vocab: int, words: int) -> None:
    assert num_words(vocab) == words
    for tokens in ([], [0], [vocab - 1], list(range(0, vocab, 3))):
        bits = token_bits(tokens, vocab)
        assert bits.dtype == np.uint32 and bits.shape == (words,)
        assert [i for i in range(32 * words) if bits[i // 32] >> np.uint32(i % 32) & 1] == tokens
        assert np.flatnonzero(as_booleans(bits, vocab)).tolist() == tokens
        assert as_booleans(bits, vocab).shape == (vocab,)
