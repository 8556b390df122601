"""Variants of families that the engine does not compute are refused, with the field and value."""

import ast
from pathlib import Path
from typing import Any

import msgspec
import pytest

from jax_engine.errors import ConfigError
from jax_engine.models import families
from jax_engine.models.registry import FAMILIES, config_from_hf, family_of
from tests.golden.families.checkpoints import cases

CASES = cases()
# What makes a field count.
BESIDE = {("mpt", "learned_pos_emb"): {"attn_config": {"alibi": False}}}
OWN_CODE = {
    "baichuan",
    "bailing_moe",
    "bailing_moe_v2",
    "internlm",
    "minicpm",
    "qwen",
}  # they have no case of their own
QWEN = {
    "architectures": ["QWenLMHeadModel"],
    "vocab_size": 61,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
}


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("bloom", "apply_residual_connection_post_layernorm", True),
        ("gpt2", "scale_attn_by_inverse_layer_idx", True),
        ("gpt_bigcode", "add_cross_attention", True),
        ("gpt_oss", "swiglu_limit", 5.0),
        ("gpt_oss", "swiglu_alpha", 1.0),
        ("olmoe", "clip_qkv", 8.0),  # behind the norms of q and k, unlike MPT
        ("opt", "do_layer_norm_before", False),  # OPT-350m
        ("opt", "word_embed_proj_dim", 16),  # OPT-350m
        ("opt", "layer_norm_elementwise_affine", False),
    ],
)
def test_a_variant_that_is_not_computed_is_refused(name: str, field: str, value: Any) -> None:
    config = CASES[name]["config"]
    config_from_hf(config)
    with pytest.raises(ConfigError, match=rf"{field} {value!r} is not supported .*; known: "):
        config_from_hf(config | {field: value})


def test_mpt_refuses_prefixes() -> None:
    config = CASES["mpt"]["config"]
    config = config | {"attn_config": config["attn_config"] | {"prefix_lm": True}}
    with pytest.raises(ConfigError, match="prefix_lm True is not supported"):
        config_from_hf(config)


@pytest.mark.parametrize(("field", "value"), [("no_bias", False), ("rotary_pct", 0.5)])
def test_qwen_1_refuses_what_no_checkpoint_has(field: str, value: Any) -> None:
    config_from_hf(QWEN)
    with pytest.raises(ConfigError, match=f"{field} {value!r} is not supported"):
        config_from_hf(QWEN | {field: value})


def required() -> list[tuple[str, str, Any]]:
    """What each family's file requires of a field of config.json: (file, field, known value)."""
    found = []
    for name in dict.fromkeys(FAMILIES.values()):
        file = f"{families.__path__[0]}/{name}.py"
        for call in ast.walk(ast.parse(Path(file).read_text("utf-8"))):
            named = isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id
            if named == "require" and ast.unparse(call.args[0]) == "fields":  # type: ignore[union-attr]
                for one in call.keywords:  # type: ignore[union-attr]
                    if isinstance(one.value, ast.Constant):
                        found.append((Path(file).stem, str(one.arg), one.value.value))
    return found


@pytest.mark.parametrize(("family", "field", "known"), required())
def test_each_field_that_a_family_requires_is_refused_otherwise(
    family: str, field: str, known: Any
) -> None:
    """One of the family's cases shows it at least: some fields matter to some layers only."""
    if family in OWN_CODE:
        return
    wrong: Any = not known if isinstance(known, bool) else 2
    if isinstance(known, str):
        wrong = "another"
    said = []
    for case in CASES.values():
        config = case["config"]
        architecture = config["architectures"][0]
        if FAMILIES[architecture] == family:
            try:
                schema = msgspec.structs.fields(family_of(architecture).Fields)
                name = next(one.encode_name for one in schema if one.name == field)
                config_from_hf(config | {name: wrong} | BESIDE.get((family, field), {}))
            except ConfigError as error:
                said.append(str(error))
    assert any(f"{field} " in one and "is not supported" in one for one in said), said


def test_groups_of_experts_count_where_the_method_asks_for_them() -> None:
    config = CASES["deepseek_v2"]["config"]
    groups = {"n_group": 4, "topk_group": 2}
    for method, wanted in (("group_limited_greedy", (4, 2)), ("greedy", (1, 1))):
        spec = config_from_hf(config | groups | {"topk_method": method}).spec
        router = spec.experts[0].router
        assert (router.groups, router.top_groups) == wanted
    for name in ("deepseek_v2", "deepseek_v3"):
        given = CASES[name]["config"] | {"n_group": None, "topk_group": None}
        router = config_from_hf(given).spec.experts[0].router
        assert (router.groups, router.top_groups) == (1, 1)


@pytest.mark.parametrize(
    ("rope", "longest"),
    [
        ({"rope_type": "default"}, 48),
        ({"rope_type": "linear", "factor": 2.5}, 120),
        ({"rope_type": "dynamic", "factor": 3.0}, 144),
        ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 20}, 80),
        (
            {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
            48,
        ),
    ],
    ids=str,
)
def test_the_longest_context_is_the_stretched_one(rope: dict[str, Any], longest: int) -> None:
    config = CASES["llama"]["config"] | {
        "max_position_embeddings": 48,
        "rope_parameters": rope | {"rope_theta": 500.0},
    }
    assert config_from_hf(config).max_context_len == longest
