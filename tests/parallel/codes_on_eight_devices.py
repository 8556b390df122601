"""Weights that are held as codes, cut over devices. Needs eight of them: `test_several_devices.py`.

A device's share of a matrix is the whole one's rows or columns, with their scales. So its products
add up to those of one device, but for the order of the additions. Where a row cannot be cut, each
has some whole ones, and the bits of one device.
"""

import functools
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from flax import nnx
from hypothesis import example, given, settings
from hypothesis import strategies as st

from jax_engine import LLM, SamplingParams
from jax_engine.models.model_loader import load_model
from jax_engine.worker.worker import Worker
from tests.golden import tiny_checkpoints as tiny
from tests.golden.families.checkpoints import cases
from tests.golden.families.parity import write
from tests.models.checkpoints import write_checkpoint
from tests.models.test_quantised_models import CASES, CONFIG, DECODED, write_mxfp4, write_quantised
from tests.parallel.on_eight_devices import CROWD, SWAPS, serve_both
from tests.support.adapted import adapter_of, beside, modules_at, worker_of
from tests.support.builders import Pool
from tests.support.engine_under_test import Request
from tests.support.engine_workloads import (
    IN_OUTPUTS,
    Abort,
    Aborts,
    aborts,
    scheduler_settings,
    workloads,
)
from tests.support.exchanges import check_exchanges
from tests.support.quantised_llama import quantised_llama

# Two devices have two groups of each row of the network; four have half a group of attention's.
WIDER = CONFIG | {"intermediate_size": 128}


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


@pytest.mark.parametrize("case", [*CASES, *DECODED])
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


def test_groups_that_a_cut_would_divide_are_of_whole_rows(tmp_path: Path) -> None:
    """96 columns have groups of 32, so the devices exchange their parts of x instead."""
    write_quantised(tmp_path, "gptq", CONFIG)
    one = logits(tmp_path, 1)
    for size in (2, 4):
        np.testing.assert_allclose(logits(tmp_path, size), one, atol=2e-5)
    worker = worker_of(tmp_path, loras=0, tensor_parallel_size=2)
    assert [cut_of(worker, name) for name in ("attention.o", "mlp.down")] == ["columns", "rows"]
    check_exchanges(worker, in_layers=3)


def cut_of(worker: Worker, module: str) -> str:
    """How a layer's product is cut whose inputs devices share."""
    held = nnx.merge(*jax.tree.unflatten(worker.steps._structure, worker.steps.weights)[:2])
    layer = held.groups[0].places[0]
    linear = functools.reduce(getattr, module.split("."), layer)
    return "rows" if linear.whole_rows else "columns"


@pytest.mark.parametrize("case", ["gptq-act-order", "w8a8"])
def test_rows_that_cannot_be_cut_have_the_bits_of_one_device(case: str, tmp_path: Path) -> None:
    """Their columns lie in another order, or their inputs are rounded by the largest number.

    Each device has some rows, whole, of both products whose inputs devices share; all others were
    cut by rows before. A width of 64 is no multiple of three devices.
    """
    settings: dict[str, Any] = {}
    config = WIDER | {"num_attention_heads": 12, "num_key_value_heads": 6, "head_dim": 8}
    config |= {"intermediate_size": 96, "hidden_size": 64}
    if case == "w8a8":
        write_checkpoint(tmp_path, config, tiny.weights(config))
        settings["quantization"] = "w8a8"
    else:
        write_quantised(tmp_path, case, config)
    one = logits(tmp_path, 1, **settings)
    for size in (2, 3, 6):
        assert np.array_equal(logits(tmp_path, size, **settings), one)
    worker = worker_of(tmp_path, loras=0, tensor_parallel_size=2, **settings)
    assert [cut_of(worker, name) for name in ("attention.o", "mlp.down")] == ["rows"] * 2
    check_exchanges(worker, in_layers=4)


# Experts beside a shared network; attention beside its network, with biases; latents.
ROUNDED = [("qwen2_moe", 2), ("gpt_neox", 2), ("deepseek_v3", 2), ("cohere", 4), ("gpt2", 2)]


@pytest.mark.parametrize(("case", "size"), ROUNDED)
def test_families_with_rounded_inputs_have_the_bits_of_one_device(
    case: str, size: int, tmp_path: Path
) -> None:
    write(cases()[case], tmp_path)
    given: dict[str, Any] = {"quantization": "w8a8"}
    assert np.array_equal(logits(tmp_path, size, **given), logits(tmp_path, 1, **given))


def test_random_numbers_are_rounded_as_on_one_device(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, WIDER, tiny.weights(WIDER))
    given: dict[str, Any] = {"quantization": "w8a8", "load_format": "dummy"}
    assert np.array_equal(logits(tmp_path, 4, **given), logits(tmp_path, 1, **given))


@pytest.mark.parametrize("method", ["gptq", "w8a8"])
def test_adapters_beside_whole_rows(method: str, tmp_path: Path) -> None:
    """An adapter multiplies x before it is rounded, with all columns of A: the bits of one."""
    path, _ = quantised_llama(tmp_path / "model", method)
    of, names = modules_at(path)
    own = [one for one in names if "layers." in one]
    adapter = adapter_of(own, of, 0, size=0.2, biased=True)
    found = []
    for size in (1, 2, 4):
        found.append(np.array(beside(worker_of(path, tensor_parallel_size=size), adapter)))
    assert found[0].tobytes() == found[1].tobytes() == found[2].tobytes()


ROWS = [Pool(3, 17, devices=2, weights="w8a8"), Pool(8, 9, devices=4, weights="gptq")]


@settings(max_examples=settings.default.max_examples // 4)
@given(
    pool=st.sampled_from(ROWS),
    given=scheduler_settings(), workload=workloads(), plan=aborts(),
)  # fmt: skip
@example(ROWS[0], SWAPS, CROWD, {1: Abort(3, IN_OUTPUTS)})
@example(ROWS[1], SWAPS | {"preemption_mode": "recompute"}, CROWD, {})
def test_i30_to_i37_devices_with_whole_rows_give_the_oracle_s_outputs(
    pool: Pool, given: dict[str, Any], workload: list[Request], plan: Aborts
) -> None:
    serve_both(pool, given, workload, plan)
