"""Directories without tokenizer.json: SentencePiece's file, Qwen 1's, vocabulary and merges."""

import base64
import json
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_engine.errors import ConfigError, JaxEngineError, ModelNotFoundError, WeightsError
from jax_engine.tokenization import old_tokenizers
from jax_engine.tokenization.gguf_tokenizer import backend_from_gguf
from jax_engine.tokenization.old_tokenizers import read_sentencepiece
from jax_engine.tokenization.token_bytes import BYTE_ALPHABET
from jax_engine.tokenization.tokenizer import Tokenizer, load_tokenizer
from tests.tokenization.conftest import byte_level_metadata, sentencepiece_metadata

BPE, UNIGRAM = 2, 1


def varint(value: int) -> bytes:
    low, rest = value & 0x7F, value >> 7
    return bytes([low | 0x80]) + varint(rest) if rest else bytes([low])


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def chunk(field: int, data: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(data)) + data


def sentencepiece_bytes(
    kind: int = BPE, *, prefix: int = 1, squeezes: int = 0, more: bytes = b""
) -> bytes:
    """A model file with the pieces of `sentencepiece_metadata`, written by hand.

    Args:
        more: further fields of the trainer.
    """
    fields = sentencepiece_metadata()
    data = b""
    for piece, score, of_kind in zip(
        fields["tokenizer.ggml.tokens"],
        fields["tokenizer.ggml.scores"],
        fields["tokenizer.ggml.token_type"],
        strict=True,
    ):
        scored = varint(2 << 3 | 5) + struct.pack("<f", score)
        data += chunk(1, chunk(1, piece.encode()) + scored + number(3, of_kind))
    unused = varint(99 << 3 | 1) + bytes(8)  # fields that are not read are skipped
    data += chunk(2, number(3, kind) + unused + more)
    return data + chunk(3, chunk(1, b"identity") + number(3, prefix) + number(4, squeezes))


def sentencepiece_directory(folder: Path, data: bytes | None = None, **config: Any) -> Path:
    (folder / "tokenizer.model").write_bytes(sentencepiece_bytes() if data is None else data)
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


