"""A field that config.json does not have means what transformers' class of configurations says.

The goldens cannot show it: the files that transformers writes have nearly all fields. The table is
made of those classes (`tests/golden/families/defaults.py`).
"""

import json
from typing import Any

import msgspec
import pytest

from jax_engine.errors import ConfigError
from jax_engine.models.registry import FAMILIES, config_from_hf, family_of
from tests.golden.families.checkpoints import cases
from tests.golden.families.defaults import FILE, ROPE, fields_of, table, without

CASES = {name: case["config"] for name, case in cases().items()}
TABLE = json.loads(FILE.read_text("utf-8"))
VERSION = TABLE.pop("transformers")
# (family, field): why another value than transformers' is meant.
DIFFERENT = {
    ("ministral3", "rope_parameters"): "refused: a stretch that nobody wrote would be a guess",
    ("deepseek_v2", "num_experts_per_tok"): "transformers has none, and cannot run such a model",
}
# (family, field): the value where the field counts; transformers derives "none" from another field.
DERIVED = {
    ("qwen2_moe", "sliding_window"): "0 unless use_sliding_window",
    ("exaone4", "sliding_window_pattern"): "0 where no layer has a window",
    ("ernie4_5_moe", "moe_layer_end_index"): "-1 becomes the number of the last layer",
}
# Families whose classes are in a checkpoint's own code, which is never run.
OWN_CODE = {"baichuan", "bailing_moe", "bailing_moe_v2", "internlm", "minicpm", "qwen"}
# What families read beside transformers' fields: of older files, and of schemas that they share.
# Files that transformers writes do not have them, so each golden holds the default.
BESIDE = {
    "apply_residual_connection_post_layernorm", "attention_bias", "attn_type_list", "ffn_config",
    "first_k_dense_replace", "head_dim", "hidden_act", "hidden_activation", "layer_types",
    "max_window_layers", "mlp_bias", "moe_intermediate_size", "moe_layer_freq", "num_shared_expert",
    "qkv_bias", "rms_norm_eps", "rotary_dim", "scale_attn_by_inverse_layer_idx", "scoring_func",
    "seq_length", "shared_expert_intermediate_size", "shared_intermediate_size", "sliding_window",
    "sliding_window_pattern", "topk_method", "use_bidirectional_attention", "use_cla",
    "use_qk_norm", "use_sliding_window",
}  # fmt: skip


def family(name: str) -> str:
    """The name of the family's file."""
    return FAMILIES[CASES[name]["architectures"][0]]


def meaning(config: dict[str, Any]) -> Any:
    """The specification, or the error."""
    try:
        return config_from_hf(config).spec
    except ConfigError as error:
        return str(error)


@pytest.mark.parametrize("name", TABLE)
def test_a_field_left_out_means_transformers_default(name: str) -> None:
    for field, value in TABLE[name].items():
        left_out, given = without(CASES[name], field), {field: value}
        as_given = meaning(left_out | given)
        assert (meaning(left_out) == as_given) == ((family(name), field) not in DIFFERENT), field
        if isinstance(value, dict) and field not in ROPE:
            for key in value:
                part = {k: v for k, v in value.items() if k != key}
                assert meaning(left_out | {field: part}) == as_given, (field, key)


@pytest.mark.parametrize("name", TABLE)
def test_a_default_is_written_as_transformers_writes_it(name: str) -> None:
    """Fields that change nothing in this case's layers are checked as well."""
    schema = family_of(CASES[name]["architectures"][0]).Fields
    for one in msgspec.structs.fields(schema):
        value = TABLE[name].get(one.encode_name)
        plain = isinstance(one.default, int | float | str) and isinstance(value, int | float | str)
        if plain and not one.required and (family(name), one.encode_name) not in DERIVED:
            assert one.default == value, one.encode_name


def test_the_table_has_all_fields_of_all_families() -> None:
    assert {family(name) for name in TABLE} == {*FAMILIES.values()} - OWN_CODE
    beside = set()
    for name, known in TABLE.items():
        for field in fields_of(CASES[name]):
            if field not in known and not (field in ROPE and "rope_parameters" in known):
                beside.add(field)
    assert beside == BESIDE


def test_a_model_whose_dense_layers_are_all_that_it_has() -> None:
    for name in ("deepseek_v2", "deepseek_v3", "glm4_moe"):
        found = config_from_hf(CASES[name] | {"first_k_dense_replace": 99})
        assert not found.spec.experts
        assert found.spec.num_layers == CASES[name]["num_hidden_layers"]


@pytest.mark.slow
def test_the_table_is_that_of_the_transformers_here() -> None:
    transformers = pytest.importorskip("transformers")
    if transformers.__version__ != VERSION:
        pytest.skip(f"the table was made with transformers {VERSION}")
    assert json.loads(json.dumps(table())) == TABLE
