"""Scales of the KV cache in checkpoints, by the names that tools give them."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from jax_engine import LLM, WeightsError
from jax_engine.models.checkpoints.quantization.method import modules_of
from jax_engine.models.model_loader import open_model
from tests.support.tiny_llama import random_weights, save_checkpoint, tiny_config

CONFIG = tiny_config()  # 2 layers, 2 KV heads


def checkpoint(folder: Path, scales: dict[str, Any]) -> str:
    """A checkpoint with these tensors of its layers' attention beside its weights."""
    weights = random_weights(CONFIG)
    path = save_checkpoint(folder / "tiny", CONFIG, weights)
    own = {f"model.layers.{name}": np.asarray(one, np.float32) for name, one in scales.items()}
    save_file(weights | own, path / "model.safetensors")
    return str(path)


def read(folder: Path, scales: dict[str, Any]) -> np.ndarray | None:
    return open_model(checkpoint(folder, scales)).abstract.kv_scales


@pytest.mark.parametrize(
    "names",
    [
        ("self_attn.k_scale", "self_attn.v_scale"),
        ("self_attn.attn.k_scale", "self_attn.attn.v_scale"),
        ("self_attn.k_proj.k_scale", "self_attn.v_proj.v_scale"),
        ("self_attn.k_proj.output_scale", "self_attn.v_proj.output_scale"),
    ],
)
def test_the_names_that_tools_write(tmp_path: Path, names: tuple[str, str]) -> None:
    values = {
        f"{layer}.{name}": 1 + 2 * layer + i for layer in (0, 1) for i, name in enumerate(names)
    }
    found = read(tmp_path, values)
    assert found is not None
    assert found.tolist() == [[[1.0, 1.0], [2.0, 2.0]], [[3.0, 3.0], [4.0, 4.0]]]


def test_one_scale_or_one_for_each_head(tmp_path: Path) -> None:
    """They may have any shape. A missing one is NaN. Queries' scales are not used."""
    found = read(
        tmp_path,
        {
            "0.self_attn.k_scale": [0.5],
            "0.self_attn.v_scale": [[[2.0]], [[3.0]]],
            "1.self_attn.v_scale": [4.0, 5.0],
            "1.self_attn.q_scale": 7.0,
            "1.self_attn.prob_scale": 7.0,
        },
    )
    nan = np.full(2, np.nan)
    np.testing.assert_array_equal(found, [[[0.5, 0.5], [2.0, 3.0]], [nan, [4.0, 5.0]]])


def test_a_checkpoint_without_scales(tmp_path: Path) -> None:
    assert read(tmp_path, {}) is None
    assert read(tmp_path, {"1.self_attn.q_scale": 7.0}) is None


@pytest.mark.parametrize(
    ("scale", "words"),
    [
        ([1.0, 2.0, 3.0], r"k_scale: expected one scale, or .* 2 KV heads, found shape \(3,\)"),
        (0.0, "k_scale: .* must be positive and finite, found 0"),
        ([1.0, -2.0], "k_scale: .* found -2"),
        (np.inf, "k_scale: .* found inf"),
        (np.nan, "k_scale: .* found nan"),
    ],
)
def test_scales_that_cannot_be(tmp_path: Path, scale: Any, words: str) -> None:
    with pytest.raises(WeightsError, match=words):
        read(tmp_path, {"1.self_attn.k_scale": scale})


def test_an_engine_uses_them(tmp_path: Path) -> None:
    """An engine with a cache of its own dtype reads the same checkpoint, and ignores them."""
    path = checkpoint(tmp_path, {"0.self_attn.k_scale": 0.25, "1.self_attn.v_scale": [0.5, 2.0]})
    small: dict[str, Any] = {"skip_tokenizer_init": True, "num_gpu_blocks_override": 8}
    made = {
        kind: LLM(path, **small, kv_cache_dtype=kind).llm_engine.worker.steps.kv_scales
        for kind in ("auto", "fp8")
    }
    assert made["auto"] is None
    assert np.asarray(made["fp8"]).tolist() == [[[0.25, 0.25], [1, 1]], [[1, 1], [0.5, 2]]]


@pytest.mark.parametrize("name", ["k_scale", "k_proj.output_scale"])
def test_scales_beside_quantised_weights(tmp_path: Path, name: str) -> None:
    """GPTQ's `QuantizedSource` has them among its tensors, but not scales of activations."""
    names = [f"0.self_attn.{name}", "0.mlp.up_proj.output_scale", "0.self_attn.kv_scale"]
    modules, others = modules_of(SimpleNamespace(names=lambda: names), (".qweight",))  # type: ignore[arg-type]
    assert modules == {} and others == names[:1]
