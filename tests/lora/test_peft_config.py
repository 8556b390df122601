"""Every field of PEFT's LoraConfig is honoured, or refused by its name."""

import math
from typing import Any

import pytest

from jax_engine.errors import ConfigError, WeightsError
from jax_engine.lora.adapter import Adapter
from tests.lora.adapters import (
    CONFIG,
    DOWN1,
    EMBED,
    HEAD,
    K1,
    PLAIN,
    Q0,
    RANK,
    modules,
    read,
    tensors_of,
)

LINEAR = [name for name, one in PLAIN.items() if one.kind == "linear"]
Q1 = Q0.replace("0", "1")


def scalings(adapter: Adapter) -> dict[str, float]:
    return {one.name: one.scaling for one in adapter.modules}


def test_alpha_and_rank_make_the_scaling() -> None:
    assert scalings(read()) == {Q0: 2.0, K1: 2.0}
    assert scalings(read(lora_alpha=3.0)) == {Q0: 0.75, K1: 0.75}
    assert scalings(read(lora_alpha=-4)) == {Q0: -1.0, K1: -1.0}
    assert scalings(read(use_rslora=True)) == {Q0: 4.0, K1: 4.0}
    assert scalings(read(lora_alpha=0)) == {Q0: 0.0, K1: 0.0}


def test_defaults_are_peft_s() -> None:
    """r and alpha are 8."""
    from jax_engine.lora.peft import adapter_of_arrays

    adapter = adapter_of_arrays(tensors_of(rank=8), {}, modules(), 16)
    assert scalings(adapter) == {Q0: 1.0, K1: 1.0} and adapter.rank == 8


def test_patterns_of_ranks_and_alphas() -> None:
    tensors = tensors_of((Q0, Q1, K1), ranks={Q1: 2, K1: 1})
    ranks = {r"layers\.1\.self_attn\.q_proj": 2, "k_proj": 1, "q_proj": RANK}
    alphas = {"^model.layers.0.*": 1, "proj": 99, "k_proj|v_proj": 6}
    adapter = read(tensors, rank_pattern=ranks, alpha_pattern=alphas)
    assert scalings(adapter) == {Q0: 0.25, Q1: 4.0, K1: 6.0}
    assert [one.rank for one in adapter.modules] == [4, 1, 2] and adapter.rank == 4
    stable = read(tensors, rank_pattern=ranks, alpha_pattern=alphas, use_rslora=True)
    assert scalings(stable)[Q1] == pytest.approx(8 / math.sqrt(2))


def test_the_first_pattern_that_matches_counts() -> None:
    tensors = tensors_of((Q0, K1), ranks={K1: 2})
    read(tensors, rank_pattern={"k_proj": 2, ".*proj": RANK})
    with pytest.raises(WeightsError, match=r"has rank 4 for model.layers.1.self_attn.k_proj"):
        read(tensors, rank_pattern={".*proj": RANK, "k_proj": 2})


@pytest.mark.parametrize(
    ("config", "selected"),
    [
        ({"target_modules": None}, [Q0, K1]),
        ({"target_modules": ["q_proj"]}, [Q0, Q1]),
        ({"target_modules": [Q0, "layers.1.self_attn.k_proj"]}, [Q0, K1]),
        ({"target_modules": ["q_proj", "of another model"]}, [Q0, Q1]),
        ({"target_modules": [Q0, "proj", "_proj", "self_attn"]}, [Q0]),
        ({"target_modules": r".*\.1\..*k_proj|.*0\.self_attn\.q_proj"}, [Q0, K1]),
        ({"target_modules": ["q_proj"], "layers_to_transform": 0}, [Q0]),
        ({"target_modules": ["q_proj"], "layers_to_transform": [1, 7]}, [Q1]),
        ({"target_modules": ["q_proj"], "layers_to_transform": []}, [Q0, Q1]),
        (
            {"target_modules": ["q_proj"], "layers_to_transform": [1], "layers_pattern": "layers"},
            [Q1],
        ),
        (
            {
                "target_modules": ["q_proj"],
                "layers_to_transform": [1],
                "layers_pattern": ["h", "layers"],
            },
            [Q1],
        ),
        # A module that is named in full is not asked for its layer.
        ({"target_modules": [Q0, "k_proj"], "layers_to_transform": [1]}, [Q0, K1]),
        ({"target_modules": ["q_proj"], "exclude_modules": [Q0]}, [Q1]),
        ({"target_modules": ["q_proj"], "exclude_modules": "model.layers.1.*"}, [Q0]),
        ({"target_modules": "all-linear"}, LINEAR),
        ({"target_modules": "ALL-linear", "exclude_modules": ["down_proj"]}, None),
        ({"target_modules": ["embed_tokens", "lm_head"]}, [EMBED, HEAD]),
    ],
)
def test_which_modules_are_selected(config: dict[str, Any], selected: list[str] | None) -> None:
    names = selected or [name for name in LINEAR if not name.endswith("down_proj")]
    assert [one.name for one in read(tensors_of(names), **config).modules] == sorted(names)
    other = next(name for name in (DOWN1, Q1, HEAD) if name not in names)
    if config["target_modules"] is None:
        return
    with pytest.raises(WeightsError, match=f"does not select the module {other}"):
        read(tensors_of([*names, other]), **config)
    if len(names) > 1:
        with pytest.raises(WeightsError, match="but there are no tensors of it"):
            read(tensors_of(names[1:]), **config)


