"""Each GGUF architecture: llama.cpp's file of a tiny checkpoint is the same model as that one."""

import dataclasses
import re
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from gguf.constants import MODEL_ARCH_NAMES, MODEL_TENSORS, TENSOR_NAMES

from jax_engine.errors import ConfigError, MissingPackageError, WeightsError
from jax_engine.model_spec import ModelSpec
from jax_engine.models.checkpoints.checkpoint import tensor_source
from jax_engine.models.checkpoints.gguf.architectures import ARCHITECTURES
from jax_engine.models.checkpoints.gguf.gguf_file import GgufFile
from jax_engine.models.checkpoints.gguf.gguf_source import config_from_gguf
from jax_engine.models.families.changed import changed
from jax_engine.models.model_loader import load_model
from tests.golden.families.checkpoints import tensors_of
from tests.models.llama_cpp import converted, metadata, write_case, write_gguf_file
from tests.models.test_families import CASES, check_against_golden, write

# The cases of tests/golden/families that llama.cpp has an architecture for.
OF_CASE = {
    "llama": "llama",
    "mistral": "llama",
    "mixtral": "llama",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "qwen2_moe": "qwen2moe",
    "qwen3_moe": "qwen3moe",
    "olmoe": "olmoe",
    "starcoder2": "starcoder2",
    "gemma": "gemma",
    "gemma2": "gemma2",
    "gemma3": "gemma3",
    "phi3": "phi3",
    "phi3_short": "phi3",
    "phi3_long": "phi3",
    "gpt_neox": "gptneox",
    "gpt_neox_in_turn": "gptneox",
    "falcon_7b": "falcon",
    "falcon_40b": "falcon",
    "gpt2": "gpt2",
    "gpt_bigcode": "starcoder",
    "granite": "granite",
    "granitemoe": "granitemoe",
    "granitemoe_shared": "granitemoe",
    "bloom": "bloom",
    "olmo": "olmo",
    "olmo2": "olmo2",
    "olmo3": "olmo2",
    "smollm3": "smollm3",
    "exaone4": "exaone4",
    "cohere": "command-r",
    "cohere_head_norms": "command-r",
    "cohere2": "cohere2",
    "stablelm": "stablelm",
    "stablelm_parallel": "stablelm",
    "phi": "phi2",
    "nemotron": "nemotron",
    "minicpm": "minicpm",
    "gpt_oss": "gpt-oss",
}
# What llama.cpp has no metadata for.
SILENT = {"smollm3": {"no_rope_layers": None, "no_rope_layer_interval": 4}}
MINICPM = {"scale_emb": 12.0, "scale_depth": 1.5, "dim_model_base": 8.0}


def file_of(name: str, path: Path) -> Path:
    case = case_of(name)
    return write_case(path, case, tensors_of(case), OF_CASE[name])


def case_of(name: str) -> dict[str, Any]:
    """The case as llama.cpp knows such models: with experts in all layers, for one."""
    if name == "minicpm":  # transformers has no class for it
        case = CASES["llama"]
        own = {"architectures": ["MiniCPMForCausalLM"]} | MINICPM
        return {"config": case["config"] | own, "tensors": case["tensors"]}
    case = {**CASES[name], "config": CASES[name]["config"] | SILENT.get(name, {})}
    if not case["config"].get("mlp_only_layers"):
        return case
    first, second = "model.layers.0.mlp.", "model.layers.1.mlp."
    shapes = {key: shape for key, shape in case["tensors"].items() if not key.startswith(first)}
    experts = {key.replace(second, first): shape for key, shape in shapes.items() if second in key}
    config = case["config"] | {"mlp_only_layers": []}
    return {"config": config, "tensors": shapes | experts}


@pytest.mark.parametrize("case", OF_CASE)
def test_gguf_and_hugging_face_are_the_same_model(case: str, tmp_path: Path) -> None:
    """So what is compared with transformers for the one holds for the other."""
    write(case_of(case), tmp_path)
    ours, theirs = load_model(str(file_of(case, tmp_path / "m.gguf"))), load_model(str(tmp_path))
    for one, other in zip(
        jax.tree.leaves(ours.params), jax.tree.leaves(theirs.params), strict=True
    ):
        np.testing.assert_array_equal(one, other)
    assert rounded(ours.config.spec) == rounded(theirs.config.spec)
    assert ours.config.eos_token_ids == theirs.config.eos_token_ids
    assert ours.config.bos_token_id == theirs.config.bos_token_id


