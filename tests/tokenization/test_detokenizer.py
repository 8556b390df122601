"""Incremental detokenisation: certain text as the oracle has it, character by character (I50)."""

from typing import Any

import pytest
from hypothesis import event, example, given
from hypothesis import strategies as st
from tokenizers import Tokenizer as Backend
from tokenizers import decoders
from tokenizers.models import BPE

from jax_engine.tokenization.detokenizer import IncrementalDetokenizer
from jax_engine.tokenization.gguf_tokenizer import backend_from_gguf
from jax_engine.tokenization.token_bytes import BYTE_ALPHABET, _byte_alphabet
from jax_engine.tokenization.tokenizer import Tokenizer
from reference.text import byte_fallback, byte_level, certain, decode
from tests.support.byte_tokenizer import byte_alphabet
from tests.support.vocabularies import Words, byte_words, fallback_words, words
from tests.tokenization.conftest import byte_level_metadata, sentencepiece_metadata, word_pieces

SIZE, SPECIAL = 12, 2
SURROGATE = byte_words([b"\xed", b"\xa0", b"\xed\xa0", b"a", b"\xe2\x82"], SPECIAL)
SPACES = fallback_words([b" ", b" a", b"s", b"\xe2", b"\x82"], SPECIAL, strips=True)


@given(
    vocabulary=words(SIZE, SPECIAL),
    chunks=st.lists(st.lists(st.integers(0, SIZE + 1), max_size=3), max_size=12),
    prompt=st.lists(st.integers(0, SIZE - 1), max_size=2),
    skip=st.booleans(),
)
@example(SURROGATE, [[0, 1], [3, 0], [3, 4]], [], True)  # which no later byte makes a character
@example(SPACES, [[2], [3, 4], [0], [1]], [], True)
@example(SPACES, [[0], [1], [1, 3]], [], False)
@example(SPACES, [[0, 1]], [], False)
@example(SPACES, [[2], [1]], [], True)
@example(SPACES, [[2], [1]], [], False)
@example(SPACES, [[0], [1]], [1], True)
def test_the_stream_is_what_the_oracle_calls_certain(
    vocabulary: Words, chunks: list[list[int]], prompt: list[int], skip: bool
) -> None:
    """However tokens come: at once what no later one can change, and the rest at the end."""
    tokenizer, tokens = vocabulary.tokenizer, [token for chunk in chunks for token in chunk]
    options = {"skip_special_tokens": skip, "behind_prompt": bool(prompt)}
    wanted = certain(vocabulary.oracle, tokens, **options)
    detokenizer = IncrementalDetokenizer(tokenizer, prompt, skip_special_tokens=skip)
    shown, count = "", 0
    for chunk in chunks:
        shown, count = shown + detokenizer.add(chunk), count + len(chunk)
        assert shown == wanted[count]
    rest = detokenizer.flush()
    assert shown + rest == decode(vocabulary.oracle, tokens, **options)
    event("held back to the end" if rest else "nothing held back")


@given(vocabulary=words(SIZE, SPECIAL), tokens=st.lists(st.integers(0, SIZE + 1), max_size=12))
def test_one_shot_text_is_the_oracle_s_and_the_tokenizers_library_s(
    vocabulary: Words, tokens: list[int]
) -> None:
    """The library writes one U+FFFD for each byte of a word that is none, with byte fallback."""
    for skip in (False, True):
        text = vocabulary.tokenizer.decode(tokens, skip_special_tokens=skip)
        assert text == decode(vocabulary.oracle, tokens, skip_special_tokens=skip)
        theirs = vocabulary.tokenizer.backend.decode(tokens, skip_special_tokens=skip)
        assert text == theirs or ("\ufffd" in text and "\ufffd" in theirs)


def test_each_byte_is_written_as_the_tokenizers_library_writes_it() -> None:
    """All 256, one by one, printable or not; and pieces that were added as they are."""
    assert {byte: char for char, byte in BYTE_ALPHABET.items()} == byte_alphabet()
    assert _byte_alphabet() == BYTE_ALPHABET  # made at import, where no planted bug is
    assert sorted(byte_alphabet()) == list(range(256))
    table = byte_words([bytes([byte]) for byte in range(256)], 256 - 1).tokenizer.token_bytes
    assert table is not None and [table[byte] for byte in range(255)] == [
        bytes([byte]) for byte in range(255)
    ]
    assert table[999] == b""


@pytest.mark.parametrize("kind", ["byte-level", "byte-fallback"])
def test_pieces_of_files_have_the_oracle_s_bytes(kind: str) -> None:
    metadata = byte_level_metadata() if kind == "byte-level" else sentencepiece_metadata()
    tokenizer = Tokenizer(backend_from_gguf(metadata))
    bytes_of = byte_level if kind == "byte-level" else byte_fallback
    assert tokenizer.token_bytes is not None
    for token, piece in enumerate(metadata["tokenizer.ggml.tokens"]):
        assert tokenizer.token_bytes[token] == bytes_of(piece), piece


