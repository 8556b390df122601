"""Directories in Hugging Face layout: shards, dtypes, configurations, and what is refused."""

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from flax import nnx

from cpu_kernels.linear.panels import take_rows
from jax_engine.errors import ConfigError, ModelNotFoundError, WeightsError
from jax_engine.models.model_loader import LoadedModel, load_model
from jax_engine.models.registry import config_from_hf
from jax_engine.weights.format import VALUES, Weight
from jax_engine.weights.panels import PANELS
from tests.golden import tiny_checkpoints as tiny
from tests.models.checkpoints import write_checkpoint

CONFIG = tiny.CONFIGS["plain"]


def leaves(model: LoadedModel) -> list[np.ndarray]:
    """All arrays of a model, matrices [*stack, out, in]."""
    return [_unpacked(variable) for _, variable in nnx.to_flat_state(model.params)]


def _unpacked(variable: nnx.Variable) -> np.ndarray:
    if not isinstance(variable, Weight):
        return np.asarray(variable.get_value())
    if VALUES in variable.arrays:
        return np.asarray(variable.arrays[VALUES])
    held, parts = variable.arrays[PANELS], 2 if variable.matrix.gated else 1
    *stack, rows, size = variable.matrix.shape
    layers = held.reshape(-1, *held.shape[-3:])
    taken = [
        np.asarray(take_rows(layer[part::parts], jnp.arange(rows // parts), size))
        for layer in layers
        for part in range(parts)
    ]
    return np.stack(taken).reshape(*stack, rows, size)


@pytest.mark.slow
def test_shards_are_the_same_model_as_one_file(tmp_path: Path) -> None:
    one = load_model(str(write_checkpoint(tmp_path / "one", CONFIG)))
    many = load_model(str(write_checkpoint(tmp_path / "many", CONFIG, num_shards=3)))
    for a, b in zip(leaves(one), leaves(many), strict=True):
        np.testing.assert_array_equal(a, b)
    assert one.num_bytes == sum(leaf.nbytes for leaf in jax.tree.leaves(one.params))
    assert one.num_parameters == sum(leaf.size for leaf in leaves(one))


@pytest.mark.parametrize("stored", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("wanted", [jnp.float32, jnp.bfloat16])
def test_dtypes(stored: Any, wanted: Any, tmp_path: Path) -> None:
    tensors = {name: w.astype(stored) for name, w in tiny.weights(CONFIG).items()}
    model = load_model(str(write_checkpoint(tmp_path, CONFIG, tensors)), dtype=wanted)
    down = tensors["model.layers.1.mlp.down_proj.weight"].astype(wanted)
    norms = [leaf for leaf in leaves(model) if leaf.shape in [(2, 32), (32,)]]
    assert len(norms) == 3 and all(norm.dtype == jnp.float32 for norm in norms)
    matrices = [leaf for leaf in leaves(model) if leaf.shape not in [(2, 32), (32,)]]
    assert all(matrix.dtype == wanted for matrix in matrices)
    stacks = [leaf for leaf in leaves(model) if leaf.ndim == 3]
    assert any(s.shape[1:] == down.shape and (s[1] == down).all() for s in stacks)


def test_a_head_stored_twice_and_old_frequencies_are_ignored(tmp_path: Path) -> None:
    config = tiny.CONFIGS["tied"]
    tensors = tiny.weights(config)
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].copy()
    tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = np.ones(4, np.float32)
    load_model(str(write_checkpoint(tmp_path, config, tensors)))


def test_what_is_refused(tmp_path: Path) -> None:
    tensors = tiny.weights(CONFIG)
    name = "model.layers.1.self_attn.k_proj.weight"
    lacking = {key: w for key, w in tensors.items() if key != name}
    with pytest.raises(WeightsError, match=f"1 of 21 tensors are missing, {name}"):
        load_model(str(write_checkpoint(tmp_path / "a", CONFIG, lacking)))
    wrong = tensors | {name: np.zeros((16, 31), np.float32)}
    with pytest.raises(WeightsError, match=rf"model\.safetensors, .*{name}.*\(16, 32\).*31"):
        load_model(str(write_checkpoint(tmp_path / "b", CONFIG, wrong)))
    biased = tensors | {"model.layers.0.self_attn.q_proj.bias": np.zeros(32, np.float32)}
    with pytest.raises(WeightsError, match=r"q_proj\.bias"):
        load_model(str(write_checkpoint(tmp_path / "c", CONFIG, biased)))


def test_damaged_files(tmp_path: Path) -> None:
    directory = write_checkpoint(tmp_path, CONFIG)
    file = directory / "model.safetensors"
    whole = file.read_bytes()
    for length in (0, 5, 200, len(whole) - 1):
        file.write_bytes(whole[:length])
        with pytest.raises(WeightsError, match=rf"model\.safetensors \({length} bytes\)"):
            load_model(str(directory))
    file.unlink()
    with pytest.raises(WeightsError, match="has no"):
        load_model(str(directory))
    sharded = write_checkpoint(tmp_path / "shards", CONFIG, num_shards=2)
    (sharded / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(WeightsError, match="model-00002-of-00002"):
        load_model(str(sharded))
    (sharded / "model.safetensors.index.json").write_text("[]")
    with pytest.raises(WeightsError, match=r"index\.json must hold a JSON object"):
        load_model(str(sharded))
    (sharded / "config.json").write_text("{")
    with pytest.raises(WeightsError, match=r"config\.json"):
        load_model(str(sharded))


def test_dummy_weights_need_no_files_and_repeat(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    options: dict[str, Any] = {"load_format": "dummy"}
    first, again = (load_model(str(tmp_path), seed=3, **options) for _ in range(2))
    other = load_model(str(tmp_path), seed=4, **options)
    narrow = load_model(str(tmp_path), seed=3, dtype=jnp.bfloat16, **options)
    for a, b, c, d in zip(leaves(first), leaves(again), leaves(other), leaves(narrow), strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(a.astype(d.dtype), d)
        assert (a != c).mean() > 0.9
        center = 1.0 if a.mean() > 0.5 else 0.0
        assert 0.015 < (a - center).std() < 0.025
    norms = [leaf for leaf in leaves(first) if leaf.shape == (2, 32)]
    assert len(norms) == 2 and (norms[0] != norms[1]).mean() > 0.9


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"architectures": ["LlamoForCausalLM"]}, "LlamoForCausalLM.*nearest name is Llama"),
        ({"architectures": []}, "architectures"),
        ({"num_hidden_layers": None}, "num_hidden_layers"),
        ({"num_hidden_layers": 0}, "num_hidden_layers must be an integer >= 1, got 0"),
        ({"hidden_act": "quick_gelu"}, "hidden_act 'quick_gelu' is not supported; known: silu"),
        ({"num_key_value_heads": 3}, "multiple"),
        ({"head_dim": 7}, "even"),
        ({"rope_scaling": {"rope_type": "spiral", "factor": 2.0}}, "spiral.*yarn"),
        ({"rope_scaling": {"rope_type": "longrope", "factor": 2.0}}, "longrope.*original"),
        ({"rope_scaling": {"type": "linear"}}, "factor"),
    ],
)
def test_configurations_that_are_refused(change: dict[str, Any], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        config_from_hf(CONFIG | change)


def test_both_spellings_of_rope() -> None:
    old = CONFIG | {"rope_scaling": {"type": "linear", "factor": 4}}
    new = {key: value for key, value in CONFIG.items() if key != "rope_theta"}
    new["rope_parameters"] = {"rope_type": "linear", "rope_theta": 500.0, "factor": 4.0}
    assert config_from_hf(old) == config_from_hf(new)
    assert config_from_hf(old).max_context_len == 256


def test_mistral_defaults() -> None:
    bare = {"architectures": ["MistralForCausalLM"], "num_attention_heads": 8, "head_dim": 4}
    config = config_from_hf({k: v for k, v in CONFIG.items() if k != "num_key_value_heads"} | bare)
    (attention,) = config.spec.attentions
    assert (attention.window, attention.num_kv_heads) == (4096, 8)
    unbounded = config_from_hf(CONFIG | bare | {"sliding_window": None})
    assert unbounded.spec.attentions[0].window is None


def test_end_of_sequence_ids_of_generation_config(tmp_path: Path) -> None:
    directory = write_checkpoint(tmp_path, CONFIG)
    (directory / "generation_config.json").write_text('{"eos_token_id": [2, 9]}')
    assert load_model(str(directory), load_format="dummy").config.eos_token_ids == (2, 9)


def test_arguments_that_are_refused(tmp_path: Path) -> None:
    directory = str(write_checkpoint(tmp_path, CONFIG))
    with pytest.raises(ConfigError, match=r"max_model_len.*64.*65"):
        load_model(directory, max_model_len=65)
    with pytest.raises(ConfigError, match="load_format='gguf'"):
        load_model(directory, load_format="gguf")
    with pytest.raises(
        ConfigError, match="auto, hf, safetensors, pt, mistral, sharded_state, gguf, dummy"
    ):
        load_model(directory, load_format="pickle")  # type: ignore[arg-type]
    with pytest.raises(ModelNotFoundError, match="no such file or directory"):
        load_model("/nowhere/at all")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ModelNotFoundError, match=r"no config\.json"):
        load_model(str(tmp_path / "empty"))
