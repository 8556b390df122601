"""The oracle's switches against PyTorch transformers, on tiny checkpoints of families (I39)."""

import dataclasses
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from jax_engine.models.registry import config_from_hf
from reference.experts import route
from reference.kv_cache import KVCache
from reference.transformer import Transformer
from reference.transformer_config import ExpertsConfig, Rope, TransformerConfig, weight_shapes
from tests.golden.families.checkpoints import NUM_GREEDY, PROMPT, ROWS, cases, goldens, tensors_of
from tests.golden.families.isomorphs import ISOMORPHS, isomorph
from tests.support import as_oracle

CASES, GOLDENS = cases(), goldens()
Weights = dict[str, np.ndarray]
LLAMA = TransformerConfig(
    vocab_size=61,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=3,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
    rms_norm_eps=1e-6,
    max_position_embeddings=64,
)
FULL_HEADS = dataclasses.replace(LLAMA, num_key_value_heads=4)
LAYER_NORM: dict[str, Any] = {"norm": "layer", "rms_norm_eps": 1e-5, "norm_bias": True}
BIASES: dict[str, Any] = {"attention_bias": True, "mlp_bias": True}


def renamed(tensors: Weights, **names: str) -> Weights:
    """Other names: parts of them, as regular expressions, in order."""
    for old, new in names.items():
        pattern = re.compile(re.escape(old.replace("__", ".")))
        tensors = {pattern.sub(new, name): tensor for name, tensor in tensors.items()}
    return tensors


def for_each_head(tensors: Weights) -> Weights:
    """One vector norms all heads: it is repeated."""
    return {
        name: np.tile(tensor, (4 if "q_norm" in name else 2, 1))
        if re.search("[qk]_norm", name)
        else tensor
        for name, tensor in tensors.items()
    }


def in_heads(tensors: Weights) -> Weights:
    """A norm over all heads, head by head."""
    return {
        name: tensor.reshape(-1, 8) if re.search("[qk]_norm", name) else tensor
        for name, tensor in tensors.items()
    }


def split_qkv(tensors: Weights, heads: int, *, by_head: bool) -> Weights:
    """q, k and v of one tensor: one after another, or head by head."""
    out = {}
    for name, tensor in tensors.items():
        if ".self_attn.qkv." not in name:
            out[name] = tensor
            continue
        if by_head:
            size = len(tensor) // (3 * heads)
            tensor = tensor.reshape(heads, 3, size, -1).swapaxes(0, 1).reshape(tensor.shape)
        for kind, part in zip("qkv", np.split(tensor, 3), strict=True):
            out[name.replace(".qkv.", f".{kind}_proj.")] = part
    return out


def gpt2(tensors: Weights) -> Weights:
    named = renamed(
        tensors,
        transformer__wte="model.embed_tokens",
        transformer__wpe="model.embed_positions",
        transformer__ln_f="model.norm",
        transformer__h="model.layers",
        ln_1="input_layernorm",
        ln_2="post_attention_layernorm",
        attn__c_attn="self_attn.qkv",
        attn__c_proj="self_attn.o_proj",
        mlp__c_fc="mlp.up_proj",
        mlp__c_proj="mlp.down_proj",
    )
    turned = {
        name: tensor.T if "_proj.weight" in name or "qkv.weight" in name else tensor
        for name, tensor in named.items()
    }
    return split_qkv(turned, 4, by_head=False)


def bloom(tensors: Weights) -> Weights:
    named = renamed(
        tensors,
        transformer__word_embeddings_layernorm="model.embed_norm",
        transformer__word_embeddings="model.embed_tokens",
        transformer__ln_f="model.norm",
        transformer__h="model.layers",
        self_attention__query_key_value="self_attn.qkv",
        self_attention__dense="self_attn.o_proj",
        dense_h_to_4h="up_proj",
        dense_4h_to_h="down_proj",
    )
    return split_qkv(named, 6, by_head=True)


