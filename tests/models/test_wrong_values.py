"""Values that no checkpoint should have: the message names file, field, value and expectation."""

import json
import re
import struct
from pathlib import Path
from typing import Any

import pytest

from jax_engine.errors import ConfigError, JaxEngineError, OutOfMemoryError, WeightsError
from jax_engine.models.model_loader import load_model, open_model
from jax_engine.models.registry import config_from_hf
from tests.golden import tiny_checkpoints as tiny
from tests.models.checkpoints import write_checkpoint
from tests.models.test_gguf import write_gguf

CONFIG = tiny.CONFIGS["plain"]
NAN, INF = float("nan"), float("inf")
LINEAR = {"rope_type": "linear", "factor": 2}
MISTRAL = {"architectures": ["MistralForCausalLM"]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_hidden_layers": None}, "num_hidden_layers must be an integer, got None."),
        ({"num_hidden_layers": True}, "num_hidden_layers must be an integer, got True."),
        ({"vocab_size": 2.0}, "vocab_size must be an integer, got 2.0."),
        ({"hidden_size": -1}, "hidden_size must be an integer >= 1, got -1."),
        ({"head_dim": 0}, "head_dim must be an integer >= 1, got 0."),
        ({"hidden_size": 10**400}, "hidden_size must be an integer <= 2147483647, got 1000"),
        ({"hidden_size": 10**5000}, "hidden_size must be an integer <= 2147483647, got a int"),
        ({"rms_norm_eps": None}, "rms_norm_eps must be a number, got None."),
        ({"rms_norm_eps": "1e-5"}, "rms_norm_eps must be a number, got '1e-5'."),
        ({"rms_norm_eps": NAN}, "rms_norm_eps must be a number >= 0.0, got nan."),
        ({"rms_norm_eps": -1}, "rms_norm_eps must be a number >= 0.0, got -1."),
        ({"rope_theta": None}, "rope_theta must be a number, got None."),
        ({"rope_theta": INF}, "rope_theta must be a number <= 1e+30, got inf."),
        ({"rope_theta": 10**400}, "rope_theta must be in range, got 1000"),
        ({"rope_scaling": []}, "rope_scaling must be a dictionary or null, got []."),
        (
            {"rope_scaling": LINEAR | {"factor": "2"}},
            "rope_scaling.factor must be a number or null, got '2'.",
        ),
        (
            {"rope_parameters": LINEAR | {"factor": -2}},
            "rope_parameters.factor must be a number > 0.0, got -2.",
        ),
        ({"rope_scaling": {"rope_type": 5}}, "rope_scaling.rope_type must be a string or null"),
        ({"eos_token_id": "</s>"}, "eos_token_id must be an integer or a list or null, got '</s>'"),
        ({"eos_token_id": 2.0}, "eos_token_id must be an integer or a list or null, got 2.0."),
        ({"eos_token_id": [None]}, "eos_token_id[0] must be an integer, got None."),
        ({"eos_token_id": [2, -1]}, "eos_token_id[1] must be an integer >= 0, got -1."),
        ({"bos_token_id": []}, "bos_token_id must be an integer or null, got []."),
        ({"tie_word_embeddings": "no"}, "tie_word_embeddings must be true or false or null"),
        ({"hidden_act": None}, "hidden_act must be a string, got None."),
        ({"architectures": "LlamaForCausalLM"}, "architectures must be a list, got 'Llama"),
        ({"architectures": {"a": 1}}, "architectures must be a list, got {'a': 1}."),
        ({"architectures": [5]}, "architectures[0] must be a string, got 5."),
        (MISTRAL | {"sliding_window": "x"}, "sliding_window must be an integer or null, got 'x'."),
        (MISTRAL | {"sliding_window": 0}, "sliding_window must be an integer >= 1, got 0."),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_config_json(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        config_from_hf(CONFIG | change)
    assert str(error.value).startswith(f"config.json: {message}")


def test_a_missing_size() -> None:
    with pytest.raises(ConfigError, match=r"config\.json: vocab_size is missing"):
        config_from_hf({key: value for key, value in CONFIG.items() if key != "vocab_size"})


def test_what_real_checkpoints_contain() -> None:
    """Integers for floats, nulls, lists of ids, fields that nobody here reads."""
    config = config_from_hf(
        CONFIG
        | {"rope_theta": 10000, "rms_norm_eps": 1e-6, "head_dim": None, "eos_token_id": [2, 3]}
        | {"num_key_value_heads": None, "rope_scaling": None, "bos_token_id": None, "dtype": 5}
    )
    (attention,) = config.spec.attentions
    (rope,) = attention.ropes
    assert (attention.num_kv_heads, attention.head_dim, rope.theta) == (4, 8, 10000.0)
    assert (config.eos_token_ids, config.bos_token_id) == ((2, 3), None)
    assert type(rope.theta) is float
    of_llama = config_from_hf(CONFIG | {"sliding_window": "not Llama's"})
    assert of_llama.spec.attentions[0].window is None
    widened = config_from_hf(CONFIG | {"rope_scaling": LINEAR | {"attention_factor": None}})
    assert widened.spec.attentions[0].ropes[0].factor == 2.0


def test_a_context_beyond_every_index() -> None:
    change = {"max_position_embeddings": 2**31 - 1, "rope_scaling": LINEAR | {"factor": 1e6}}
    assert config_from_hf(CONFIG | change).max_context_len == 2**31 - 1


@pytest.mark.parametrize(
    "text",
    ["", "[]", "5", "{", '{"a": NaN', "[" * 100_000, '{"a":' * 100_000, '"\\ud800"', "\0"],
    ids=lambda text: text[:10],
)
@pytest.mark.parametrize("name", ["config.json", "generation_config.json"])
def test_json_that_is_none(name: str, text: str, tmp_path: Path) -> None:
    directory = write_checkpoint(tmp_path, CONFIG)
    (directory / name).write_text(text)
    with pytest.raises(WeightsError) as error:
        open_model(str(directory))
    assert str(directory / name) in str(error.value)


def test_a_mark_of_utf_8_at_the_beginning_is_no_fault(tmp_path: Path) -> None:
    """Some editors write it."""
    directory = write_checkpoint(tmp_path, CONFIG)
    text = (directory / "config.json").read_bytes()
    (directory / "config.json").write_bytes(b"\xef\xbb\xbf" + text)
    assert open_model(str(directory)).abstract.config.vocab_size == CONFIG["vocab_size"]


def test_generation_config(tmp_path: Path) -> None:
    directory = write_checkpoint(tmp_path, CONFIG)
    (directory / "generation_config.json").write_text('{"eos_token_id": "x", "top_p": "y"}')
    with pytest.raises(ConfigError, match=r"generation_config\.json: eos_token_id must be .*'x'"):
        open_model(str(directory))
    (directory / "config.json").write_bytes(b'{"a": "\xff"}')
    with pytest.raises(WeightsError, match=r"config\.json is unreadable.*utf-8"):
        open_model(str(directory))


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ({}, "weight_map is missing"),
        ({"weight_map": []}, "weight_map must be a dictionary, got []"),
        ({"weight_map": {"a": 5}}, "must be a string, got {'a': 5}"),
        ({"weight_map": {"a": "../model.safetensors"}}, "got '../model.safetensors'"),
        ({"weight_map": {"a": "/etc/passwd"}}, "got '/etc/passwd'"),
        ({"weight_map": {"a": "a\0b"}}, "got 'a\\x00b'"),
        ({"weight_map": {"a": ""}}, "got ''"),
        ({"weight_map": {}}, "got {}"),
    ],
)
def test_index_of_shards(index: Any, message: str, tmp_path: Path) -> None:
    directory = write_checkpoint(tmp_path, CONFIG, num_shards=2)
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(WeightsError) as error:
        load_model(str(directory))
    assert message in str(error.value) and "index.json" in str(error.value)


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ({"general.alignment": "x"}, "general.alignment must be an integer, got 'x'."),
        ({"general.alignment": 0}, "general.alignment must be an integer >= 1, got 0."),
        ({"llama.attention.head_count": 0}, "head_count must be an integer >= 1, got 0."),
        ({"llama.attention.head_count": "8"}, "head_count must be an integer, got '8'."),
        ({"llama.block_count": 2.0}, "llama.block_count must be an integer, got 2.0."),
        ({"llama.rope.freq_base": "x"}, "llama.rope.freq_base must be a number, got 'x'."),
        ({"llama.rope.scaling.type": 5}, "scaling.type must be a string or null, got 5."),
        (
            {"llama.attention.sliding_window": "x"},
            "sliding_window must be an integer or null, got 'x'.",
        ),
        ({"tokenizer.ggml.eos_token_id": "x"}, "eos_token_id must be an integer or null, got 'x'."),
    ],
)
def test_gguf_metadata(extra: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", extra=extra)
    with pytest.raises(JaxEngineError) as error:
        load_model(str(path))
    assert message in str(error.value) and str(path) in str(error.value)


STRING, ARRAY, UINT8 = 8, 9, 0


def gguf_header(value: bytes, *, num_tensors: int = 0, num_keys: int = 1) -> bytes:
    """A header with one key, whose type and value are given as bytes."""
    start = b"GGUF" + struct.pack("<IQQ", 3, num_tensors, num_keys)
    return start + struct.pack("<Q", 1) + b"k" + value + bytes(64)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (gguf_header(b"", num_tensors=2**63), "9223372036854775808 tensors"),
        (gguf_header(b"", num_keys=2**40), "1099511627776 metadata keys"),
        (gguf_header(struct.pack("<IQ", STRING, 2**62)), "a string ends at byte 4611686018"),
        (gguf_header(struct.pack("<IIQ", ARRAY, UINT8, 2**62)), "an array of 46116860184"),
        (gguf_header(struct.pack("<IIQ", ARRAY, STRING, 2**20)), "an array has 1048576 items"),
        (gguf_header(struct.pack("<I", ARRAY) + struct.pack("<IQ", ARRAY, 1) * 9**5), "5 deep"),
        (gguf_header(struct.pack("<I", 77)), "unknown value type 77"),
        (gguf_header(struct.pack("<IQ", STRING, 2) + b"\xff\xff"), "utf-8"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_gguf_headers(header: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(header)
    with pytest.raises(WeightsError) as error:
        load_model(str(path))
    assert message in str(error.value) and str(path) in str(error.value)


def test_counts_that_no_file_could_hold(tmp_path: Path) -> None:
    """Ten million layers: found by looking at the tensors, or at the memory, before any is made."""
    layers = {"num_hidden_layers": 10**7}
    directory = write_checkpoint(tmp_path / "hf", CONFIG)
    (directory / "config.json").write_text(json.dumps(CONFIG | layers))
    with pytest.raises(WeightsError, match="has 10000000 layers, but there are tensors of 2"):
        load_model(str(directory))
    with pytest.raises(OutOfMemoryError, match=r"GiB for .* in 10000000 layers.*RAM") as error:
        load_model(str(directory), load_format="dummy")
    asked = re.search(r"([\d.]+) GiB for (\d+) parameters", str(error.value))
    assert asked is not None
    assert float(asked[1]) >= int(asked[2]) * 4 / 2**30 - 0.01  # panels are padded
    path = write_gguf(tmp_path / "m.gguf", extra={"llama.block_count": 10**7})
    with pytest.raises(WeightsError, match="has 10000000 layers, but there are tensors of 2"):
        load_model(str(path))
    (directory / "config.json").write_text(json.dumps(CONFIG | {"vocab_size": 2**31 - 1}))
    with pytest.raises(WeightsError, match=r"expected shape \(2147483647, 32\)"):
        load_model(str(directory))
    with pytest.raises(OutOfMemoryError, match=r"512\.\d+ GiB for"):
        load_model(str(directory), load_format="dummy")
