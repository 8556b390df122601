"""`text_offset` of completions: where each token's text begins in the text that the client gets."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jax_engine.serving.api.response_logprobs import Offsets
from jax_engine.tokenization.gguf_tokenizer import backend_from_gguf
from jax_engine.tokenization.tokenizer import Tokenizer
from tests.serving.tools.test_grammars import SPECIAL
from tests.tokenization.conftest import sentencepiece_metadata

BOS = "<think>"  # any special token, where a tokenizer adds one
texts = st.lists(
    st.sampled_from(["<think>", "<tool_call>", "<", "é", "😀", "a", " "]), max_size=8
).map("".join)


@given(texts, texts, st.booleans(), st.booleans())
@example("<think>a", "b</think>c", True, True)
def test_offsets_agree_with_the_text(prompt: str, output: str, added: bool, hidden: bool) -> None:
    """Special tokens that are written in a prompt have their length, an added one has none."""
    first = SPECIAL.encode(BOS) if added else []
    prompt_ids, output_ids = first + SPECIAL.encode(prompt), SPECIAL.encode(output)
    shown = SPECIAL.decode(output_ids, skip_special_tokens=hidden)
    offsets = Offsets(SPECIAL, prompt_ids, skip_special_tokens=hidden)
    found = [*offsets.of_prompt(prompt), *offsets.of_output(output_ids)]
    text, ids = prompt + shown, prompt_ids + output_ids
    ends = [*found, len(text)][1:]
    assert found == sorted(found) and len(found) == len(ids)
    for number, (token, begin, end) in enumerate(zip(ids, found, ends, strict=True)):
        own = SPECIAL.decode([token], skip_special_tokens=False)
        if not SPECIAL.is_special(token):
            assert "\ufffd" in own or text[begin:end] == own
        elif number < len(prompt_ids) or not hidden:
            assert text[begin:end] == own or (added and begin == end)
        else:
            assert begin == end
    # Cut anywhere, pieces of a stream have the same ones.
    again = Offsets(SPECIAL, prompt_ids, skip_special_tokens=hidden)
    again.of_prompt(prompt)
    assert [again.of_output([one])[0] for one in output_ids] == found[len(prompt_ids) :]


@pytest.mark.parametrize(
    ("prompt", "text", "offsets"),
    [
        ("<think>ab", "ab", [0, 0, 1]),
        ("<think>ab", "<think>ab", [0, 7, 8]),
        ("<think><think>a", "<think>a", [0, 7, 7]),
        ("a<tool_call>b", "a<tool_call>b", [0, 1, 12]),
        ("aéb", "aéb", [0, 1, 1, 2]),
        ("ab", "", [0, 0]),  # a normalizer may make more of a text, or less
        ("ab", "abc", [0, 1]),
    ],
)
def test_prompts(prompt: str, text: str, offsets: list[int]) -> None:
    found = Offsets(SPECIAL, SPECIAL.encode(prompt), skip_special_tokens=True)
    assert found.of_prompt(text) == offsets
    assert found.of_output(SPECIAL.encode("x</think>yz")) == [
        len(text), len(text) + 1, len(text) + 1, len(text) + 2,
    ]  # fmt: skip


def test_a_tokenizer_that_adds_bos_and_a_space() -> None:
    metadata = sentencepiece_metadata() | {"tokenizer.ggml.add_bos_token": True}
    tokenizer = Tokenizer(backend_from_gguf(metadata))
    text = "hello hello h"
    ids = tokenizer.encode(text)
    tokens = [tokenizer.backend.id_to_token(one) for one in ids]
    assert tokens[:3] == ["<s>", "\u2581hello", "\u2581hello"]
    found = Offsets(tokenizer, ids, skip_special_tokens=True).of_prompt(text)
    assert found[:4] == [0, 0, 5, 11]
