"""A format that the engine has never heard of, through loader, decoder and head."""

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from jax_engine import LLM, SamplingParams
from jax_engine.errors import WeightsError
from jax_engine.models.model_loader import load_model
from jax_engine.weights.format import Formats, Matrix
from tests.golden import tiny_checkpoints as tiny
from tests.models.checkpoints import write_checkpoint
from tests.models.paged import PagedRun
from tests.models.test_decoder import TOLERANCE, reference_logits
from tests.weights.int8 import Int8, Int8Checkpoint, rounded


@pytest.fixture(autouse=True)
def int8(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every table and every matrix is held in eight bits."""
    chosen = Formats(Int8(), Int8())
    monkeypatch.setattr("jax_engine.models.model_loader.formats_for", lambda *_: chosen)


def rounded_weights(config: dict[str, Any]) -> dict[str, np.ndarray]:
    """The checkpoint with matrices of numbers that eight bits can hold."""
    every = tiny.weights(config)
    return {name: rounded(w) if w.ndim == 2 else w for name, w in every.items()}


@pytest.mark.parametrize("name", ["plain", "tied", "biases", "mistral_window"])
def test_a_model_in_it_agrees_with_the_oracle(name: str, tmp_path: Path) -> None:
    config = tiny.CONFIGS[name]
    tensors = rounded_weights(config)
    model = load_model(str(write_checkpoint(tmp_path, config, tensors)))
    matrices = sum(w.size + 4 * len(w) for w in tensors.values() if w.ndim == 2)
    assert model.num_bytes == matrices + sum(4 * w.size for w in tensors.values() if w.ndim == 1)
    assert model.num_parameters == sum(w.size for w in tensors.values())
    found = PagedRun(model.config, model.graphdef, model.params).feed(tiny.PROMPT)
    expected = reference_logits(config, tiny.PROMPT, tensors)
    np.testing.assert_allclose(found, expected, **TOLERANCE)


@pytest.mark.slow
def test_dummy_weights_in_it(tmp_path: Path) -> None:
    directory = write_checkpoint(tmp_path, tiny.CONFIGS["plain"])
    model = load_model(str(directory), load_format="dummy", dtype=jnp.bfloat16)
    logits = PagedRun(model.config, model.graphdef, model.params).feed(tiny.PROMPT)
    assert np.isfinite(logits).all() and logits.std() > 0


@pytest.mark.slow
def test_the_engine_generates_with_it(tmp_path: Path) -> None:
    config = tiny.CONFIGS["plain"]
    tensors = rounded_weights(config)
    directory = write_checkpoint(tmp_path, config, tensors)
    llm = LLM(
        str(directory),
        dtype="float32",
        max_model_len=64,
        num_gpu_blocks_override=32,
        skip_tokenizer_init=True,
    )
    prompt = tiny.PROMPT[:9]
    params = SamplingParams(temperature=0.0, max_tokens=4, ignore_eos=True)
    output = llm.generate({"prompt_token_ids": prompt}, params, use_tqdm=False)[0]
    tokens = list(output.outputs[0].token_ids)
    logits = reference_logits(config, prompt + tokens, tensors)[len(prompt) - 1 : -1]
    assert tokens == logits.argmax(axis=1).tolist()


@pytest.mark.parametrize("name", ["tied", "biases"])
def test_its_own_checkpoints_of_codes_and_scales(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other tensors than the family declares, fused by the family's transforms."""
    chosen = Formats(Int8Checkpoint(), Int8Checkpoint())
    monkeypatch.setattr("jax_engine.models.model_loader.formats_for", lambda *_: chosen)
    config = tiny.CONFIGS[name]
    plain = rounded_weights(config)
    tensors: dict[str, np.ndarray] = {}
    for tensor, values in plain.items():
        if values.ndim == 1:
            tensors[tensor] = values
            continue
        form, matrix = Int8(), Matrix(values.shape, jnp.dtype(jnp.float32))
        held = {part: np.empty(a.shape, a.dtype) for part, a in form.arrays(matrix).items()}
        form.pack(values, held, matrix)
        tensors[tensor] = held["codes"].astype(np.float32)
        tensors[tensor.replace(".weight", ".scale")] = held["scale"]
    directory = write_checkpoint(tmp_path, config, tensors)
    model = load_model(str(directory))
    found = PagedRun(model.config, model.graphdef, model.params).feed(tiny.PROMPT)
    expected = reference_logits(config, tiny.PROMPT, plain)
    np.testing.assert_allclose(found, expected, **TOLERANCE)
    lost = next(tensor for tensor in tensors if tensor.endswith("k_proj.scale"))
    del tensors[lost]
    with pytest.raises(WeightsError, match=f"tensors are missing, {lost}"):
        load_model(str(write_checkpoint(directory, config, tensors)))