@pytest.mark.parametrize("metadata", [byte_level_metadata(), sentencepiece_metadata()])
@given(
    text=st.text(st.sampled_from("hello w12\u20ac\U0001f642\u00e9"), min_size=1, max_size=30),
    cut=st.integers(0, 30),
)
def test_characters_appear_whole_behind_any_prompt(metadata: dict, text: str, cut: int) -> None:
    """The space before the output's first word is part of the output."""
    tokenizer = Tokenizer(backend_from_gguf(metadata))
    ids = tokenizer.encode(text, add_special_tokens=False)
    cut %= len(ids)
    detokenizer = IncrementalDetokenizer(tokenizer, ids[:cut])
    pieces = [detokenizer.add([i]) for i in ids[cut:]]
    assert detokenizer.flush() == "" and tokenizer.decode(ids) == text
    if "\ufffd" not in tokenizer.decode(ids[:cut]):  # no character is cut in two
        assert tokenizer.decode(ids[:cut]) + "".join(pieces) == text
        assert "\ufffd" not in "".join(pieces)
        event("no character was cut")


@given(
    chunks=st.lists(st.lists(st.integers(0, 7), max_size=4), max_size=12),
    prompt=st.lists(st.integers(0, 6), max_size=8),
    skip=st.booleans(),
)
@example([[1], [7], [2]], [], True)  # a mark that is not shown parts no word
@example([[1], [2], [5], [5]], [3, 1], True)
def test_where_text_depends_on_its_neighbours_the_stream_is_the_one_shot_text(
    chunks: list[list[int]], prompt: list[int], skip: bool
) -> None:
    tokenizer = word_pieces()
    tokens = prompt + [i for chunk in chunks for i in chunk]
    before = tokenizer.decode(prompt, skip_special_tokens=skip)
    whole = tokenizer.decode(tokens, skip_special_tokens=skip).removeprefix(before)
    detokenizer = IncrementalDetokenizer(tokenizer, prompt, skip_special_tokens=skip)
    shown = ""
    for chunk in chunks:
        shown += detokenizer.add(chunk)
        assert whole.startswith(shown)
    assert shown + detokenizer.flush() == whole


def test_characters_appear_whole_where_the_decoder_is_another() -> None:
    """One that leaves SentencePiece's visible space as it is: no table of bytes describes it."""
    backend = Backend(BPE({f"<0x{byte:02X}>": byte for byte in range(256)}, [], byte_fallback=True))
    backend.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    detokenizer = IncrementalDetokenizer(Tokenizer(backend))
    shown = [detokenizer.add([byte]) for byte in "a\u00e9\u20acb".encode()]
    assert shown == ["a", "", "\u00e9", "", "", "\u20ac", "b"]
    assert detokenizer.add("\u20ac".encode()[:2]) == ""
    assert set(detokenizer.flush()) == {"\ufffd"}


SPACE_SHOWN, BYTES, FUSE = (
    decoders.Replace("\u2581", " "),
    decoders.ByteFallback(),
    decoders.Fuse(),
)


@pytest.mark.parametrize(
    ("decoder", "strips"),
    [
        (None, None),
        (decoders.WordPiece(), None),
        (decoders.ByteLevel(), False),
        (decoders.Sequence([SPACE_SHOWN, BYTES, FUSE]), False),
        (decoders.Sequence([SPACE_SHOWN, BYTES, FUSE, decoders.Strip(" ", 1, 0)]), True),
        (decoders.Sequence([SPACE_SHOWN, BYTES, FUSE, decoders.Strip(" ", 0, 1)]), None),
        (decoders.Sequence([decoders.Replace("_", " "), BYTES, FUSE]), None),
        (decoders.Sequence([SPACE_SHOWN, BYTES]), None),
    ],
)
def test_which_decoders_put_bytes_together(decoder: Any, strips: bool | None) -> None:
    """Also says whether they drop the first space. None: no table of bytes describes them."""
    backend = Backend(BPE({"a": 0}, []))
    if decoder is not None:
        backend.decoder = decoder
    table = Tokenizer(backend).token_bytes
    assert (None if table is None else table.strips_first_space) is strips


def test_words_go_on_after_a_prompt_where_text_depends_on_it() -> None:
    detokenizer = IncrementalDetokenizer(word_pieces(), [1])
    assert [detokenizer.add([i]) for i in (2, 3, 5, 6)] == ["lo", " world", "s", " !"]
    assert detokenizer.flush() == ""