def rounded(spec: ModelSpec) -> ModelSpec:
    """A configuration without what float32 loses of a scale, or says of a default."""
    ((scale, rope),) = {(one.scale, one.rope) for one in spec.attentions}
    if rope is not None and not isinstance(rope, tuple):
        factor = None if rope.type == "longrope" else rope.attention_factor
        rope = dataclasses.replace(rope, attention_factor=factor)
    ((residual,),) = ({layer.residual_factor for layer in group.pattern} for group in spec.groups)
    return changed(
        spec,
        attention={"scale": scale and round(scale, 7), "rope": rope},
        layer={"residual_factor": round(residual, 6)},
    )


@pytest.mark.parametrize("case", ["gemma3", "phi3_long"])
def test_i39_logits_of_files_whose_metadata_say_less(case: str, tmp_path: Path) -> None:
    """Scores' factors, which the test above rounds."""
    check_against_golden(case, file_of(case, tmp_path / "m.gguf"))


def test_every_architecture_has_a_case_and_is_known_to_the_gguf_package() -> None:
    assert set(OF_CASE.values()) == set(ARCHITECTURES)
    assert set(ARCHITECTURES) <= set(MODEL_ARCH_NAMES.values())


def test_a_gguf_package_that_is_too_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jax_engine.models.checkpoints.gguf.gguf_source.MODEL_ARCH_NAMES", {})
    with pytest.raises(MissingPackageError, match=r"'gemma3'.*pip install --upgrade gguf"):
        load_model(str(file_of("gemma3", tmp_path / "m.gguf")))


def written(tmp_path: Path, arch: str, **changes: Any) -> Path:
    """A file of the architecture's first case, with other metadata; None: a key is left out."""
    name = next(name for name, one in OF_CASE.items() if one == arch)
    config, tensors = CASES[name]["config"], tensors_of(CASES[name])
    fields = {f"{arch}.{key}": value for key, value in metadata(config, arch).items()}
    fields |= {f"{arch}.{key}": value for key, value in changes.items()}
    path = tmp_path / "m.gguf"
    given = {key: value for key, value in fields.items() if value is not None}
    write_gguf_file(path, arch, given, converted(config, tensors, arch))
    return path


def spec_of(path: Path) -> ModelSpec:
    return config_from_gguf(GgufFile(path)).spec


def test_gemma_27b_divides_scores_by_another_number(tmp_path: Path) -> None:
    """Only the number of layers tells these files from smaller models."""
    scales = {}
    for name, layers in (("gemma2", 46), ("gemma3", 62)):
        case = CASES[name]
        wide = case["config"] | {"num_hidden_layers": layers, "num_attention_heads": 8}
        first = {k: v for k, v in tensors_of(case).items() if ".layers." not in k}
        each = {k: v for k, v in tensors_of(case).items() if ".layers.0." in k}
        for layer in range(layers):
            first |= {k.replace(".0.", f".{layer}."): v for k, v in each.items()}
        fields = metadata(wide, name) | {"attention.scale": None}
        path = tmp_path / f"{name}.gguf"
        given = {f"{name}.{key}": v for key, v in fields.items() if v is not None}
        write_gguf_file(path, name, given, converted(wide, first, name))
        scales[name] = spec_of(path).attentions[0].scale
    assert scales == {"gemma2": (32 / 8) ** -0.5, "gemma3": (32 / 8) ** -0.5}
    path = written(tmp_path, "gemma2", **{"attention.scale": None})
    assert spec_of(path).attentions[0].scale == 16**-0.5


def test_windows_by_a_period_or_by_layer(tmp_path: Path) -> None:
    key = "attention.sliding_window_pattern"
    for pattern, windows in (
        (2, (5, None, 5, None, 5, None, 5)),
        ([True] * 6 + [False], (5, 5, 5, 5, 5, 5, None)),
    ):
        spec = spec_of(written(tmp_path, "gemma3", **{key: pattern}))
        assert spec.attentions[0].window == windows
    without = written(tmp_path, "gemma3", **{"attention.sliding_window": 0})
    assert spec_of(without).attentions[0].window is None


