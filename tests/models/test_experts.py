"""Which layers have experts, and how layers that differ stand in groups: plain specifications."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jax_engine.errors import ConfigError
from jax_engine.model_spec import ExpertsSpec, LayerGroup, LayerSpec, ModelSpec
from jax_engine.models.families.experts import grouped
from jax_engine.models.registry import config_from_hf
from tests.golden import tiny_checkpoints as tiny
from tests.golden.families.checkpoints import cases

CASES = cases()
((PLAIN,),) = (group.pattern for group in config_from_hf(tiny.CONFIGS["plain"]).spec.groups)


def spec_of(case: str, **changes: Any) -> ModelSpec:
    return config_from_hf(CASES[case]["config"] | changes).spec


def in_order(groups: Sequence[LayerGroup]) -> list[LayerSpec]:
    """The layers as they run; of a tuple of windows each has its own."""
    found = []
    for group in groups:
        for repetition in range(group.repeats):
            for layer in group.pattern:
                window = layer.attention.window
                own = window[repetition] if isinstance(window, tuple) else window
                attention = dataclasses.replace(layer.attention, window=own)
                found.append(dataclasses.replace(layer, attention=attention))
    return found


@pytest.mark.parametrize(
    ("case", "fields", "layers"),
    [
        ("qwen2_moe", {}, [0, 1, 2, 3, 4, 5, 6]),
        ("qwen2_moe", {"decoder_sparse_step": 2}, [1, 3, 5]),
        ("qwen2_moe", {"decoder_sparse_step": 3}, [2, 5]),
        ("qwen2_moe", {"decoder_sparse_step": 9}, []),
        ("qwen2_moe", {"mlp_only_layers": [0, 4, 99]}, [1, 2, 3, 5, 6]),
        ("qwen3_moe", {"mlp_only_layers": [5], "decoder_sparse_step": 2}, [1, 3]),
        ("glm4_moe", {"first_k_dense_replace": 0}, [0, 1, 2, 3, 4, 5, 6]),
        ("glm4_moe", {"first_k_dense_replace": 3}, [3, 4, 5, 6]),
        ("deepseek_v2", {"first_k_dense_replace": 3}, [3, 4, 5, 6]),
        ("deepseek_v2", {"first_k_dense_replace": 2, "moe_layer_freq": 2}, [2, 4, 6]),
        ("deepseek_v3", {"first_k_dense_replace": 1, "moe_layer_freq": 3}, [3, 6]),
        ("glm4_moe_lite", {"mlp_layer_types": None, "first_k_dense_replace": 5}, [5, 6]),
        ("glm4_moe_lite", {"mlp_layer_types": ["sparse", *["dense"] * 5, "sparse"]}, [0, 6]),
        ("mixtral", {}, [0, 1, 2, 3, 4, 5, 6]),
        ("olmoe", {}, [0, 1, 2, 3, 4, 5, 6]),
        ("granitemoe", {}, [0, 1, 2, 3, 4, 5, 6]),
    ],
    ids=str,
)
def test_which_layers_have_experts(case: str, fields: dict[str, Any], layers: list[int]) -> None:
    """Transformers' rule of each family, worked out by hand for 7 layers."""
    spec = spec_of(case, num_hidden_layers=7, **fields)
    found = in_order(spec.groups)
    assert [i for i, one in enumerate(found) if isinstance(one.mlp, ExpertsSpec)] == layers
    assert len(found) == 7


@pytest.mark.parametrize(
    ("case", "fields", "width"),
    [
        ("granitemoe_shared", {"shared_intermediate_size": 0}, None),
        ("granitemoe_shared", {"shared_intermediate_size": 1}, 1),
        ("granitemoe_shared", {"shared_intermediate_size": 7}, 7),
        ("qwen2_moe", {"shared_expert_intermediate_size": 1}, 1),
        ("glm4_moe", {"n_shared_experts": 3, "moe_intermediate_size": 5}, 15),
        ("deepseek_v2", {"n_shared_experts": None}, None),
        ("deepseek_v2", {"n_shared_experts": 1, "moe_intermediate_size": 5}, 5),
        ("deepseek_v3", {"n_shared_experts": 3, "moe_intermediate_size": 5}, 15),
        ("glm4_moe_lite", {"n_shared_experts": 2, "moe_intermediate_size": 7}, 14),
        ("qwen3_moe", {}, None),
        ("mixtral", {}, None),
    ],
    ids=str,
)
def test_how_wide_the_shared_network_is(
    case: str, fields: dict[str, Any], width: int | None
) -> None:
    experts = spec_of(case, **fields).experts
    assert {one.shared and one.shared.width for one in experts} == {width}


def test_a_shared_network_of_a_negative_width_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"shared_intermediate_size.*-7"):
        spec_of("granitemoe_shared", shared_intermediate_size=-7)


def layer_of(kind: int, windows: tuple[int, ...]) -> LayerSpec:
    """Layers of a kind are equal; each has the windows of all."""
    attention = dataclasses.replace(PLAIN.attention, window=windows)
    return dataclasses.replace(PLAIN, attention=attention, residual_factor=1.0 + kind)


def covered(kinds: Sequence[int], period: int) -> int:
    """How many layers at the front are repetitions of the first ones; 1 where none is one."""
    whole = 1
    while kinds[whole * period : (whole + 1) * period] == kinds[:period]:
        whole += 1
    return whole * period if whole > 1 else 1


@given(st.lists(st.integers(0, 2), min_size=1, max_size=14))
@example([0, 1, 0, 1, 2])
@example([0, 0, 1, 0, 0, 1])
@example([0, 0, 0, 0, 1, 2])
@example([0, 1, 2])
def test_each_pattern_covers_as_many_layers_as_it_can(kinds: list[int]) -> None:
    """No other pattern covers more, no shorter one as many: a pattern is what is compiled. The
    layers are those that were given, each with its own window."""
    windows = tuple(range(1, len(kinds) + 1))
    groups = grouped([layer_of(kind, windows) for kind in kinds])
    found = in_order(groups)
    assert [one.residual_factor - 1 for one in found] == kinds
    assert [one.attention.window for one in found] == list(windows)
    first = 0
    for group in groups:
        period = len(group.pattern)
        rest = kinds[first:]
        most = max(covered(rest, one) for one in range(1, len(rest) + 1))
        assert period * group.repeats == most
        assert all(covered(rest, one) < most for one in range(1, period))
        first += most