def neox(tensors: Weights) -> Weights:
    named = renamed(
        tensors,
        gpt_neox__embed_in="model.embed_tokens",
        gpt_neox__final_layer_norm="model.norm",
        gpt_neox__layers="model.layers",
        embed_out="lm_head",
        attention__query_key_value="self_attn.qkv",
        attention__dense="self_attn.o_proj",
        dense_h_to_4h="up_proj",
        dense_4h_to_h="down_proj",
    )
    return split_qkv(named, 4, by_head=True)


def phi(tensors: Weights) -> Weights:
    return renamed(
        tensors,
        final_layernorm="norm",
        self_attn__dense="self_attn.o_proj",
        mlp__fc1="mlp.up_proj",
        mlp__fc2="mlp.down_proj",
    )


def gemma2(tensors: Weights) -> Weights:
    plus_one = {n: t + ("norm" in n) for n, t in tensors.items()}
    return renamed(
        plus_one,
        post_attention_layernorm="attention_output_norm",
        pre_feedforward_layernorm="post_attention_layernorm",
        post_feedforward_layernorm="mlp_output_norm",
    )


def olmo2(tensors: Weights) -> Weights:
    named = renamed(
        tensors,
        post_attention_layernorm="attention_output_norm",
        post_feedforward_layernorm="mlp_output_norm",
    )
    return in_heads(named)


def gpt_oss(tensors: Weights) -> Weights:
    out = {}
    for name, tensor in tensors.items():
        if ".experts." not in name:
            out[name] = tensor
            continue
        for expert, matrix in enumerate(np.swapaxes(tensor, 1, -1)):
            kind = "bias" if name.endswith("_bias") else "weight"
            here = re.sub(r"experts\..*", f"experts.{expert}.", name)
            if "gate_up" in name:
                out[f"{here}gate_proj.{kind}"] = matrix[::2]
                out[f"{here}up_proj.{kind}"] = matrix[1::2]
            else:
                out[f"{here}down_proj.{kind}"] = matrix
    return out


def with_router(tensors: Weights) -> Weights:
    return renamed(
        tensors,
        mlp__gate__e_score_correction_bias="mlp.router.selection_bias",
        mlp__gate__="mlp.router.",
        shared_experts="shared",
        shared_expert_gate="shared_gate",
        shared_expert__="shared.",
    )


def with_ones(tensors: Weights) -> Weights:
    """OLMo stores no norms."""
    ones = {n: np.ones(32) for n in weight_shapes(OLMO) if "norm" in n}
    return ones | tensors


