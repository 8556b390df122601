"""What the user overrides counts, whichever of its names config.json has."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jax_engine.layers.rotary import inverse_frequencies
from jax_engine.model_spec import RopeConfig
from jax_engine.models.checkpoints.gguf.gguf_file import GgufFile
from jax_engine.models.checkpoints.gguf.gguf_source import config_from_gguf
from jax_engine.models.hf_fields import overridden
from jax_engine.models.registry import config_from_hf
from tests.golden import tiny_checkpoints as tiny
from tests.models.test_gguf import gguf_tensors, write_gguf

BARE = {key: value for key, value in tiny.CONFIGS["plain"].items() if not key.startswith("rope")}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 16}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
OLD_YARN = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
# The same base and scaling in each of the forms that config.json may have.
CONFIGS = {
    "scaling": BARE | {"rope_theta": 777.0, "rope_scaling": LLAMA3},
    "parameters": BARE | {"rope_parameters": LLAMA3 | {"rope_theta": 777.0}},
    "parameters and base": BARE | {"rope_theta": 777.0, "rope_parameters": LLAMA3},
    "both": BARE | {"rope_parameters": LLAMA3 | {"rope_theta": 777.0}, "rope_scaling": LLAMA3},
}
llama3 = RopeConfig(777.0, "llama3", 8.0, 16)
yarn = RopeConfig(777.0, "yarn", 4.0, 16)
linear = RopeConfig(777.0, "linear", 2.0)


def rope_of(config: dict[str, Any], overrides: Any) -> RopeConfig:
    (rope,) = config_from_hf(overridden(config, overrides)).spec.attentions[0].ropes
    return rope


def as_function(overrides: dict[str, Any]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda config: config | overrides


@pytest.mark.parametrize("form", CONFIGS)
@pytest.mark.parametrize("name", ["rope_scaling", "rope_parameters"])
@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (YARN, yarn),
        (OLD_YARN, yarn),
        ({"type": "linear", "factor": 2.0}, linear),
        ({"rope_type": "linear", "factor": 2.0, "rope_theta": 5.0}, RopeConfig(5.0, "linear", 2.0)),
        ({"rope_type": "default"}, RopeConfig(777.0)),
        (None, RopeConfig(777.0)),
        ({"factor": 32.0}, RopeConfig(777.0, "llama3", 32.0, 16)),
        ({"rope_type": "llama3", "factor": 32.0}, RopeConfig(777.0, "llama3", 32.0, 16)),
        ({"rope_theta": 5.0}, RopeConfig(5.0, "llama3", 8.0, 16)),
        ({}, llama3),
    ],
)
def test_a_scaling_under_either_name(
    form: str, name: str, value: Any, expected: RopeConfig
) -> None:
    config = CONFIGS[form]
    assert rope_of(config, None) == llama3
    assert rope_of(config, {name: value}) == expected
    if value is not None and "rope_type" in value:
        # A function's dictionary is whole. It names what it sees there.
        whole = value | {"rope_theta": value.get("rope_theta", 777.0)}
        whole |= {"original_max_position_embeddings": 16} if "llama3" in value.values() else {}
        assert rope_of(config, as_function({name: whole})) == expected


@pytest.mark.parametrize("form", CONFIGS)
def test_a_base_beside_the_scaling(form: str) -> None:
    for overrides in ({"rope_theta": 5.0}, as_function({"rope_theta": 5.0})):
        assert rope_of(CONFIGS[form], overrides) == RopeConfig(5.0, "llama3", 8.0, 16)
    both = {"rope_theta": 5.0, "rope_scaling": {"rope_type": "linear", "factor": 2.0}}
    assert rope_of(CONFIGS[form], both) == RopeConfig(5.0, "linear", 2.0)
    own = {"rope_theta": 5.0, "rope_parameters": {"rope_theta": 6.0}}
    assert rope_of(CONFIGS[form], own) == RopeConfig(6.0, "llama3", 8.0, 16)


def test_a_scaling_where_there_was_none() -> None:
    for config in (BARE | {"rope_theta": 777.0}, BARE | {"rope_parameters": {"rope_theta": 777.0}}):
        for name in ("rope_scaling", "rope_parameters"):
            assert rope_of(config, {name: OLD_YARN}) == yarn
            whole = OLD_YARN | {"rope_theta": 777.0}
            assert rope_of(config, as_function({name: whole})) == yarn
    null = BARE | {"rope_theta": 777.0, "rope_scaling": None}
    assert rope_of(null, {"rope_parameters": YARN}) == yarn


def test_a_function_may_move_a_scaling_to_its_other_name() -> None:
    def moved(config: dict[str, Any]) -> dict[str, Any]:
        config["rope_theta"] = config.pop("rope_parameters")["rope_theta"]
        return config | {"rope_scaling": OLD_YARN}

    assert rope_of(CONFIGS["parameters"], moved) == yarn

    def without(config: dict[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in config.items() if key != "rope_scaling"}

    assert rope_of(CONFIGS["scaling"], without) == RopeConfig(777.0)


GEMMA = {
    **{key: value for key, value in BARE.items() if key != "architectures"},
    "architectures": ["Gemma3ForCausalLM"], "num_hidden_layers": 2, "sliding_window": 8,
    "query_pre_attn_scalar": 8, "layer_types": ["sliding_attention", "full_attention"],
    "hidden_activation": "gelu_pytorch_tanh", "hidden_act": "gelu_pytorch_tanh",
}  # fmt: skip
GEMMAS = {
    "old": GEMMA | {"rope_theta": 900.0, "rope_local_base_freq": 30.0},
    "new": GEMMA
    | {
        "rope_parameters": {
            "full_attention": {"rope_type": "default", "rope_theta": 900.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 30.0},
        }
    },
}


@pytest.mark.parametrize("form", GEMMAS)
@pytest.mark.parametrize(
    ("overrides", "full", "sliding"),
    [
        (None, RopeConfig(900.0), RopeConfig(30.0)),
        (
            {"rope_scaling": {"rope_type": "linear", "factor": 2.0}},
            RopeConfig(900.0, "linear", 2.0),
            RopeConfig(30.0),
        ),
        ({"rope_theta": 5.0}, RopeConfig(5.0), RopeConfig(30.0)),
        ({"rope_local_base_freq": 5.0}, RopeConfig(900.0), RopeConfig(5.0)),
        (
            {
                "rope_parameters": {
                    "full_attention": {"rope_type": "linear", "factor": 2.0, "rope_theta": 7.0},
                    "sliding_attention": {"rope_type": "default", "rope_theta": 5.0},
                }
            },
            RopeConfig(7.0, "linear", 2.0),
            RopeConfig(5.0),
        ),
    ],
)
def test_layers_with_embeddings_of_their_own(
    form: str, overrides: Any, full: RopeConfig, sliding: RopeConfig
) -> None:
    for one in (overrides, None if overrides is None else as_function(overrides)):
        spec = config_from_hf(overridden(GEMMAS[form], one)).spec
        assert {rope for attention in spec.attentions for rope in attention.ropes} == {
            full,
            sliding,
        }


@pytest.mark.parametrize(
    ("theirs", "ours"), [("n_layer", "num_hidden_layers"), ("num_hidden_layers", "n_layers")]
)
def test_another_name_of_a_field(theirs: str, ours: str) -> None:
    config = {key: value for key, value in BARE.items() if key != "num_hidden_layers"}
    config |= {theirs: 2}
    for overrides in ({ours: 1}, as_function({ours: 1})):
        found = overridden(config, overrides)
        assert config_from_hf(found).spec.num_layers == 1 and theirs not in found
    assert config_from_hf(overridden(config, {"vocab_size": 40})).spec.num_layers == 2


def test_other_dictionaries_are_merged_and_the_file_s_stays() -> None:
    raw = {"a": {"b": 1, "c": {"d": 2}}, "e": [1]}
    assert overridden(raw, {"a": {"c": {"f": 3}}, "e": [2]}) == {
        "a": {"b": 1, "c": {"d": 2, "f": 3}},
        "e": [2],
    }
    assert raw == {"a": {"b": 1, "c": {"d": 2}}, "e": [1]}
    assert overridden(raw, None) is raw


SCALINGS: dict[str, tuple[dict[str, Any], float | None]] = {
    "none": ({}, None),
    "linear": ({"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0}, 4.0),
    "old linear": ({"llama.rope.scale_linear": 2.0}, 2.0),
}


@pytest.mark.parametrize("kind", SCALINGS)
def test_a_gguf_file_s_factors_beside_a_scaling(kind: str, tmp_path: Path) -> None:
    """Both divide the frequencies, as in llama.cpp."""
    extra, factor = SCALINGS[kind]
    divisors = np.array([1, 1, 2, 8], np.float32)
    tensors = gguf_tensors(tiny.CONFIGS["plain"]) | {"rope_freqs.weight": divisors}
    file = GgufFile(write_gguf(tmp_path / "m.gguf", tensors=tensors, extra=extra))
    config = config_from_gguf(file)
    (rope,) = config.spec.attentions[0].ropes
    plain = 1 / 500.0 ** (np.arange(0, 8, 2) / 8)
    found, scale = inverse_frequencies(rope, 8)
    np.testing.assert_allclose(found, plain / divisors / (factor or 1), rtol=1e-6)
    assert scale == 1.0
    assert config.max_context_len == int(64 * (factor or 1))


def test_a_gguf_file_s_factors_beside_yarn(tmp_path: Path) -> None:
    """YaRN blends what the divisors give with the same divided by its own factor."""
    extra = {
        "llama.rope.scaling.type": "yarn", "llama.rope.scaling.factor": 4.0,
        "llama.rope.scaling.original_context_length": 16,
    }  # fmt: skip
    divisors = np.array([1, 1, 2, 8], np.float32)
    tensors = gguf_tensors(tiny.CONFIGS["plain"]) | {"rope_freqs.weight": divisors}
    plain, both = (
        config_from_gguf(GgufFile(write_gguf(tmp_path / name, tensors=one, extra=extra)))
        for name, one in (("plain.gguf", None), ("both.gguf", tensors))
    )
    (alone,), (rope,) = (one.spec.attentions[0].ropes for one in (plain, both))
    assert (rope.type, rope.factor, alone.frequency_factors) == ("yarn", 4.0, None)
    found, scale = inverse_frequencies(rope, 8)
    expected, wanted = inverse_frequencies(alone, 8)
    np.testing.assert_allclose(found, expected / divisors, rtol=1e-6)
    assert scale == wanted > 1
