"""Mistral's own format: params.json and consolidated files are the same model as their twin."""

import json
from pathlib import Path
from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from jax_engine.errors import ConfigError, ModelNotFoundError, WeightsError
from jax_engine.models.checkpoints.checkpoint import tensor_source
from jax_engine.models.checkpoints.mistral_params import fields_of_params
from jax_engine.models.model_loader import load_model, open_model
from jax_engine.models.registry import config_from_hf
from jax_engine.quantize.shards import write_tensors
from tests.golden.families.checkpoints import cases, goldens, tensors_of
from tests.golden.families.parity import answer, difference, write
from tests.models.mistral_files import own_tensors, params_of, write_mistral

CASES = cases()
GOLDENS = goldens()
YARN = {"factor": 4.0, "original_max_position_embeddings": 16, "beta": 32, "alpha": 1}
GROWTH = {"original_max_position_embeddings": 16, "beta": 0.3}
OF_CASE: dict[str, dict[str, Any]] = {
    "mistral": {},
    "mistral_all": {},
    "mixtral": {},
    "mixtral_all": {},
    "ministral3": {"yarn": YARN | {"apply_scale": False}, "llama_4_scaling": GROWTH},
}


def own(case: str, **changes: Any) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """params.json and the tensors of a case."""
    config = CASES[case]["config"]
    params = params_of(config, **(OF_CASE.get(case, {}) | changes))
    tied = config["tie_word_embeddings"]
    return params, own_tensors(tensors_of(CASES[case]), params["head_dim"], tied=tied)


def weights_of(path: Path, **options: Any) -> list[np.ndarray]:
    return [np.asarray(one) for one in jax.tree.leaves(load_model(str(path), **options).params)]


@pytest.mark.parametrize("case", OF_CASE)
def test_i39_logits_and_tokens_are_those_of_transformers(case: str, tmp_path: Path) -> None:
    found, tokens = answer(write_mistral(tmp_path, *own(case)))
    assert tokens == GOLDENS[f"{case}.tokens"].tolist()
    assert difference(found, GOLDENS[f"{case}.logits"]) < 1e-4


@pytest.mark.parametrize("case", ["mistral", "mixtral"])
def test_weights_are_those_of_the_twin_in_every_kind_of_file(case: str, tmp_path: Path) -> None:
    (tmp_path / "twin").mkdir()
    write(CASES[case], tmp_path / "twin")
    expected = weights_of(tmp_path / "twin")
    for kind in ("one", "shards", "pickle"):
        found = weights_of(write_mistral(tmp_path / kind, *own(case), kind))
        assert all(map(np.array_equal, found, expected)), kind


def test_matrices_of_all_experts_as_one(tmp_path: Path) -> None:
    """The first Mixtral's files: [E * F, width], of the second matrix turned."""
    (tmp_path / "twin").mkdir()
    write(CASES["mixtral"], tmp_path / "twin")
    params, tensors = own("mixtral")
    count = params["moe"]["num_experts"]
    for layer in range(params["n_layers"]):
        start, other = f"layers.{layer}.feed_forward", f"layers.{layer}.block_sparse_moe"
        tensors[f"{other}.gate.weight"] = tensors.pop(f"{start}.gate.weight")
        for matrix in ("w1", "w2", "w3"):
            each = [tensors.pop(f"{start}.experts.{e}.{matrix}.weight") for e in range(count)]
            turned = [one.T if matrix == "w2" else one for one in each]
            tensors[f"{other}.{matrix}"] = np.ascontiguousarray(np.concatenate(turned))
    found = weights_of(write_mistral(tmp_path / "own", params, tensors))
    assert all(map(np.array_equal, found, weights_of(tmp_path / "twin")))
    tensors["layers.0.block_sparse_moe.w1"] = np.ones((7, 32), np.float32)
    path = write_mistral(tmp_path / "own", params, tensors)
    with pytest.raises(WeightsError, match=r"layers\.0\.block_sparse_moe\.w1: 7 rows .*5 experts"):
        open_model(str(path))