OLMO = dataclasses.replace(LLAMA, norm="layer", rms_norm_eps=1e-5, clip_qkv=0.7)
GEMMA = dataclasses.replace(
    LLAMA,
    head_dim=16,
    norm_placement="sandwich",
    hidden_act="gelu_tanh",
    embedding_factor=32**0.5,
    query_scale=20**-0.5,
    tie_word_embeddings=True,
)
YARN = {
    name: value
    for name, value in CASES["ministral3"]["config"]["rope_parameters"].items()
    if name not in ("llama_4_scaling_beta", "rope_theta")
}
LONG = {"rope_type": "longrope", "short_factor": [1.0, 1.1], "long_factor": [1.5, 3.0]}
SWITCHES: dict[str, tuple[TransformerConfig, Callable[[Weights], Weights]]] = {
    "gpt2": (
        dataclasses.replace(FULL_HEADS, intermediate_size=128, gated_mlp=False,
            hidden_act="gelu_tanh", learned_positions=64, layer_ropes=(None,) * 3,
            tie_word_embeddings=True, **LAYER_NORM, **BIASES),
        gpt2,
    ),
    "bloom": (
        dataclasses.replace(FULL_HEADS, hidden_size=48, intermediate_size=192,
            num_attention_heads=6, num_key_value_heads=6, gated_mlp=False, embedding_norm=True,
            hidden_act="gelu_tanh", layer_ropes=(None,) * 3, tie_word_embeddings=True,
            alibi_slopes=(2**-2, 2**-4, 2**-6, 2**-8, 2**-1, 2**-3), **LAYER_NORM, **BIASES),
        bloom,
    ),
    "gpt_neox": (
        dataclasses.replace(FULL_HEADS, gated_mlp=False, hidden_act="gelu", rotary_dim=2,
            norm_placement="parallel_two", **LAYER_NORM, **BIASES),
        neox,
    ),
    "phi": (
        dataclasses.replace(LLAMA, gated_mlp=False, hidden_act="gelu_tanh", rotary_dim=4,
            norm_placement="parallel", head_bias=True, **LAYER_NORM, **BIASES),
        phi,
    ),
    "nemotron": (
        dataclasses.replace(LLAMA, gated_mlp=False, hidden_act="relu2", rotary_dim=4, **LAYER_NORM),
        lambda tensors: {
            n: t + (n.endswith("weight") and "norm" in n) for n, t in tensors.items()
        },
    ),
    "gemma2": (
        dataclasses.replace(GEMMA, num_hidden_layers=4, layer_windows=(5, None, 5, None),
            attention_soft_cap=5.0, logits_soft_cap=3.0),
        gemma2,
    ),
    "gemma3": (
        dataclasses.replace(GEMMA, num_hidden_layers=7, head_norm="each",
            layer_windows=(5, 5, 5, 5, 5, None, 5),
            layer_ropes=(*[Rope(1e4)] * 5, Rope(1e6), Rope(1e4))),
        lambda tensors: for_each_head(gemma2(tensors)),
    ),
    "olmo": (OLMO, with_ones),
    "olmo2": (
        dataclasses.replace(
            LLAMA, rms_norm_eps=1e-5, norm_placement="post", head_norm="all", rope_theta=1e4
        ),
        olmo2,
    ),
    "granite": (
        dataclasses.replace(LLAMA, embedding_factor=3.0, scales_inputs=True, residual_factor=0.4,
            query_scale=0.2, logits_factor=1 / 2.5),
        dict,
    ),
    "ministral3": (
        dataclasses.replace(LLAMA, rms_norm_eps=1e-5, rope_theta=500.0, rope_scaling=YARN,
            query_growth=(0.3, 16)),
        dict,
    ),
    "phi3_long": (
        dataclasses.replace(LLAMA, rms_norm_eps=1e-5, rotary_dim=4, rope_theta=500.0,
            rope_scaling=LONG | {"original_max_position_embeddings": 16}),
        lambda tensors: _phi3(tensors),
    ),
    "gpt_oss": (
        dataclasses.replace(LLAMA, num_hidden_layers=4, rms_norm_eps=1e-5, attention_bias=True,
            sinks=True, hidden_act="clipped_swiglu", layer_windows=(5, None, 5, None),
            rope_theta=150000.0, rope_scaling={"rope_type": "yarn", "factor": 32.0,
                "original_max_position_embeddings": 4096, "truncate": False},
            experts=ExpertsConfig(5, 2, 48, "chosen_softmax", router_bias=True, bias=True)),
        gpt_oss,
    ),
    "qwen2_moe": (
        dataclasses.replace(LLAMA, attention_bias=True, output_bias=False,
            experts=ExpertsConfig(6, 2, 24, shared_width=40, shared_gate=True)),
        with_router,
    ),
    "glm4_moe_groups": (
        dataclasses.replace(LLAMA, rms_norm_eps=1e-5, rotary_dim=4, attention_bias=True,
            output_bias=False, head_norm="each", dense_layers=(0,),
            experts=ExpertsConfig(8, 2, 24, "sigmoid", renormalise=True, scaling=1.5,
                selection_bias=True, num_groups=4, num_top_groups=2, shared_width=24)),
        lambda tensors: for_each_head(with_router(tensors)),
    ),
}  # fmt: skip


