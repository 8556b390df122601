"""The text of one sequence, token by token, against the oracle's: no engine, so quick."""

import numpy as np
from hypothesis import event, example, given
from hypothesis import strategies as st

from jax_engine import SamplingParams
from jax_engine.engine.assembler import SequenceText
from reference.outputs import Request, Sample, end_of, text_of
from reference.parameters import parameters
from reference.text import decode
from tests.support.vocabularies import Words, byte_words, fallback_words, words

SIZE, SPECIAL = 12, 2
LETTERS = byte_words([b"a", b"b", b"s", b"ab", b"\xe2\x82"], SPECIAL)
SPACES = fallback_words([b" ", b" a", b"s", b"b", b"\xe2"], SPECIAL, strips=True)


@given(
    vocabulary=words(SIZE, SPECIAL),
    tokens=st.lists(st.integers(0, SIZE - 1), min_size=1, max_size=12),
    cuts=st.lists(st.tuples(st.integers(0, 12), st.integers(1, 5)), max_size=2),
    min_tokens=st.sampled_from([0, 0, 1, 3]),
    include=st.booleans(),
    skip=st.booleans(),
)
@example(LETTERS, [0, 1, 4], [(2, 1)], 0, False, True)  # U+FFFD completes it at the end
@example(LETTERS, [0, 1, 4], [], 0, False, True)
@example(LETTERS, [1, 0, 3], [], 0, False, True)  # ends as a stop string begins
@example(LETTERS, [0, 1, 0, 1], [(0, 2)], 2, False, True)  # complete with the last of min_tokens
@example(LETTERS, [3, 0, 3, 0], [(1, 2)], 1, True, True)
@example(LETTERS, [0, 2, 1], [(1, 3)], 0, False, False)
@example(SPACES, [1, 0, 3], [(0, 2)], 0, True, True)
def test_the_text_is_the_oracle_s_after_each_token(
    vocabulary: Words,
    tokens: list[int],
    cuts: list[tuple[int, int]],
    min_tokens: int,
    include: bool,
    skip: bool,
) -> None:
    text = decode(vocabulary.oracle, tokens, skip_special_tokens=skip, behind_prompt=True)
    asked = {
        "stop": [text[at % len(text) :][:length] for at, length in cuts if text]
        + ["ab!", "\ufffd!"],
        "min_tokens": min_tokens,
        "include_stop_str_in_output": include,
        "skip_special_tokens": skip,
    }
    request = Request(
        vocabulary.oracle,
        parameters(**asked),
        [1],
        [Sample(tokens, [np.zeros(SIZE)] * len(tokens), "length")],
    )
    last, _, stopped_by = end_of(request, 0)
    mine, text = SequenceText(vocabulary.tokenizer, [1], SamplingParams(**asked)), ""
    for count, token in enumerate(tokens[:last], 1):
        assert mine.stopped_by is None
        over = count == last
        text += mine.take([token], "length" if over else None)
        assert text == text_of(request, 0, count, over=over)
    event("stopped" if stopped_by else "not stopped")
    assert mine.stopped_by == stopped_by
