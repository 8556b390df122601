"""Checkpoints laid out as other families have them are the same model by a declaration alone."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from safetensors.numpy import save_file

from jax_engine.errors import WeightsError
from jax_engine.models import registry
from jax_engine.models.families import llama
from jax_engine.models.model_loader import LoadedModel, load_model
from jax_engine.weights.transforms import (
    AddOne,
    Concatenate,
    Declaration,
    Transpose,
    rope_halves,
    ungrouped,
)
from tests.golden import tiny_checkpoints as tiny
from tests.models.checkpoints import write_checkpoint

CONFIG = tiny.CONFIGS["biases"]
H, K, D = (CONFIG[name] for name in ("num_attention_heads", "num_key_value_heads", "head_dim"))
F, L = CONFIG["intermediate_size"], CONFIG["num_hidden_layers"]
LAYER, ATTENTION = "model.layers.{layer}", "model.layers.{layer}.self_attn"
Tensors = dict[str, np.ndarray]


def merged(tensors: Tensors, names: list[str], new: str, join: Callable[..., Any]) -> Tensors:
    """In each layer, for weight and bias, tensors replaced by one."""
    out = dict(tensors)
    for layer in range(L):
        for kind in ("weight", "bias"):
            prefix = f"model.layers.{layer}."
            parts = [out.pop(f"{prefix}{name}.{kind}") for name in names]
            out[f"{prefix}{new}.{kind}"] = np.ascontiguousarray(join(*parts))
    return out


def qkv_group_by_group(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Falcon's order: of each KV head its queries, its k and its v."""
    rest = q.shape[1:]
    groups = [part.reshape(K, -1, D, *rest) for part in (q, k, v)]
    return np.concatenate(groups, axis=1).reshape(-1, *rest)


def interleaved(weight: np.ndarray, heads: int) -> np.ndarray:
    """Rows in interleaved RoPE's order."""
    halves = weight.reshape(heads, 2, D // 2, *weight.shape[1:])
    return halves.swapaxes(1, 2).reshape(weight.shape)


def in_turns(gate: np.ndarray, up: np.ndarray) -> np.ndarray:
    return np.stack([gate, up], axis=1).reshape(-1, *gate.shape[1:])


QKV = [f"self_attn.{name}_proj" for name in "qkv"]
GATE_UP = ["mlp.gate_proj", "mlp.up_proj"]
LAYOUTS: dict[str, tuple[Callable[[Tensors], Tensors], dict[str, Declaration]]] = {
    "fused as our leaves": (
        lambda w: merged(w, QKV, "self_attn.qkv_proj", lambda *parts: np.concatenate(parts)),
        {"layers.attention.qkv": f"{ATTENTION}.qkv_proj.{{kind}}"},
    ),
    "queries, k and v of each KV head": (
        lambda w: merged(w, QKV, "self_attn.qkv", qkv_group_by_group),
        {"layers.attention.qkv": ungrouped(f"{ATTENTION}.qkv.{{kind}}", K, (H // K, 1, 1), D)},
    ),
    "gate and up in turns": (
        lambda w: merged(w, GATE_UP, "mlp.gate_up", in_turns),
        {"layers.mlp.gate_up": ungrouped(f"{LAYER}.mlp.gate_up.{{kind}}", F, (1, 1))},
    ),
    "Conv1D": (
        lambda w: merged(w, ["mlp.down_proj"], "mlp.c_proj", lambda w: w.T),
        {"layers.mlp.down": Transpose(f"{LAYER}.mlp.c_proj.{{kind}}")},
    ),
    "interleaved RoPE": (
        lambda w: merged(
            merged(w, QKV[:1], "self_attn.q", lambda q: interleaved(q, H)),
            QKV[1:2],
            "self_attn.k",
            lambda k: interleaved(k, K),
        ),
        {
            "layers.attention.qkv": Concatenate(
                [
                    rope_halves(f"{ATTENTION}.q.{{kind}}", H, D),
                    rope_halves(f"{ATTENTION}.k.{{kind}}", K, D),
                    f"{ATTENTION}.v_proj.{{kind}}",
                ],
                (H * D, K * D, K * D),
            )
        },
    ),
    "norms without their one": (
        lambda w: w | {"model.norm.weight": w["model.norm.weight"] - 1},
        {"norm": AddOne("model.norm.{kind}")},
    ),
}


def load_as(
    folder: Path, tensors: Tensors, declared: Mapping[str, Declaration], monkeypatch: Any
) -> LoadedModel:
    """The checkpoint by Llama's declarations and these in their place."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    save_file(tensors, folder / "model.safetensors")
    with monkeypatch.context() as patch:
        family = registry.family_of("LlamaForCausalLM")
        patch.setattr(family, "weights", lambda c, of=llama.weights: {**of(c), **declared})
        return load_model(str(folder))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_another_layout_is_the_same_model(
    layout: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arranged, declared = LAYOUTS[layout]
    expected = load_model(str(write_checkpoint(tmp_path / "llama", CONFIG)))
    tensors = {name: np.ascontiguousarray(w) for name, w in arranged(tiny.weights(CONFIG)).items()}
    found = load_as(tmp_path / "other", tensors, declared, monkeypatch)
    for one, other in zip(
        jax.tree.leaves(found.params), jax.tree.leaves(expected.params), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-7)


def test_a_wrong_shape_is_named_behind_transforms(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, declared = LAYOUTS["Conv1D"]
    plain = merged(tiny.weights(CONFIG), ["mlp.down_proj"], "mlp.c_proj", lambda w: w)
    with pytest.raises(WeightsError, match=r"0\.mlp\.c_proj\.weight: expected .*\(48, 32\)"):
        load_as(tmp_path / "other", plain, declared, monkeypatch)