def _phi3(tensors: Weights) -> Weights:
    out = {}
    for name, tensor in tensors.items():
        if "qkv_proj" in name:
            for kind, part in zip("qkv", np.split(tensor, [32, 48]), strict=True):
                out[name.replace("qkv_proj", f"{kind}_proj")] = part
        elif "gate_up_proj" in name:
            for kind, part in zip(("gate", "up"), np.split(tensor, 2), strict=True):
                out[name.replace("gate_up_proj", f"{kind}_proj")] = part
        else:
            out[name] = tensor
    return out


def logits(model: Transformer, ids: list[int]) -> np.ndarray:
    """After each token, all of them at once in one block."""
    length, every, config = len(ids), np.arange(len(ids)), model.config
    cache = KVCache(
        num_layers=config.num_hidden_layers,
        num_blocks=1,
        num_kv_heads=config.num_key_value_heads,
        block_size=length,
        head_dim=config.head_dim,
    )
    batch = np.array([[0]]), np.array([length]), np.array([0, length])
    hidden = model.forward(np.array(ids), every, cache, *batch, slot_mapping=every)
    return model.compute_logits(hidden)


def check_against_golden(name: str, model: Transformer) -> None:
    """The prompt and the tokens that follow greedily."""
    ids = [*PROMPT, *GOLDENS[f"{name}.tokens"].tolist()]
    every, expected = logits(model, ids), GOLDENS[f"{name}.logits"]
    assert every[len(PROMPT) - 1 : -1].argmax(1).tolist() == ids[len(PROMPT) :]
    found = every[[*ROWS, *range(len(ids) - NUM_GREEDY, len(ids))]]
    np.testing.assert_allclose(found, expected, atol=1e-4 * np.abs(expected).max())


@pytest.mark.parametrize("name", SWITCHES)
def test_i39_logits_are_those_of_transformers(name: str) -> None:
    config, named = SWITCHES[name]
    check_against_golden(name, Transformer(config, named(tensors_of(CASES[name]))))


def read(fields: dict[str, Any], tensors: Weights) -> Transformer:
    """The oracle of a checkpoint, as the engine's family reads its files."""
    model = config_from_hf(fields)
    config = as_oracle.configuration(model.spec, model.max_context_len)
    return Transformer(config, as_oracle.weights(model, config, tensors))


# Those with latents are read by hand, in test_latent_attention.py.
WITHOUT_LATENTS = [name for name, case in CASES.items() if "kv_lora_rank" not in case["config"]]


@pytest.mark.parametrize("name", WITHOUT_LATENTS)
def test_i39_every_family_s_logits_are_those_of_transformers(name: str) -> None:
    check_against_golden(name, read(CASES[name]["config"], tensors_of(CASES[name])))


@pytest.mark.parametrize("name", ISOMORPHS)
def test_i39_isomorphs_have_the_same_logits(name: str) -> None:
    case, fields, tensors = isomorph(name)
    check_against_golden(case, read(fields, tensors))


def test_an_unknown_activation_is_refused() -> None:
    config = dataclasses.replace(LLAMA, hidden_act="tanh")
    weights = {name: np.ones(shape) for name, shape in weight_shapes(config).items()}
    cache = KVCache(num_layers=3, num_blocks=1, num_kv_heads=2, block_size=1, head_dim=8)
    one, zero = np.array([1]), np.array([0])
    with pytest.raises(ValueError, match="hidden_act must be a known activation, found 'tanh'"):
        Transformer(config, weights).forward(
            zero, zero, cache, zero[None], one, np.array([0, 1]), zero
        )


def test_of_equal_experts_the_first_is_chosen() -> None:
    assert route(np.zeros(4), ExpertsConfig(4, 2, 1)) == [(0, 0.25), (1, 0.25)]
    in_groups = ExpertsConfig(4, 1, 1, "sigmoid", num_groups=2, num_top_groups=1)
    assert route(np.array([3.0, 0.0, 2.0, 2.0]), in_groups)[0][0] == 2
