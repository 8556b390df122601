"""Incremental detokenisation: the stream, concatenated, is the one-shot text (I50)."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jax_engine.tokenization.detokenizer import IncrementalDetokenizer
from jax_engine.tokenization.tokenizer import Tokenizer

chunks_of_ids = st.lists(st.lists(st.integers(0, 400), max_size=4), max_size=20)
same_tokenizer_for_all = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@same_tokenizer_for_all
@given(chunks=chunks_of_ids, skip=st.booleans())
def test_the_stream_is_the_one_shot_text(
    tokenizer: Tokenizer, chunks: list[list[int]], skip: bool
) -> None:
    chunks = [[i % tokenizer.vocab_size for i in chunk] for chunk in chunks]
    whole = tokenizer.decode([i for chunk in chunks for i in chunk], skip_special_tokens=skip)
    detokenizer, shown = IncrementalDetokenizer(tokenizer, skip_special_tokens=skip), ""
    for chunk in chunks:
        shown += detokenizer.add(chunk)
        assert whole.startswith(shown)
    assert shown + detokenizer.flush() == whole


@same_tokenizer_for_all
@given(text=st.text(st.sampled_from("hello w12\u20ac\U0001f642\u00e9"), min_size=1, max_size=30))
def test_characters_appear_whole(tokenizer: Tokenizer, text: str) -> None:
    if tokenizer.token_bytes is None:
        return
    ids = tokenizer.encode(text, add_special_tokens=False)
    detokenizer = IncrementalDetokenizer(tokenizer)
    pieces = [detokenizer.add([i]) for i in ids]
    assert "\ufffd" not in "".join(pieces)
    assert "".join(pieces) == tokenizer.decode(ids) == text
    assert detokenizer.flush() == ""


@same_tokenizer_for_all
@given(text=st.text("helo ", max_size=12), cut=st.integers(0, 12))
def test_text_goes_on_after_a_prompt(tokenizer: Tokenizer, text: str, cut: int) -> None:
    """The space before the output's first word is part of the output."""
    if tokenizer.token_bytes is None:
        return
    ids = tokenizer.encode("hello" + text, add_special_tokens=False)
    cut = 1 + cut % len(ids)
    detokenizer = IncrementalDetokenizer(tokenizer, ids[:cut])
    output = detokenizer.add(ids[cut:]) + detokenizer.flush()
    assert tokenizer.decode(ids[:cut]) + output == tokenizer.decode(ids)


def test_words_go_on_after_a_prompt_where_text_depends_on_it() -> None:
    from tests.tokenization.conftest import word_pieces

    detokenizer = IncrementalDetokenizer(word_pieces(), [1])
    assert [detokenizer.add([i]) for i in (2, 3, 5, 6)] == ["lo", " world", "s", " !"]
    assert detokenizer.flush() == ""