def fp8_parts(tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The tensors with the matrices of layers in FP8, as Mistral's package writes them."""
    found = dict[str, np.ndarray]()
    for name, one in tensors.items():
        if one.ndim < 2 or "layers" not in name:
            found[name] = one
            continue
        scale = np.float32(abs(one).max() / 448)
        found[name] = (one / scale).astype(ml_dtypes.float8_e4m3fn)
        found[name.replace("weight", "qscale_weight")] = np.array(scale)
        found[name.replace("weight", "qscale_act")] = np.array(1, np.float32)
    return found


@pytest.mark.parametrize("scheme", [None, "NO_SCALES"])
def test_fp8_is_read_as_codes(scheme: str | None, tmp_path: Path) -> None:
    quantization = {"qformat_weight": "fp8_e4m3", "qscheme_act": scheme}
    params, tensors = own("mistral", quantization=quantization)
    coded = fp8_parts(tensors)
    write_mistral(tmp_path, params, {})
    write_tensors(tmp_path / "consolidated.safetensors", coded)
    source = tensor_source(tmp_path)
    name = "model.layers.1.self_attn.q_proj.weight"
    out = np.empty(source.shape(name), np.float32)
    source.read_into(name, out)
    expected = tensors_of(CASES["mistral"])[name]
    assert abs(out - expected).max() < 0.04 * abs(expected).max()
    load_model(str(tmp_path))


def spec(**changes: Any) -> Any:
    params = params_of(CASES["mistral"]["config"], **changes)
    return config_from_hf(fields_of_params(params)).spec


def test_what_params_json_leaves_out() -> None:
    """Mistral's own defaults: a base of RoPE, 128,000 positions, as many KV heads as heads."""
    plain = spec(rope_theta=None, max_position_embeddings=None, n_kv_heads=None, head_dim=None)
    assert plain.max_context_len == 128_000
    attention = plain.attentions[0]
    assert (attention.num_kv_heads, attention.head_dim, attention.window) == (4, 8, 6)
    assert attention.rope.theta == 10_000
    without = spec(rope_theta=None, sliding_window=None).attentions[0]
    assert (without.rope.theta, without.window) == (1_000_000, None)
    assert spec(max_seq_len=32).max_context_len == 32
    assert spec(max_seq_len=320).max_context_len == 64


def test_a_window_in_some_layers() -> None:
    (attention,) = spec(n_layers=4, sliding_window=[6, None]).attentions
    assert attention.window == (6, None, 6, None)
    assert spec(sliding_window=[6]).attentions[0].window == 6
    assert spec(sliding_window=[None]).attentions[0].window is None


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"dim": None}, "params.json: dim is missing"),
    ({"hidden_dim": None}, "params.json: hidden_dim is missing"),
    ({"n_layers": 0}, r"params\.json: n_layers must be"),
    ({"vision_encoder": {"hidden_size": 1024}}, "vision_encoder .* only text models"),
    ({"multimodal": {"whisper_model_args": {}}}, "multimodal .* only text models"),
    ({"qk_nope_head_dim": 128}, "qk_nope_head_dim 128 is not supported: latent attention"),
    ({"model_type": "mamba"}, "model_type must be"),
    ({"activation": "tanh"}, "hidden_act 'tanh' is not supported"),
    ({"sliding_window": [6, 7, None]}, r"sliding_window \[6, 7, None\] is not supported"),
    ({"sliding_window": [6, None]}, r"sliding_window \[6, None\] .* of the 3 layers"),
    ({"sliding_window": []}, r"sliding_window \[\] is not supported"),
    ({"sliding_window": "long"}, "sliding_window must be"),
    ({"moe": {"num_experts": 4}}, r"moe\.num_experts_per_tok is missing"),
    ({"moe": {"num_experts": 4, "num_experts_per_tok": 2, "num_shared_experts": 1}},
     r"moe\.num_shared_experts 1 is not supported"),
    ({"yarn": YARN | {"gamma": 3}}, "yarn must be|unknown field"),
    ({"yarn": YARN, "llama_4_scaling": GROWTH | {"original_max_position_embeddings": 8}},
     "llama_4_scaling.* 8 is not supported; known: yarn's, 16"),
    ({"quantization": {"qformat_weight": "int4"}}, "quantization .*int4.* is not supported"),
    ({"quantization": {"qformat_weight": "fp8_e4m3", "qscheme_act": "ROW"}},
     "qscheme_act 'ROW' is not supported"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "said"), REFUSED)
def test_what_is_not_computed_is_refused_by_field(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        spec(**changes)


def test_both_formats_side_by_side(tmp_path: Path) -> None:
    """As vLLM: Mistral's counts if params.json and consolidated*.safetensors are there."""
    write(CASES["mistral"], tmp_path)
    params, tensors = own("mistral")
    params.pop("max_position_embeddings")
    halved = {name: one / 2 for name, one in tensors.items()}
    first = weights_of(tmp_path)
    save_file(halved, tmp_path / "consolidated.safetensors")
    assert all(map(np.array_equal, weights_of(tmp_path), first))  # without params.json
    (tmp_path / "params.json").write_text(json.dumps(params))
    auto = weights_of(tmp_path)
    assert all(map(np.array_equal, auto, [one / 2 for one in first]))
    assert all(map(np.array_equal, weights_of(tmp_path, load_format="mistral"), auto))
    assert all(map(np.array_equal, weights_of(tmp_path, load_format="safetensors"), first))
    assert all(map(np.array_equal, weights_of(tmp_path, load_format="hf"), first))
    assert open_model(str(tmp_path)).abstract.config.max_context_len == 64  # config.json's
    (tmp_path / "params.json").write_text(json.dumps(params | {"max_position_embeddings": 32}))
    lengths = {
        kind: open_model(str(tmp_path), config_format=kind).abstract.config.max_context_len
        for kind in ("auto", "hf", "mistral")
    }
    assert lengths == {"auto": 32, "hf": 64, "mistral": 32}


def test_files_that_are_missing_are_named(tmp_path: Path) -> None:
    params, tensors = own("mistral")
    with pytest.raises(ModelNotFoundError, match=r"no config\.json"):
        open_model(str(tmp_path))
    (tmp_path / "params.json").write_text(json.dumps(params))
    with pytest.raises(WeightsError, match=r"no \*\.safetensors"):
        open_model(str(tmp_path))
    write_mistral(tmp_path, params, tensors)
    (tmp_path / "params.json").unlink()
    (tmp_path / "config.json").write_text(json.dumps(CASES["mistral"]["config"]))
    with pytest.raises(WeightsError, match=r"only consolidated\.safetensors .*params\.json"):
        open_model(str(tmp_path))
    with pytest.raises(WeightsError, match=r"params\.json is unreadable"):
        open_model(str(tmp_path), config_format="mistral")
    assert weights_of(tmp_path, load_format="mistral")
    tensors["layers.0.attention.lora.weight"] = np.ones(3, np.float32)
    write_mistral(tmp_path, params, tensors)
    with pytest.raises(WeightsError, match=r"layers\.0\.attention\.lora"):
        open_model(str(tmp_path))