def test_a_null_target_obeys_exclusion() -> None:
    with pytest.raises(WeightsError, match=f"does not select the module {K1}"):
        read(exclude_modules=["k_proj"])
    with pytest.raises(WeightsError, match=f"does not select the module {Q0}"):
        read(layers_to_transform=[1])


def test_biases_of_lora_bias() -> None:
    adapter = read(tensors_of(biases=True), lora_bias=True)
    assert [one.bias is not None and one.bias.shape for one in adapter.modules] == [(32,), (16,)]
    with pytest.raises(WeightsError, match=r"lora_bias is False, but .* there is one"):
        read(tensors_of(biases=True))
    with pytest.raises(WeightsError, match=r"lora_bias is True, but .* there is none"):
        read(lora_bias=True)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("fan_in_fan_out", True),  # how the base is stored
        ("lora_dropout", 0.5),
        ("inference_mode", False),
        ("task_type", None),
        ("revision", "main"),
        ("base_model_name_or_path", "another"),
        ("megatron_core", "other"),
        ("qalora_group_size", 32),
        ("eva_config", {"rho": 2.0}),
        ("auto_mapping", {"base_model_class": "LlamaForCausalLM"}),
        *(("init_lora_weights", one) for one in (True, False, "gaussian", "eva", "orthogonal")),
        *(("of the future", one) for one in (None, False, "", [], {})),
    ],
)
def test_fields_that_change_nothing(field: str, value: Any) -> None:
    assert read(**{field: value}) == read()


REFUSED: list[tuple[str, Any]] = [
    ("use_dora", True),
    ("use_qalora", True),
    ("modules_to_save", ["lm_head"]),
    ("layer_replication", [[0, 1], [0, 2]]),
    ("target_parameters", ["mlp.experts.down_proj"]),  # the model has no experts
    ("target_parameters", "mlp.down_proj.weight"),
    ("peft_version", 0.19),
    ("trainable_token_indices", [1, 2]),
    ("alora_invocation_tokens", [5]),
    ("ensure_weight_tying", True),
    ("megatron_config", {"a": 1}),
    ("loftq_config", {"loftq_bits": 4}),
    ("corda_config", {"a": 1}),
    ("arrow_config", {"a": 1}),
    ("bias", "all"),
    ("bias", "lora_only"),
    *(("init_lora_weights", one) for one in ("pissa", "pissa_niter_16", "olora", "loftq", "corda")),
    ("peft_type", "ADALORA"),
    ("of the future", 1),
    ("of the future", 0),
    ("of the future", True),
    ("of the future", "x"),
    ("r", 0),
    ("r", -1),
    ("r", 2.5),
    ("r", True),
    ("r", None),
    ("r", 2**31),
    ("lora_alpha", "8"),
    ("lora_alpha", None),
    ("lora_alpha", math.nan),
    ("lora_alpha", math.inf),
    ("lora_alpha", 1e31),
    ("lora_dropout", math.nan),
    ("rank_pattern", {"q_proj": 0}),
    ("rank_pattern", ["q_proj"]),
    ("rank_pattern", {"(": 4}),
    ("alpha_pattern", {"q_proj": "8"}),
    ("alpha_pattern", {"q_proj": math.nan}),
    ("alpha_pattern", {"(a+)+(?=b)": 8}),
    ("target_modules", 3),
    ("target_modules", [3]),
    ("target_modules", "("),
    ("exclude_modules", "["),
    ("layers_to_transform", "1"),
    ("layers_to_transform", [-1]),
    ("layers_pattern", "layers"),
    ("use_rslora", "yes"),
    ("lora_bias", 1),
]


@pytest.mark.parametrize(("field", "value"), REFUSED)
def test_fields_that_are_refused_by_name(field: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=field):
        read(**{field: value})


def test_layers_need_a_list_of_targets_as_in_peft() -> None:
    for targets in ("all-linear", ".*q_proj"):
        with pytest.raises(ConfigError, match=r"layers_to_transform \[0\] is not supported"):
            read(target_modules=targets, layers_to_transform=[0])


def test_each_field_that_peft_writes_is_known() -> None:
    """Every field is accepted with its default. A value that says something is looked at.

    A field of which neither is tested would be one that is overlooked.
    """
    tested = {field for field, _ in REFUSED}
    ignored = {
        *("auto_mapping", "base_model_name_or_path", "eva_config", "fan_in_fan_out"),
        *("inference_mode", "megatron_core", "qalora_group_size", "revision"),
        *("task_type",),
    }
    assert CONFIG.keys() - tested == ignored
