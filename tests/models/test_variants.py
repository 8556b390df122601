"""Variants of families: each is computed, or refused by field and value (issue 24's point 7)."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from jax_engine.errors import ConfigError, WeightsError
from jax_engine.models.model_loader import load_model, open_model
from jax_engine.models.registry import config_from_hf
from tests.golden.families.checkpoints import cases, tensors_of

CASES = cases()


def spec_of(case: str, **changes: Any) -> Any:
    """The specification of a case's config.json with other values; None removes a field."""
    config = CASES[case]["config"] | changes
    return config_from_hf({k: v for k, v in config.items() if v is not ...}).spec


def attention_of(case: str, **changes: Any) -> Any:
    return spec_of(case, **changes).attentions[0]


NESTED = {"full_attention": {"rope_type": "default", "rope_theta": 500.0}}
REFUSED: list[tuple[str, dict[str, Any], str]] = [
    # Whatever the family
    (
        "gpt2",
        {"is_encoder_decoder": True},
        "is_encoder_decoder True is not supported; known: False",
    ),
    ("qwen2", {"is_causal": False}, "is_causal False is not supported; known: True"),
    (
        "llama",
        {"layer_types": ["chunked_attention"] * 3},
        "layer_types 'chunked_attention' is not supported; known: 'sliding_attention'",
    ),
    (
        "mistral",
        {"layer_types": ["full_attention", "sliding_attention"]},
        "layer_types has 2 layers, num_hidden_layers 3",
    ),
    (
        "llama",
        {"rope_parameters": NESTED},
        "rope_parameters.full_attention is not supported for this architecture",
    ),
    (
        "qwen2",
        {"rope_parameters": {"rope_type": "default", "mrope_section": [2, 1, 1]}},
        r"rope_parameters.mrope_section \[2, 1, 1\] is not supported .* known: null",
    ),
    (
        "mistral",
        {"rope_parameters": {"rope_type": "default", "llama_4_scaling_beta": 0.1}},
        "rope_parameters.llama_4_scaling_beta 0.1 is not supported",
    ),
    (
        "qwen2",
        {"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}},
        "partial_rotary_factor 0.5 is not supported for this architecture; known: 1.0",
    ),
    ("llama", {"rope_parameters": ..., "rotary_pct": 0.25}, "rotary_pct 0.25 is not supported"),
    ("gptj", {"tie_word_embeddings": True}, "tie_word_embeddings must be false .* got true"),
    ("phi", {"tie_word_embeddings": True}, "tie_word_embeddings must be false .* got true"),
    # By family
    ("gptj", {"rotary_dim": None}, "rotary_dim must be an integer, got None"),
    ("gpt2", {"add_cross_attention": True}, "add_cross_attention True is not supported"),
    ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, "inverse_layer_idx True .* known: False"),
    ("gpt_bigcode", {"add_cross_attention": True}, "add_cross_attention True is not supported"),
    ("opt", {"do_layer_norm_before": False}, "do_layer_norm_before False .* known: True"),
    ("opt", {"word_embed_proj_dim": 16}, "word_embed_proj_dim 16 is not supported .* known: 32"),
    ("opt", {"_remove_final_layer_norm": True}, "remove_final_layer_norm True is not supported"),
    ("opt", {"layer_norm_elementwise_affine": False}, "elementwise_affine False is not supported"),
    (
        "bloom",
        {"apply_residual_connection_post_layernorm": True},
        "apply_residual_connection_post_layernorm True is not supported",
    ),
    (
        "falcon_7b",
        {"apply_residual_connection_post_layernorm": True},
        "apply_residual_connection_post_layernorm True is not supported",
    ),
    ("falcon_7b", {"num_ln_in_parallel_attn": 2}, "attn 2 is not supported .* known: None, 1"),
    ("falcon_40b", {"parallel_attn": False}, "parallel_attn False is not supported"),
    ("gemma", {"use_bidirectional_attention": True}, "bidirectional_attention True .* None, False"),
    ("gemma", {"hidden_act": "mish"}, "hidden_act 'mish' is not supported; known: silu"),
    ("gemma3", {"use_bidirectional_attention": True}, "bidirectional_attention True .*"),
    ("gemma3", {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping 50.0 .* known: None"),
    ("olmoe", {"clip_qkv": 8.0}, "clip_qkv 8.0 is not supported .* known: None"),
    ("olmoe", {"sliding_window": 8}, "sliding_window 8 is not supported"),
    ("gpt_oss", {"swiglu_limit": 5.0}, "swiglu_limit 5.0 is not supported .* known: 7.0"),
    ("ministral3", {"rope_parameters": ...}, "rope_parameters is missing"),
    ("exaone4", {"layer_types": ..., "sliding_window_pattern": "LXG"}, "sliding_window_pattern"),
    ("smollm3", {"no_rope_layers": [1, 0]}, "rope must be given for 5 layers, got 2"),
    ("mpt", {"logit_scale": "inv_sqrt_d_model"}, "logit_scale 'inv_sqrt_d_model' .* known: None"),
    ("mpt", {"embedding_fraction": 0.5}, "embedding_fraction 0.5 is not supported"),
    ("mpt", {"norm_type": "rmsnorm"}, "norm_type 'rmsnorm' .* 'layernorm'"),
    ("mpt", {"ffn_config": {"ffn_type": "mptglu"}}, "ffn_type 'mptglu' .* known: 'mptmlp'"),
    ("mpt", {"attn_config": {"rope": True}}, "rope True is not supported"),
    ("mpt", {"attn_config": {"prefix_lm": True}}, "prefix_lm True is not supported"),
    ("mpt", {"attn_config": {"attn_type": "linear"}}, "attn_type 'linear' .* known: 'multihead"),
    (
        "mpt",
        {"attn_config": {"alibi": False}, "learned_pos_emb": False},
        "learned_pos_emb False is not supported",
    ),
    (
        "llama",
        {"architectures": ["MiniCPMForCausalLM"], "num_experts": 8},
        "num_experts 8 is not supported for this architecture; known: 0",
    ),
    (
        "llama",
        {"architectures": ["MiniCPMForCausalLM"], "sparse_config": {"kernel_size": 32}},
        "sparse_config {'kernel_size': 32} is not supported",
    ),
    (
        "llama",
        {"architectures": ["InternLMForCausalLM"], "rotary": {"type": "spiral"}},
        "type 'spiral' is not supported .* known: 'origin', 'dynamic'",
    ),
]


@pytest.mark.parametrize(("case", "change", "message"), REFUSED)
def test_what_no_family_or_not_this_one_computes(
    case: str, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        spec_of(case, **change)


def test_mistral_with_layers_of_both_types() -> None:
    """As vLLM reads them, and as Mistral's own `params.json` gives a list of windows."""
    types = ["full_attention", "sliding_attention", "full_attention"]
    attention = attention_of("mistral", layer_types=types, sliding_window=5)
    assert attention.window == (None, 5, None)


def test_experts_with_windows() -> None:
    """Qwen 2's are on every other early layer, Qwen 3's on all, if there are any."""
    window: dict[str, Any] = {"use_sliding_window": True, "sliding_window": 5}
    early = attention_of("qwen2_moe", **window, layer_types=..., max_window_layers=2).window
    assert early == (5, None, None)
    assert {one.window for one in spec_of("qwen3_moe", **window).attentions} == {5}
    assert {one.window for one in spec_of("qwen3_moe", sliding_window=5).attentions} == {None}


def test_a_word_for_exaone_s_windows() -> None:
    """With a word the last layer sees all, with a number it follows the rule."""
    change = {"layer_types": ..., "sliding_window": 5}
    as_word = attention_of("exaone4", **change, sliding_window_pattern="LLG")
    assert as_word.window == (5, 5, None, 5, None)
    as_number = attention_of("exaone4", **change, sliding_window_pattern=3)
    assert as_number.window == (5, 5, None, 5, 5)


def test_mpt_s_own_variants_that_transformers_ignores() -> None:
    flat = attention_of("mpt", attn_config={"alibi_bias_max": 4})
    assert (flat.alibi_slopes[0], attention_of("mpt").alibi_slopes[0]) == (2**-1, 2**-2)
    assert spec_of("mpt", expansion_ratio=2).layers[0].mlp.width == 96
    assert attention_of("mpt", attn_config={"attn_type": "multiquery_attention"}).num_kv_heads == 1
    assert attention_of("mpt", attn_config={"kv_n_heads": 2}).num_kv_heads == 2


@pytest.mark.parametrize(
    ("case", "names"),
    [
        ("bloom", {"n_embed": "hidden_size", "num_attention_heads": "n_head"}),
        ("falcon_40b", {"n_layer": "num_hidden_layers", "n_head_kv": "num_kv_heads"}),
        ("gpt2", {"hidden_size": "n_embd", "max_position_embeddings": "n_positions"}),
        ("mpt", {"num_hidden_layers": "n_layers", "hidden_size": "d_model"}),
        ("mixtral", {"num_experts": "num_local_experts"}),
        ("stablelm", {"norm_eps": "layer_norm_eps"}),
    ],
)
def test_other_names_of_fields(case: str, names: dict[str, str]) -> None:
    config = CASES[case]["config"]
    other = {k: v for k, v in config.items() if k not in names.values()}
    other |= {new: config[old] for new, old in names.items()}
    assert config_from_hf(other) == config_from_hf(config)


def test_other_names_of_partial_rotation() -> None:
    for name in ("rope_pct", "partial_rotary_factor"):
        assert attention_of("stablelm", rope_parameters=..., **{name: 0.5}).rotary_dim == 4
    assert attention_of("gpt_neox", rope_parameters=..., rotary_pct=0.5).rotary_dim == 4


def test_falcon_s_first_name_of_its_new_architecture() -> None:
    old = {"model_type": "RefinedWeb", "new_decoder_architecture": ..., "num_kv_heads": 2}
    assert spec_of("falcon_40b", **old) == spec_of("falcon_40b")


def test_internlm_s_own_base() -> None:
    rotary = {"architectures": ["InternLMForCausalLM"], "rotary": {"type": "dynamic", "base": 70}}
    assert attention_of("llama", rope_parameters=..., **rotary).ropes[0].theta == 70


def test_gemma_s_old_word_for_its_activation() -> None:
    assert spec_of("gemma", hidden_act="gelu").layers[0].mlp.activation == "gelu_tanh"
    assert spec_of("gemma", hidden_act="relu").layers[0].mlp.activation == "relu"


def write(folder: Path, case: str, tensors: dict[str, np.ndarray]) -> str:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CASES[case]["config"]))
    save_file(tensors, folder / "model.safetensors")
    return str(folder)


@pytest.mark.parametrize("case", ["gpt2", "bloom", "opt", "gemma", "gpt_neox"])
def test_names_without_their_first_part(case: str, tmp_path: Path) -> None:
    """A decoder without its head is saved so."""
    tensors = tensors_of(CASES[case])
    bare = {k if k == "embed_out.weight" else k.partition(".")[2]: w for k, w in tensors.items()}
    whole = load_model(write(tmp_path / "whole", case, tensors))
    found = load_model(write(tmp_path / "bare", case, bare))
    for (path, one), (_, other) in zip(leaves(whole), leaves(found), strict=True):
        np.testing.assert_array_equal(one, other, err_msg=str(path))
    (name,) = [one for one in bare if one.endswith("1.input_layernorm.weight")] or [None]
    if name is not None:
        del bare[name]
        with pytest.raises(WeightsError, match=f"1 of .* missing, .*{name}"):
            load_model(write(tmp_path / "lacking", case, bare))


def leaves(model: Any) -> list[tuple[Any, np.ndarray]]:
    import jax

    found = jax.tree_util.tree_leaves_with_path(model.params)
    return [(path, np.asarray(leaf)) for path, leaf in found]


def test_layers_that_guess_further_tokens_are_not_needed(tmp_path: Path) -> None:
    """GLM-4.5 stores one behind the last; a second one is one too many."""
    tensors = tensors_of(CASES["glm4_moe"])
    assert CASES["glm4_moe"]["config"]["num_nextn_predict_layers"] == 1
    further = {"model.layers.3.eh_proj.weight": np.ones((32, 64), np.float32)}
    open_model(write(tmp_path, "glm4_moe", tensors | further))
    further = {"model.layers.4.eh_proj.weight": np.ones((32, 64), np.float32)}
    with pytest.raises(WeightsError, match=r"1 tensors have no place .*model\.layers\.4\.eh_proj"):
        open_model(write(tmp_path, "glm4_moe", tensors | further))


@pytest.mark.parametrize("file", ["pytorch_model.bin", "a.pth"])
def test_code_in_pickled_weights_is_never_run(file: str, tmp_path: Path) -> None:
    """The pickle here would end the process if it were run."""
    (tmp_path / "config.json").write_text(json.dumps(CASES["llama"]["config"]))
    (tmp_path / file).write_bytes(b"\x80\x02cos\nabort\n)R.")
    with pytest.raises(WeightsError, match=rf"{tmp_path / file} .* asks for 'os\.abort'"):
        load_model(str(tmp_path))


def test_remote_code_is_never_run(tmp_path: Path) -> None:
    """`auto_map` names a file beside the weights, which would end the process."""
    config = CASES["llama"]["config"] | {
        "auto_map": {
            "AutoConfig": "configuration_own.Own",
            "AutoModelForCausalLM": "modeling_own.Own",
        }
    }
    path = write(tmp_path, "llama", tensors_of(CASES["llama"]))
    (tmp_path / "config.json").write_text(json.dumps(config))
    for name in ("configuration_own", "modeling_own"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('remote code was run')")
    load_model(path)
    assert not {"configuration_own", "modeling_own"} & set(sys.modules)
    unknown = config | {"architectures": ["OwnForCausalLM"]}
    (tmp_path / "config.json").write_text(json.dumps(unknown))
    with pytest.raises(ConfigError, match=r"'OwnForCausalLM' is not supported; known: .*Llama"):
        load_model(path)


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("Qwen3NextForCausalLM", "Qwen3MoeForCausalLM|Qwen3ForCausalLM"),
        ("LlamaForCasualLM", "LlamaForCausalLM"),
        ("GPTNeoForCausalLM", "GPTNeoXForCausalLM"),
        ("FalconMambaForCausalLM", "FalconForCausalLM"),
    ],
)
def test_the_nearest_name_of_an_unknown_architecture(name: str, near: str) -> None:
    with pytest.raises(ConfigError, match=f"'{name}' is not .* The nearest name is ({near})"):
        spec_of("llama", architectures=[name])


def test_a_wrong_shape_is_named_with_both(tmp_path: Path) -> None:
    """The tensor is fused, in a family with names of its own."""
    tensors = tensors_of(CASES["gpt_neox"])
    name = "gpt_neox.layers.1.attention.query_key_value.weight"
    wrong = tensors | {name: tensors[name][:-1]}
    with pytest.raises(WeightsError, match=rf"{name}: expected shape \(96, 32\) .* \(95, 32\)"):
        open_model(write(tmp_path, "gpt_neox", wrong))
