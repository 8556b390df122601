"""The parts of host-made masks: bits, bad words as tokens, and how processors are called."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_engine.sampling.masked_steps import (
    as_booleans,
    bad_word_tokens,
    completing_tokens,
    num_words,
    run_processors,
    token_bits,
    with_prompt,
)
from jax_engine.sampling.sampler import forbid_tokens
from reference.logits import process

VOCABS = (1, 31, 32, 33, 257)
_forbid = jax.jit(forbid_tokens)


@given(data=st.data(), vocab=st.sampled_from(VOCABS))
def test_bits_say_on_the_device_what_they_say_on_the_host(data, vocab) -> None:
    ids = st.sets(st.integers(0, vocab - 1))
    rows = data.draw(st.lists(ids, min_size=3, max_size=3))
    bits = np.stack([token_bits(row, vocab) for row in rows])
    assert bits.shape == (3, num_words(vocab))
    logits = np.arange(3.0 * vocab, dtype=np.float32).reshape(3, vocab)
    edited = np.asarray(_forbid(jnp.asarray(logits), jnp.asarray(bits)))
    for row, allowed in enumerate(rows):
        wanted = np.isin(np.arange(vocab), list(allowed))
        assert np.array_equal(as_booleans(bits[row], vocab), wanted)
        assert np.array_equal(edited[row], np.where(wanted, logits[row], -np.inf))


WORDS = {
    "cat": [1],
    " cat": [2],
    "dog": [3, 4],
    " dog": [5],
    "ox": [6, 7],
    " ox": [8, 7],
    "  x": [],
}
WORDS |= {" x": [9], "emu": [1, 2], " emu": [1, 3]}


@pytest.mark.parametrize(
    ("word", "wanted"),
    [
        ("cat", [[1], [2]]),  # another token after a space
        ("dog", [[3, 4]]),  # not as many tokens after a space
        ("ox", [[6, 7], [8, 7]]),
        ("emu", [[1, 2]]),  # the same first token
        (" cat", [[2]]),  # the space is there already
        ("  x", []),  # no tokens, which are no sequence
    ],
)
def test_bad_words_are_forbidden_with_and_without_a_space(word, wanted) -> None:
    assert bad_word_tokens([word], WORDS.__getitem__) == wanted


def test_a_bad_word_s_last_token_is_named_where_it_would_complete_it() -> None:
    words = [[1], [2, 3], [2, 2, 4]]
    assert completing_tokens(words, []) == [1]
    assert completing_tokens(words, [2]) == [1, 3]
    assert completing_tokens(words, [5, 2, 2]) == [1, 3, 4]
    assert completing_tokens(words, [2, 2, 5]) == [1]


class Callable3:
    def __call__(self, prompt, output, logits):
        return logits + len(prompt) + 10 * len(output)


class CannotBeAsked:
    """As functions of C that have no signature."""

    __signature__ = "unknown"

    def __call__(self, output, logits):
        return logits + 7


def test_both_forms_of_processors_are_told_apart() -> None:
    """By the parameters that have no default; the oracle tells them apart as the engine does."""
    three = lambda prompt, output, logits: logits + len(prompt) + 10 * len(output)  # noqa: E731
    two = lambda output, logits: logits + 100 * len(output)  # noqa: E731
    bound = functools.partial(lambda weight, output, logits: logits * weight, 2.0)
    any_number = lambda *given: given[-1] + 1000 * len(given)  # noqa: E731
    with_default = lambda output, logits, scale=3.0: scale * logits  # noqa: E731
    with_more = lambda output, logits, **more: logits + len(output) + 20  # noqa: E731
    with_rest = lambda output, logits, *rest: logits + len(rest) + 30  # noqa: E731
    three_with_default = lambda prompt, output, logits, scale=5.0: scale * logits  # noqa: E731
    functions = [
        three, Callable3(), two, bound, any_number, with_default, three_with_default, np.add,
        CannotBeAsked(), with_more, with_rest,
    ]  # fmt: skip
    wanted = [14.0, 14.0, 101.0, 2.0, 2001.0, 3.0, 5.0, 5.0, 8.0, 22.0, 31.0]
    for one, result in zip(functions, wanted, strict=True):
        logits = np.ones(2, np.float32)
        assert run_processors([with_prompt(one)], [1, 2, 3], [4], logits)[0] == result
        assert process(logits, one, [1, 2, 3], [4])[0] == result


def test_processors_run_in_order_and_may_not_return_nonsense() -> None:
    logits = np.ones(3, np.float32)
    double, inc = (lambda o, x: 2 * x), (lambda o, x: x + 1)
    edited = run_processors([with_prompt(double), with_prompt(inc)], [], [], logits)
    assert edited.tolist() == [3.0, 3.0, 3.0] and edited.dtype == np.float32
    for bad in (
        lambda o, x: x[:2],
        lambda o, x: x * np.nan,
        lambda o, x: x * np.inf,
        lambda o, x: 1,
    ):
        with pytest.raises(ValueError, match="must return 3 numbers"):
            run_processors([with_prompt(bad)], [], [], logits)

    def in_place(output, x):
        x[:] = 7
        return x

    assert run_processors([with_prompt(in_place)], [], [], logits).tolist() == [7.0] * 3
    assert logits.tolist() == [1.0] * 3
