"""What the families of 2025 and 2026 refuse, and what no golden of theirs shows."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jax_engine.errors import ConfigError
from jax_engine.model_spec import ExpertsSpec, ModelSpec
from jax_engine.models.model_loader import load_model
from jax_engine.models.registry import WANTING, config_from_hf
from reference.transformer import Transformer
from scripts.families.models import layers_of
from tests.golden.families.checkpoints import cases, tensors_of
from tests.golden.families.isomorphs import isomorph
from tests.models.checkpoints import write_checkpoint
from tests.models.paged import PagedRun
from tests.reference.test_families import logits
from tests.support import as_oracle

CASES = cases()


def spec_of(name: str, **fields: Any) -> ModelSpec:
    return config_from_hf(CASES[name]["config"] | fields).spec


@pytest.mark.parametrize("architecture", WANTING)
def test_a_model_that_needs_more_says_what(architecture: str) -> None:
    with pytest.raises(ConfigError, match=f"{architecture}' is not supported: it has .*"):
        config_from_hf({"architectures": [architecture]})


@pytest.mark.parametrize(
    ("name", "fields", "match"),
    [
        ("llama4", {"no_rope_layers": [1, 0]}, "no_rope_layers has 2 layers, num_hidden_layers 5"),
        ("llama4", {"layer_types": ["full_attention"]}, "layer_types has 1 layers"),
        ("llama4", {"layer_types": ["sliding_attention"] * 5}, "known: 'chunked_attention', 'full"),
        ("llama", {"layer_types": ["chunked_attention"] * 3}, "known: 'sliding_attention', 'full"),
        ("minimax_m2", {"attn_type_list": [1, 0, 1]}, r"attn_type_list \[1, 0, 1\] is not supp"),
        ("hunyuan_v1_moe", {"moe_topk": [2, 1, 2]}, r"moe_topk \[2, 1, 2\] is not supported"),
        ("hunyuan_v1_moe", {"num_experts": []}, r"num_experts \[\] is not supported"),
        ("hunyuan_v1_dense", {"use_cla": True}, "use_cla True is not supported"),
        ("exaone_moe", {"mlp_layer_types": ["sparse"]}, "for each of the 5 layers, got 1 of"),
        ("dots1", {"num_experts_per_tok": 9}, "between 1 and the 8 experts, got 9"),
        ("ernie4_5_moe", {"moe_norm_min": 1e-3}, "moe_norm_min 0.001 is not supported"),
        ("qwen3", {"rope_parameters": {"rope_type": "dynamic", "factor": 1.0, "alpha": 7.0}},
         r"rope_parameters.alpha 7.0 is not supported"),
    ],
)  # fmt: skip
def test_what_is_not_computed_is_refused(name: str, fields: dict[str, Any], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        spec_of(name, **fields)


@pytest.mark.parametrize(
    ("name", "fields", "expected"),
    [
        ("ernie4_5_moe", {}, [1, 2, 3]),
        ("ernie4_5_moe", {"moe_layer_start_index": 3}, [3]),
        ("ernie4_5_moe", {"moe_layer_end_index": 2}, [1, 2]),
        ("ernie4_5_moe", {"moe_layer_interval": 2}, [1, 3]),
        ("llama4", {"moe_layers": None}, [1, 3]),
        ("llama4", {"moe_layers": []}, []),
        ("llama4", {"moe_layers": [4, 0]}, [0, 4]),
        ("exaone_moe", {"mlp_layer_types": None}, [1, 2, 3, 4]),
        ("exaone_moe", {"mlp_layer_types": None, "first_k_dense_replace": 9}, []),
    ],
)
def test_layers_with_experts(name: str, fields: dict[str, Any], expected: list[int]) -> None:
    layers = layers_of(spec_of(name, **fields))
    assert [n for n, one in enumerate(layers) if isinstance(one.mlp, ExpertsSpec)] == expected


def test_llama_4_s_layers_are_of_two_kinds() -> None:
    """Layers that rotate have chunks and norms; the others have queries that grow."""
    silent = {"no_rope_layers": None, "layer_types": None, "moe_layers": None}
    for layer in layers_of(spec_of("llama4", num_hidden_layers=12, **silent)):
        one = layer.attention
        turned = one.rope is not None
        assert turned == (one.chunk is not None) == (one.head_norm is not None)
        assert turned == (one.query_growth is None)
    sizes = {"num_hidden_layers": 48, "no_rope_layer_interval": 4}
    (group,) = spec_of("llama4", **silent, **sizes).groups
    assert (len(group.pattern), group.repeats) == (4, 12)


def test_hunyuan_s_lists_of_one_number_are_that_number() -> None:
    lists = {"num_experts": [6] * 3, "moe_topk": [2] * 3, "num_shared_expert": [1] * 3}
    assert spec_of("hunyuan_v1_moe", **lists) == spec_of("hunyuan_v1_moe")
    wide = spec_of("hunyuan_v1_moe", moe_intermediate_size=[20] * 3, num_shared_expert=2)
    assert (wide.experts[0].expert.width, wide.experts[0].shared.width) == (20, 96)  # type: ignore[union-attr]


def test_hunyuan_s_alpha_without_its_type_is_the_plain_base() -> None:
    rope = {"rope_type": "default", "rope_theta": 500.0}
    plain = spec_of("hunyuan_v1_dense", rope_parameters=rope)
    assert spec_of("hunyuan_v1_dense", rope_parameters=rope | {"alpha": 7.0}) == plain
    older = {"type": "dynamic", "alpha": 7.0, "factor": 1.0}
    given = {"rope_parameters": None, "rope_scaling": older, "rope_theta": 500.0}
    assert spec_of("hunyuan_v1_dense", **given) == spec_of("hunyuan_v1_dense")


def test_minimax_s_older_name_of_the_rotated_part() -> None:
    rope = {"rope_type": "default", "rope_theta": 300.0}
    older = spec_of("minimax_m2", rope_parameters=rope, rotary_dim=6)
    assert older == spec_of("minimax_m2")


@pytest.mark.parametrize("norm_head", [False, True])
def test_ling_s_shared_experts_and_head_are_the_oracle_s(norm_head: bool, tmp_path: Path) -> None:
    """Dense layers, then experts with shared ones; the head's columns divided by their lengths."""
    _, config, tensors = isomorph("bailing_moe")
    rng = np.random.default_rng(8)
    width, size = config["hidden_size"], config["moe_intermediate_size"]
    network = {"gate_proj": (2 * size, width), "up_proj": (2 * size, width)}
    network["down_proj"] = (width, 2 * size)
    for layer in range(1, config["num_hidden_layers"]):
        for name, shape in network.items():
            drawn = rng.uniform(-0.3, 0.3, shape).astype(np.float32)
            tensors[f"model.layers.{layer}.mlp.shared_experts.{name}.weight"] = drawn
    tensors = {n: one for n, one in tensors.items() if not n.startswith("model.layers.0.mlp")}
    for name, shape in (("gate_proj", (29, width)), ("up_proj", (29, width))):
        tensors[f"model.layers.0.mlp.{name}.weight"] = rng.uniform(-0.3, 0.3, shape).astype("f4")
    down = rng.uniform(-0.3, 0.3, (width, 29)).astype("f4")
    tensors["model.layers.0.mlp.down_proj.weight"] = down
    config |= {"num_shared_experts": 2, "first_k_dense_replace": 1, "norm_head": norm_head}
    model = load_model(str(write_checkpoint(tmp_path, config, tensors)))
    oracle = as_oracle.configuration(model.config.spec, 64)
    if norm_head:  # by hand, for the oracle
        head = tensors["lm_head.weight"].astype(np.float64)
        tensors |= {"lm_head.weight": (head / np.sqrt((head**2).sum(axis=0))).astype("f4")}
        config |= {"norm_head": False}
    plain = config_from_hf(config)
    ids = rng.integers(0, config["vocab_size"], 21).tolist()
    expected = logits(Transformer(oracle, as_oracle.weights(plain, oracle, tensors)), ids)
    run = PagedRun(model.config, model.graphdef, model.params)
    found = np.concatenate([run.feed(ids[:12]), run.feed(ids[12:])])
    np.testing.assert_allclose(found, expected, atol=1e-4 * np.abs(expected).max())


def test_ernie_s_layers_for_further_tokens_are_ignored(tmp_path: Path) -> None:
    """They are named apart from the others."""
    further = {"model.mtp_block.0.mlp.up_proj.weight": np.zeros((2, 2), np.float32)}
    tensors = tensors_of(CASES["ernie4_5_moe"]) | further
    config = CASES["ernie4_5_moe"]["config"] | {"num_nextn_predict_layers": 1}
    load_model(str(write_checkpoint(tmp_path, config, tensors)))
