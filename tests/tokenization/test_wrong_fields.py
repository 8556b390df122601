"""Tokenizer files with fields of the wrong type, length or range: what the messages say."""

import json
from pathlib import Path
from typing import Any

import pytest

from jax_engine.errors import JaxEngineError, WeightsError
from jax_engine.tokenization.gguf_tokenizer import backend_from_gguf
from jax_engine.tokenization.tokenizer import load_tokenizer
from tests.tokenization.conftest import byte_level_metadata, sentencepiece_metadata
from tests.tokenization.test_tokenizer import write_directory


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("tokens", 5, "tokens must be a list, got 5."),
        ("tokens", [], "tokens must be a list of length >= 1, got []."),
        ("tokens", ["a", 5], "tokens[1] must be a string, got 5."),
        ("tokens", ["a" * 2000], "tokens[0] must be a string of length <= 1024, got 'aaa"),
        ("tokens", ["a"], "token_type must have an item for each of the 1 tokens, got 266."),
        ("token_type", ["x"], "token_type[0] must be an integer, got 'x'."),
        ("merges", None, "tokenizer.ggml.merges is missing."),
        ("merges", "h e", "merges must be a list or null, got 'h e'."),
        ("merges", ["he"], "merges[0] must be two parts with a space between, got 'he'."),
        ("merges", ["h e l"], "merges[0] must be two parts with a space between, got 'h e l'."),
        ("merges", [" h"], "merges[0] must be two parts with a space between, got ' h'."),
        ("merges", ["h "], "merges[0] must be two parts with a space between, got 'h '."),
        ("merges", ["h zz"], "its fields make no tokenizer: "),
        ("bos_token_id", 266, "bos_token_id must be below the number of tokens, 266, got 266."),
        ("bos_token_id", -1, "bos_token_id must be an integer >= 0, got -1."),
        ("eos_token_id", "</s>", "eos_token_id must be an integer or null, got '</s>'."),
        ("add_bos_token", "yes", "add_bos_token must be true or false or null, got 'yes'."),
        ("pre", ["gpt2"], "pre must be a string or null, got ['gpt2']."),
        ("model", ["gpt2"], "tokenizer.ggml.model ['gpt2'] is not supported; known: gpt2, llama."),
    ],
)
def test_byte_level_fields(field: str, value: Any, message: str) -> None:
    with pytest.raises(JaxEngineError) as error:
        backend_from_gguf(byte_level_metadata() | {f"tokenizer.ggml.{field}": value}, "m.gguf")
    assert message in str(error.value) and "m.gguf" in str(error.value)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("scores", None, "tokenizer.ggml.scores is missing."),
        ("scores", [0.5], "scores must have an item for each of the 271 tokens, got 1."),
        ("scores", ["x"], "scores[0] must be a number, got 'x'."),
        ("unknown_token_id", 10**6, "unknown_token_id must be below the number of tokens, 271"),
        ("add_space_prefix", 1, "add_space_prefix must be true or false, got 1."),
    ],
)
def test_sentencepiece_fields(field: str, value: Any, message: str) -> None:
    with pytest.raises(WeightsError) as error:
        backend_from_gguf(sentencepiece_metadata() | {f"tokenizer.ggml.{field}": value}, "m.gguf")
    assert message in str(error.value) and "m.gguf" in str(error.value)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"bos_token": 5}, "bos_token must be a string or a dictionary or null, got 5."),
        ({"eos_token": {"content": 5}}, "eos_token.content must be a string, got 5."),
        ({"eos_token": {}}, "eos_token.content is missing."),
        ({"chat_template": 5}, "chat_template must be a string or a list or null, got 5."),
        ({"chat_template": ["x"]}, "chat_template[0] must be a dictionary, got 'x'."),
        ({"chat_template": [{"name": "x"}]}, "chat_template[0].template is missing."),
        ({"unk_token": "\ud800"}, "surrogates not allowed"),
    ],
)
def test_tokenizer_config(config: dict[str, Any], message: str, tmp_path: Path) -> None:
    directory = write_directory(tmp_path, **config)
    with pytest.raises(WeightsError) as error:
        load_tokenizer(directory)
    assert message in str(error.value) and "tokenizer_config.json" in str(error.value)


@pytest.mark.parametrize("text", ["5", "[]", "[" * 100_000, "\0", '{"version": "1.0", "model": 5}'])
@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json"])
def test_files_that_are_no_tokenizer(name: str, text: str, tmp_path: Path) -> None:
    if name == "tokenizer_config.json" and text.startswith("{"):
        return  # a field that nobody reads
    directory = write_directory(tmp_path)
    (directory / name).write_text(text)
    with pytest.raises(WeightsError) as error:
        load_tokenizer(directory)
    assert str(directory / name) in str(error.value)


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer.model"])
def test_what_stands_in_the_place_of_a_file_is_named(name: str, tmp_path: Path) -> None:
    for content, end in (("<html>", "download the file again."), ("damaged", "[0-9]+.")):
        (tmp_path / name).write_text(content)
        with pytest.raises(WeightsError, match=f"{name} is no.*{end}$"):
            load_tokenizer(tmp_path)


def test_a_template_that_is_no_text(tmp_path: Path) -> None:
    directory = write_directory(tmp_path)
    (directory / "chat_template.jinja").write_bytes(b"{{ \xff }}")
    with pytest.raises(WeightsError, match=r"chat_template\.jinja is unreadable.*utf-8"):
        load_tokenizer(directory)


def test_lengths_of_training_do_not_cut_prompts(tmp_path: Path) -> None:
    directory = write_directory(tmp_path)
    file = directory / "tokenizer.json"
    whole = load_tokenizer(directory).encode("hello hello")
    raw = json.loads(file.read_text())
    raw["truncation"] = {
        "direction": "Right",
        "max_length": 2,
        "strategy": "LongestFirst",
        "stride": 0,
    }
    raw["padding"] = {
        "strategy": {"Fixed": 64}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0,
        "pad_type_id": 0, "pad_token": "<|end|>",
    }  # fmt: skip
    file.write_text(json.dumps(raw))
    assert len(whole) > 2
    assert load_tokenizer(directory).encode("hello hello") == whole