def test_an_unscaled_rope_under_the_window(tmp_path: Path) -> None:
    """Gemma 3's factor stretches only the layers that see all."""
    scaled = {
        "rope.scaling.type": "linear",
        "rope.scaling.factor": 8.0,
        "rope.freq_base_swa": 500.0,
    }
    ropes = spec_of(written(tmp_path, "gemma3", **scaled)).attentions[0].ropes
    assert [(one.type, one.factor, one.theta) for one in ropes] == [
        ("none", 1.0, 500.0),
        ("linear", 8.0, 1e6),
    ]


@pytest.mark.parametrize(("said", "expected"), [(None, False), (True, True), (False, False)])
def test_whether_weights_of_experts_are_renormalised(
    said: bool | None, expected: bool, tmp_path: Path
) -> None:
    spec = spec_of(written(tmp_path, "qwen2moe", expert_weights_norm=said))
    assert spec.experts[0].router.renormalise is expected


@pytest.mark.parametrize(
    ("arch", "changes", "message"),
    [
        ("qwen2", {"block_count": 9}, "has 9 layers, but there are tensors of 3"),
        ("qwen3", {"attention.head_count": "x"}, "qwen3.attention.head_count must be an integer"),
        ("gptneox", {"attention.layer_norm_epsilon": None}, "layer_norm_epsilon) is missing"),
        ("gemma3", {"attention.sliding_window_pattern": [True]}, "layer_types has 1 layers"),
        ("qwen3moe", {"expert_count": 1 << 20}, "qwen3moe.expert_count must be"),
        ("olmoe", {"expert_count": 7}, "experts.6"),
        ("granitemoe", {"feed_forward_length": 47}, "blk.0.ffn_down_exps.weight: expected shape"),
        ("falcon", {"attention.head_count_kv": 4}, "attn_qkv.weight: expected shape"),
        ("phi3", {"rope.dimension_count": 3}, "must be even"),
    ],
)
def test_metadata_that_contradict_the_tensors(
    arch: str, changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises((ConfigError, WeightsError)) as error:
        load_model(str(written(tmp_path, arch, **changes)))
    assert message in str(error.value)


def test_parts_that_do_not_fit_each_other(tmp_path: Path) -> None:
    """Each part of a joined tensor is checked: their sum may be right."""
    case = CASES["granitemoe"]
    tensors = converted(case["config"], tensors_of(case), "granitemoe")
    up, gate = "blk.1.ffn_up_exps.weight", "blk.1.ffn_gate_exps.weight"
    rows = np.concatenate([tensors[gate], tensors[up]], axis=1)
    tensors |= {gate: rows[:, :40], up: rows[:, 40:]}
    fields = {f"granitemoe.{k}": v for k, v in metadata(case["config"], "granitemoe").items()}
    write_gguf_file(tmp_path / "m.gguf", "granitemoe", fields, tensors)
    with pytest.raises(WeightsError, match=r"blk\.1\.ffn_gate_exps\.weight.*\(5, 48, 32\).*40"):
        load_model(str(tmp_path / "m.gguf"))


def test_tensors_are_saved_under_hugging_face_s_names(tmp_path: Path) -> None:
    """`save_sharded_state` of a GGUF file writes the original checkpoint."""
    for name in ("gemma3", "gpt_neox", "qwen2_moe", "gpt2"):
        source = tensor_source(file_of(name, tmp_path / f"{name}.gguf"))
        expected = tensors_of(CASES[name])
        assert set(source.names()) == set(expected)
        for tensor, values in expected.items():
            assert source.shape(tensor) == values.shape
            out = np.empty(values.shape, np.float32)
            source.read_into(tensor, out)
            np.testing.assert_allclose(out, values, atol=1e-7)


def test_the_files_names_are_the_gguf_package_s(tmp_path: Path) -> None:
    """The tensors that tests write are those that the package lists for the architecture."""
    archs = {arch_name: arch for arch, arch_name in MODEL_ARCH_NAMES.items()}
    for name, arch in OF_CASE.items():
        known = {TENSOR_NAMES[tensor] for tensor in MODEL_TENSORS[archs[arch]]}
        case = case_of(name)
        for tensor in converted(case["config"], tensors_of(case), arch):
            stem = re.sub(r"^blk\.\d+\.", "blk.{bid}.", tensor).rpartition(".")[0]
            assert stem in known, (arch, tensor)
