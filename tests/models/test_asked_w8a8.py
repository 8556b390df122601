"""Integer products where the checkpoint says nothing of them: weights are rounded when loaded.

What comes out is what a W8A8 checkpoint with the oracle's codes gives, to the bit.
"""

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flax import nnx

from jax_engine import LLM, SamplingParams
from jax_engine.config.engine_config import W8A8
from jax_engine.models.leaves import leaf_name
from jax_engine.models.model_loader import load_model, open_model
from jax_engine.weights.w8a8 import W8A8 as W8A8Format
from reference.quantization import smoothquant
from tests.golden import tiny_checkpoints as tiny
from tests.golden.families.checkpoints import cases, tensors_of
from tests.models import test_gguf_codes, test_quantised_models
from tests.models.checkpoints import write_checkpoint
from tests.models.paged import PagedRun
from tests.models.quantised_files import Tensors, module, write_file
from tests.models.test_gguf_codes import formats  # noqa: F401  a fixture
from tests.models.test_quantised_models import CONFIG
from tests.support.quantised_llama import SETTINGS

ROUNDED = SETTINGS["w8a8"]
WEIGHTS_ALONE: dict[str, Any] = copy.deepcopy(ROUNDED)
del WEIGHTS_ALONE["config_groups"]["group_0"]["input_activations"]


def write_integers(
    directory: Path,
    weights: dict[str, np.ndarray],
    config: dict[str, Any] = CONFIG,
    *,
    settings: dict[str, Any] = ROUNDED,
    largest: int = 127,
) -> Path:
    """A checkpoint of compressed-tensors. Codes beyond `largest` become 0."""
    directory.mkdir()
    tensors: Tensors = {}
    for name, values in weights.items():
        if not name.endswith("_proj.weight"):
            tensors[name] = values
            continue
        stored = smoothquant.quantise(values)
        stored.weight[np.abs(stored.weight.astype(int)) > largest] = 0
        tensors |= module(name.removesuffix(".weight"), stored._asdict())
    write_file(directory / "model.safetensors", tensors)
    (directory / "config.json").write_text(json.dumps(config | {"quantization_config": settings}))
    return directory


def logits(path: Path, quantization: str | None = None) -> np.ndarray:
    model = load_model(str(path), quantization=quantization)
    return PagedRun(model.config, model.graphdef, model.params).feed(tiny.PROMPT)


@pytest.mark.usefixtures("formats")
@pytest.mark.slow
def test_of_numbers(tmp_path: Path) -> None:
    plain = write_checkpoint(tmp_path / "plain", CONFIG)
    expected = logits(write_integers(tmp_path / "w8a8", tiny.weights(CONFIG)))
    np.testing.assert_array_equal(logits(plain, W8A8), expected)
    np.testing.assert_array_equal(logits(tmp_path / "w8a8", W8A8), expected)
    assert np.abs(logits(plain) - expected).max() > 1e-4


@pytest.mark.usefixtures("formats")
def test_codes_with_a_scale_a_row_stay(tmp_path: Path) -> None:
    """Where no code is near 127, numbers that were rounded anew would be others."""
    weights = tiny.weights(CONFIG)
    expected = logits(write_integers(tmp_path / "w8a8", weights, largest=63))
    path = write_integers(tmp_path / "w8", weights, settings=WEIGHTS_ALONE, largest=63)
    np.testing.assert_array_equal(logits(path, W8A8), expected)
    scales = smoothquant.quantise(weights["model.layers.0.self_attn.o_proj.weight"]).weight_scale
    for name, held in nnx.to_flat_state(load_model(str(path), quantization=W8A8).params):
        if leaf_name(name).endswith("attention.o.weight"):
            first = np.asarray(held.get_value()["scales"])[0].ravel()
            np.testing.assert_array_equal(first[: len(scales)], scales[:, 0])
            return
    raise AssertionError("no such leaf")


@pytest.mark.slow
def test_other_codes_are_rounded_anew(tmp_path: Path) -> None:
    """The codes are in groups, in another order of columns (GPTQ), or of several kinds (GGUF)."""
    (tmp_path / "gptq").mkdir()
    decoded = test_quantised_models.write_quantised(tmp_path / "gptq", "gptq-act-order")
    expected = logits(write_integers(tmp_path / "of-gptq", decoded))
    np.testing.assert_array_equal(logits(tmp_path / "gptq", W8A8), expected)

    file = tmp_path / "m.gguf"
    decoded = test_gguf_codes.write_quantised(file, ("Q4_K", "Q8_0"))
    config = test_gguf_codes.CONFIG
    expected = logits(write_integers(tmp_path / "of-gguf", decoded, config))
    np.testing.assert_allclose(logits(file, W8A8), expected, rtol=1e-5, atol=1e-5)


def test_the_engine_takes_it(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path / "plain", CONFIG)
    settings: dict[str, Any] = {"max_model_len": 64, "num_gpu_blocks_override": 32}
    llm = LLM(str(path), quantization="w8a8", skip_tokenizer_init=True, **settings)
    params = SamplingParams(temperature=0.0, max_tokens=6, ignore_eos=True)
    output = llm.generate({"prompt_token_ids": tiny.PROMPT[:9]}, params, use_tqdm=False)[0]
    assert len(output.outputs[0].token_ids) == 6


def test_experts_but_not_their_choice(tmp_path: Path) -> None:
    """Embedding, head, and the matrices that latent attention takes apart stay, too."""
    numbers = {}
    for name in ("qwen3_moe", "deepseek_v3"):
        case = cases()[name]
        path = write_checkpoint(tmp_path / name, case["config"], tensors_of(case))
        leaves = open_model(str(path), quantization=W8A8).leaves.values()
        weights = [leaf for leaf in leaves if leaf.format is not None]
        numbers[name] = {one.declared for one in weights if not isinstance(one.format, W8A8Format)}
        assert len(weights) > len(numbers[name])
        load_model(str(path), quantization=W8A8)
    router = {"embed.weight", "lm_head.weight", "layers.experts.router.weight"}
    by_heads = {"layers.attention.k_up", "layers.attention.v_up"}
    assert numbers == {"qwen3_moe": router, "deepseek_v3": router | by_heads}
