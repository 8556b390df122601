"""Quantised checkpoints in the stacks of a GPU's kernel, interpreted: beside the oracle."""

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from jax_engine.models.model_loader import open_model
from jax_engine.weights.coded_stacks import BACKEND, CodedStacks
from jax_engine.weights.dense import IndexedDense
from pallas_kernels.quantized_matmul import backend_for
from tests.golden import tiny_checkpoints as tiny
from tests.models.paged import PagedRun
from tests.models.test_decoder import reference_logits
from tests.models.test_quantised_models import CONFIG, write_quantised

BFLOAT16 = jnp.dtype(jnp.bfloat16)
PROMPT, MORE = tiny.PROMPT[:8], tiny.PROMPT[8:10]


@pytest.fixture(autouse=True)
def on_hopper(monkeypatch: pytest.MonkeyPatch) -> None:
    """The choice of a GPU with the kernel, which the CPU then interprets."""

    def chosen(*call: Any) -> str:
        try:
            return backend_for(*call, BACKEND)
        except ValueError:
            return "xla"

    monkeypatch.setattr("jax_engine.operations.table.on_numba", lambda dtype: False)
    monkeypatch.setattr("jax_engine.operations.table.backend_for", chosen)


@pytest.mark.slow
@pytest.mark.parametrize("case", ["gptq", "gptq-act-order"])
def test_logits_of_a_prompt_and_of_tokens_after_it(case: str, tmp_path: Path) -> None:
    """They are as near to the oracle's as those of the same numbers in bfloat16."""
    decoded = write_quantised(tmp_path, case)
    expected = reference_logits(CONFIG, PROMPT + MORE, decoded)
    errors = []
    for quantization, held in ((None, CodedStacks), ("dequantized", IndexedDense)):
        files = open_model(str(tmp_path), dtype=BFLOAT16, quantization=quantization)
        formats = {one.format for one in files.leaves.values() if one.layers is not None}
        assert {type(one) for one in formats if one is not None} == {held}
        model = files.load()
        run = PagedRun(model.config, model.graphdef, model.params)
        run.kv_cache = run.kv_cache.astype(BFLOAT16)
        found = np.concatenate([run.feed(PROMPT), *(run.feed([token]) for token in MORE)])
        errors.append(np.abs(found.astype(np.float64) - expected).max())
    assert errors[0] <= 1.5 * errors[1] < 0.05 * np.abs(expected).max()
