"""Tokenizers from files: special tokens, BOS, chat templates, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from jax_engine.errors import (
    ConfigError,
    InvalidRequestError,
    ModelNotFoundError,
    WeightsError,
)
from jax_engine.tokenization.gguf_tokenizer import backend_from_gguf
from jax_engine.tokenization.tokenizer import Tokenizer, load_tokenizer
from tests.tokenization.conftest import byte_level_metadata, sentencepiece_metadata

TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'bad' %}"
    "{{ raise_exception('no such role') }}{% endif %}[{{ m['role'] }}]{{ m['content'] }}"
    "{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"
)
USER = [{"role": "user", "content": "hello"}]


def write_directory(directory: Path, **config: Any) -> Path:
    backend_from_gguf(byte_level_metadata()).save(str(directory / "tokenizer.json"))
    (directory / "tokenizer_config.json").write_text(json.dumps(config))
    return directory


def test_special_tokens_are_found_in_text(tokenizer: Tokenizer) -> None:
    if not tokenizer.special_ids:
        return
    special = min(tokenizer.special_ids)
    mark = tokenizer.backend.id_to_token(special)
    ids = tokenizer.encode(f"he{mark}ll", add_special_tokens=False)
    assert ids.count(special) == 1
    assert tokenizer.is_special(special) and not tokenizer.is_special(ids[0])
    assert mark in tokenizer.decode(ids, skip_special_tokens=False)
    assert mark not in tokenizer.decode(ids)


def test_digits_are_cut_as_the_pre_tokenizer_says() -> None:
    one_by_one = Tokenizer(backend_from_gguf(byte_level_metadata("smollm")))
    in_groups = Tokenizer(backend_from_gguf(byte_level_metadata("llama-bpe")))
    assert len(one_by_one.encode("1212")) == 4
    assert len(in_groups.encode("1212", add_special_tokens=False)) == 3  # 121 and 2: "12", "1", "2"
    assert len(Tokenizer(backend_from_gguf(byte_level_metadata("gpt2"))).encode("1212")) == 2
    assert len(Tokenizer(backend_from_gguf(byte_level_metadata("qwen2"))).encode("1212")) == 4


def test_bos_is_added_when_the_file_says_so() -> None:
    metadata = byte_level_metadata()
    assert Tokenizer(backend_from_gguf(metadata)).encode("he")[0] != 2
    with_bos = Tokenizer(backend_from_gguf(metadata | {"tokenizer.ggml.add_bos_token": True}))
    assert with_bos.encode("he")[0] == 2
    assert with_bos.encode("he", add_special_tokens=False)[0] != 2
    assert Tokenizer(backend_from_gguf(sentencepiece_metadata())).encode("he")[0] == 1


def test_sentencepiece_joins_by_score_and_falls_back_to_bytes() -> None:
    tokenizer = Tokenizer(backend_from_gguf(sentencepiece_metadata()))
    words = [tokenizer.backend.id_to_token(i) for i in tokenizer.encode("hello \u00e9")]
    assert words == ["<s>", "\u2581hello", "\u2581", "<0xC3>", "<0xA9>"]
    assert tokenizer.decode(tokenizer.encode("hello \u00e9")) == "hello \u00e9"


def test_a_directory_in_hugging_face_layout(tmp_path: Path) -> None:
    directory = write_directory(
        tmp_path, bos_token={"content": "<|bos|>"}, eos_token="<|end|>", chat_template=TEMPLATE
    )
    tokenizer = load_tokenizer(directory)
    assert (tokenizer.bos_token_id, tokenizer.eos_token_ids, tokenizer.eos_token_id) == (2, (0,), 0)
    text = tokenizer.apply_chat_template(USER, tokenize=False, add_generation_prompt=True)
    assert text == "<|bos|>[user]hello[assistant]"
    ids = tokenizer.apply_chat_template(USER)
    assert ids[0] == 2 and ids.count(2) == 1
    with pytest.raises(InvalidRequestError, match="no such role"):
        tokenizer.apply_chat_template([{"role": "bad", "content": ""}])


def test_templates_in_other_places(tmp_path: Path) -> None:
    named = [{"name": "default", "template": "D"}, {"name": "tools", "template": "T"}]
    directory = write_directory(tmp_path, chat_template=named)
    assert load_tokenizer(directory).apply_chat_template(USER, tokenize=False) == "D"
    (directory / "chat_template.jinja").write_text("J")
    assert load_tokenizer(directory).apply_chat_template(USER, tokenize=False) == "J"


def test_what_is_refused(tmp_path: Path) -> None:
    directory = write_directory(tmp_path)
    with pytest.raises(ConfigError, match="chat_template="):
        load_tokenizer(directory).apply_chat_template(USER)
    (directory / "tokenizer.json").write_text("{}")
    with pytest.raises(WeightsError, match=r"tokenizer\.json"):
        load_tokenizer(directory)
    (directory / "tokenizer.json").unlink()
    with pytest.raises(ModelNotFoundError, match="skip_tokenizer_init"):
        load_tokenizer(directory)
    with pytest.raises(ConfigError, match="exotic"):
        backend_from_gguf(byte_level_metadata("exotic"))
    with pytest.raises(ConfigError, match="bert"):
        backend_from_gguf({"tokenizer.ggml.model": "bert"})


@pytest.mark.model
def test_smollm2_round_trips_tricky_text(smollm2_path: Path) -> None:
    tokenizer = load_tokenizer(smollm2_path)
    text = "na\u00efve  caf\u00e9\n\n\t\u65e5\u672c\u8a9e \U0001f642 $1,299.99 don't <|im_end|> x"
    assert tokenizer.decode(tokenizer.encode(text), skip_special_tokens=False) == text
    assert tokenizer.vocab_size == 49152 and tokenizer.eos_token_ids == (2,)