def test_sentencepiece_as_in_a_gguf_file(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(sentencepiece_directory(tmp_path))
    same = Tokenizer(backend_from_gguf(sentencepiece_metadata()))
    for text in ("hello", " hello  \u00e9</s>he", ""):
        assert tokenizer.encode(text) == same.encode(text)
        assert tokenizer.decode(tokenizer.encode(text)) == same.decode(same.encode(text))
    assert (tokenizer.bos_token_id, tokenizer.eos_token_ids) == (1, (2,))
    assert tokenizer.encode("hello")[0] == 1


def test_settings_of_normalisation(tmp_path: Path) -> None:
    bare = load_tokenizer(sentencepiece_directory(tmp_path, sentencepiece_bytes(prefix=0)))
    prefixed = load_tokenizer(sentencepiece_directory(tmp_path))
    assert bare.encode(" hello") == prefixed.encode("hello") != bare.encode("hello")
    squeezed = load_tokenizer(sentencepiece_directory(tmp_path, sentencepiece_bytes(squeezes=1)))
    assert squeezed.encode("  hello   he ") == prefixed.encode("hello he")
    assert prefixed.encode("  hello   he ") != prefixed.encode("hello he")


def test_ids_that_the_trainer_was_told(tmp_path: Path) -> None:
    """Their fields have numbers of two bytes; -1, which is no token, takes ten."""
    swapped = number(41, 2) + number(42, 1)
    tokenizer = load_tokenizer(sentencepiece_directory(tmp_path, sentencepiece_bytes(more=swapped)))
    assert (tokenizer.bos_token_id, tokenizer.eos_token_ids) == (2, (1,))
    assert tokenizer.encode("he")[0] == 2
    none = number(41, 2**64 - 1)
    tokenizer = load_tokenizer(sentencepiece_directory(tmp_path, sentencepiece_bytes(more=none)))
    assert tokenizer.bos_token_id is None and 1 not in tokenizer.encode("he")
    none = number(42, 2**64 - 1)
    tokenizer = load_tokenizer(sentencepiece_directory(tmp_path, sentencepiece_bytes(more=none)))
    assert (tokenizer.bos_token_id, tokenizer.eos_token_ids) == (1, ())
    wrong = sentencepiece_bytes(more=chunk(41, b"1"))
    with pytest.raises(WeightsError, match="wrong kind"):
        load_tokenizer(sentencepiece_directory(tmp_path, wrong))


def test_an_end_that_the_configuration_adds(tmp_path: Path) -> None:
    for bos, eos in ((True, True), (False, True), (True, False)):
        config = {"add_bos_token": bos, "add_eos_token": eos}
        tokenizer = load_tokenizer(sentencepiece_directory(tmp_path, **config))
        inner = tokenizer.encode("he", add_special_tokens=False)
        assert tokenizer.encode("he") == [1] * bos + inner + [2] * eos


def test_what_tokens_beside_the_vocabulary_strip(tmp_path: Path) -> None:
    size = len(sentencepiece_metadata()["tokenizer.ggml.tokens"])
    added = {str(size): {"content": "<x>", "lstrip": True, "special": True}}
    folder = sentencepiece_directory(tmp_path, added_tokens_decoder=added)
    tokenizer = load_tokenizer(folder)
    assert tokenizer.encode("he   <x>") == tokenizer.encode("he<x>")
    assert tokenizer.decode(tokenizer.encode("he<x>")) == "he"


def test_tokens_beside_the_vocabulary(tmp_path: Path) -> None:
    size = len(sentencepiece_metadata()["tokenizer.ggml.tokens"])
    added = {str(size + 1): {"content": "<pad>", "special": True}}
    folder = sentencepiece_directory(
        tmp_path, add_bos_token=False, eos_token="<pad>", added_tokens_decoder=added
    )
    (folder / "added_tokens.json").write_text(json.dumps({"<tool>": size}))
    tokenizer = load_tokenizer(folder)
    ids = tokenizer.encode("he<tool>he<pad>")
    assert ids[0] != 1 and size in ids and ids[-1] == size + 1
    assert tokenizer.special_ids >= {size + 1} and size not in tokenizer.special_ids
    assert tokenizer.eos_token_ids == (size + 1,)
    (folder / "added_tokens.json").unlink()
    with pytest.raises(WeightsError, match=f"'<pad>' should have the id {size + 1}, but .* {size}"):
        load_tokenizer(folder)


def test_a_unigram_vocabulary_is_refused_with_what_to_do(tmp_path: Path) -> None:
    folder = sentencepiece_directory(tmp_path, sentencepiece_bytes(UNIGRAM))
    with pytest.raises(ConfigError, match=r"'unigram' is not supported.*save_pretrained"):
        load_tokenizer(folder)


def test_the_largest_vocabulary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, file = sentencepiece_bytes(), tmp_path / "tokenizer.model"
    file.write_bytes(whole)
    monkeypatch.setattr(old_tokenizers, "MAX_BYTES", len(whole))
    assert read_sentencepiece(file).tokens == sentencepiece_metadata()["tokenizer.ggml.tokens"]
    file.write_bytes(whole + number(99, 0))
    with pytest.raises(WeightsError, match=f"more than {len(whole)} bytes"):
        read_sentencepiece(file)


@given(st.data())
def test_damaged_sentencepiece_files(tmp_path_factory: pytest.TempPathFactory, data: Any) -> None:
    """Cut or overwritten anywhere: pieces, or an error of this package."""
    whole = sentencepiece_bytes()
    at = data.draw(st.integers(0, len(whole) - 1))
    put = data.draw(st.binary(max_size=4))
    end = data.draw(st.integers(at, len(whole)))
    path = tmp_path_factory.getbasetemp() / "damaged.model"
    path.write_bytes(whole[:at] + put + whole[min(len(whole), at + len(put)) : end])
    try:
        found = read_sentencepiece(path)
    except JaxEngineError as error:
        assert str(path) in str(error)
    else:
        assert len(found.tokens) == len(found.scores) == len(found.kinds) > found.unknown


def qwen_lines() -> list[str]:
    """A file of 256 bytes and a few merges of them."""
    tokens = [*map(chr, BYTE_ALPHABET.values()), "he", "ll", "hell", "12", "el"]
    encoded = (base64.b64encode(token.encode("latin-1")).decode() for token in tokens)
    return [f"{token} {rank}" for rank, token in enumerate(encoded)]


def test_qwen_1(tmp_path: Path) -> None:
    """Merges follow from the ranks; the special tokens are known."""
    (tmp_path / "qwen.tiktoken").write_text("\n".join(qwen_lines()))
    tokenizer = load_tokenizer(tmp_path)
    ids = tokenizer.encode("hello 12<|im_end|>")
    words = [tokenizer.backend.id_to_token(index) for index in ids]
    assert words == ["hell", "o", "\u0120", "1", "2", "<|im_end|>"]
    assert ids[-1] == 261 + 2 and tokenizer.eos_token_ids == (261,)
    assert tokenizer.vocab_size == 261 + 208
    first, second = tokenizer.encode("hel")  # "he" comes before "el"
    assert (tokenizer.backend.id_to_token(first), second) == ("he", tokenizer.encode("l")[0])
    assert tokenizer.decode(ids) == "hello 12"
    for line in ("aGVs", "aGVs 7", "a 261"):
        (tmp_path / "qwen.tiktoken").write_text("\n".join([*qwen_lines(), line]))
        with pytest.raises(WeightsError, match="line 262 is damaged"):
            load_tokenizer(tmp_path)


def write_vocabulary(folder: Path, **config: Any) -> Path:
    fields = byte_level_metadata()
    tokens = fields["tokenizer.ggml.tokens"]
    (folder / "vocab.json").write_text(json.dumps({token: i for i, token in enumerate(tokens)}))
    merges = "\n".join(["#version: 0.2", *fields["tokenizer.ggml.merges"]])
    (folder / "merges.txt").write_text(merges)
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_vocabulary_and_merges(tmp_path: Path) -> None:
    """GPT-2 and OPT: as transformers reads them, with the special tokens it knows or is told."""
    folder = write_vocabulary(tmp_path, model_type="gpt2")
    same = Tokenizer(backend_from_gguf(byte_level_metadata("gpt-2")))
    tokenizer = load_tokenizer(folder)
    assert tokenizer.encode("hello w\u20ac 1212") == same.encode("hello w\u20ac 1212")
    named = {"eos_token": "<|end|>", "bos_token": {"content": "<|bos|>"}}
    (folder / "special_tokens_map.json").write_text(json.dumps(named))
    tokenizer = load_tokenizer(folder)
    assert (tokenizer.bos_token_id, tokenizer.eos_token_ids) == (2, (0,))
    assert tokenizer.encode("he<|end|>")[-1] == 0


def test_special_tokens_that_transformers_knows(tmp_path: Path) -> None:
    """Those of GPT-2, which has no padding."""
    folder = write_vocabulary(tmp_path, model_type="gpt2")
    vocabulary = json.loads((folder / "vocab.json").read_text())
    end = vocabulary["<|endoftext|>"] = len(vocabulary)
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    tokenizer = load_tokenizer(folder)
    assert tokenizer.eos_token_ids == (end,) and tokenizer.encode("he<|endoftext|>")[-1] == end
    named = dict.fromkeys(("bos_token", "eos_token", "unk_token"), "<|endoftext|>")
    assert tokenizer.chat.special_tokens == named


def test_opt_begins_with_bos(tmp_path: Path) -> None:
    folder = write_vocabulary(tmp_path, model_type="opt")
    config = {"add_bos_token": True, "bos_token": "<|bos|>", "tokenizer_class": "GPT2Tokenizer"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    assert load_tokenizer(folder).encode("he")[0] == 2


def test_what_no_file_says(tmp_path: Path) -> None:
    """No vocabulary, or one of a model that nobody knows; and code is never run."""
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "LlamaTokenizer"}')
    with pytest.raises(ModelNotFoundError, match="Give a tokenizer="):
        load_tokenizer(tmp_path)
    write_vocabulary(tmp_path)
    (tmp_path / "ran.py").write_text("raise SystemExit('it ran')")
    remote = {"auto_map": {"AutoTokenizer": ["ran.Mine", None]}, "tokenizer_class": "Mine"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(remote))
    with pytest.raises(ModelNotFoundError, match="Give a tokenizer="):
        load_tokenizer(tmp_path)
