"""Weights that are held as codes, cut over devices. Needs eight of them: `test_several_devices.py`.

A device's share of a matrix is the whole one's rows or columns, with their scales. So its products
add up to those of one device, but for the order of the additions.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jax_engine import LLM, ConfigError, SamplingParams
from jax_engine.models.load import load_model
from tests.models.test_quantised_models import CASES, CONFIG, DECODED, write_mxfp4, write_quantised
from tests.support.quantised_llama import quantised_llama

# Two devices have two groups of each row of the network; four have half a group of attention's.
WIDER = CONFIG | {"intermediate_size": 128}
CUT = [case for case in [*CASES, *DECODED] if case != "gptq-act-order"]


def logits(path: Path, size: int, **settings: Any) -> np.ndarray:
    """The log-probabilities of all tokens after each of a prompt, and behind it."""
    llm = LLM(
        str(path), skip_tokenizer_init=True, num_gpu_blocks_override=20, max_model_len=32,
        dtype="float32", max_logprobs=-1, tensor_parallel_size=size, **settings,
    )  # fmt: skip
    asked = SamplingParams(temperature=0.0, max_tokens=4, prompt_logprobs=-1, logprobs=-1)
    prompt = [5, 3, 17, 20, 3, 3, 30, 6, 11]
    (output,) = llm.generate({"prompt_token_ids": prompt}, asked, use_tqdm=False)
    entries = [*(output.prompt_logprobs or [])[1:], *(output.outputs[0].logprobs or [])]
    return np.array([[row[token].logprob for token in sorted(row)] for row in entries])


@pytest.mark.parametrize("case", CUT)
def test_devices_have_the_logits_of_one(case: str, tmp_path: Path) -> None:
    write_quantised(tmp_path, case, WIDER)
    one = logits(tmp_path, 1)
    for size in (2, 4):
        np.testing.assert_allclose(logits(tmp_path, size), one, atol=2e-5)
        given: dict[str, Any] = {"tensor_parallel_size": size}
        coded, plain = (
            load_model(str(tmp_path), quantization=quantization, **given).num_bytes
            for quantization in (None, "dequantized")
        )
        assert (coded < plain) == (case in CASES)


def test_types_that_meet_in_a_matrix(tmp_path: Path) -> None:
    path, _ = quantised_llama(tmp_path / "gguf", "gguf")
    np.testing.assert_allclose(logits(path, 2), logits(path, 1), atol=2e-5)


def test_experts_in_mxfp4(tmp_path: Path) -> None:
    write_mxfp4(tmp_path)
    np.testing.assert_allclose(logits(tmp_path, 2), logits(tmp_path, 1), atol=2e-5)


def test_groups_that_a_cut_would_divide_are_named_with_the_sizes_that_fit(tmp_path: Path) -> None:
    write_quantised(tmp_path, "gptq", CONFIG)
    wanted = r"groups of 32 columns whole .* of the 96 of layers.mlp.down.weight: 1, got 2"
    with pytest.raises(ConfigError, match=wanted):
        logits(tmp_path, 2)
    assert len(logits(tmp_path, 2, quantization="dequantized"))


def test_what_no_cut_fits_is_refused_by_name(tmp_path: Path) -> None:
    write_quantised(tmp_path, "gptq-act-order", WIDER)
    with pytest.raises(ConfigError, match=r"another order of columns \(g_idx of .*\), got 2"):
        logits(tmp_path, 2)
    with pytest.raises(ConfigError, match=r"inputs are rounded to 8 bits.*got 4"):
        logits(tmp_path, 4, quantization="w8a8")
