"""The setting `batch_invariant`: what it asks for by device, what is refused, and whole engines."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import pytest

from jax_engine import LLM, ConfigError, EngineConfig, SamplingParams
from jax_engine.engine.startup import build, device_settings, engine_memory
from jax_engine.engine.startup.device_settings import (
    VARIABLE,
    check_invariant,
    needs_invariant_kernels,
)
from jax_engine.models.model_loader import open_model
from jax_engine.operations import device as operations
from jax_engine.operations.device import Device
from pallas_kernels.triton import attention
from pallas_kernels.tuning import TritonDecodeConfig, TritonPrefillConfig
from tests.golden.families.checkpoints import cases
from tests.golden.families.parity import write


@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch) -> Callable[[Device], None]:
    """Lets this machine count as another device."""
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(operations, "choose_backend", lambda name: name)

    def set_device(device: Device) -> None:
        for module in (device_settings, operations):
            monkeypatch.setattr(module, "this_device", lambda: device)

    return set_device


GPU, TPU = Device("gpu", invariance="asked"), Device("tpu")


@pytest.mark.parametrize(("said", "expected"), [("", False), ("0", False), ("1", True)])
def test_the_variable_of_vllm_is_the_default(
    said: str, expected: bool, on: Callable[[Device], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    on(GPU)
    monkeypatch.setenv(VARIABLE, said)
    assert needs_invariant_kernels(EngineConfig()) == expected
    assert needs_invariant_kernels(EngineConfig(batch_invariant=True))
    assert not needs_invariant_kernels(EngineConfig(batch_invariant=False))


def test_a_variable_that_says_nothing_clear_is_refused(
    on: Callable[[Device], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    on(GPU)
    monkeypatch.setenv(VARIABLE, "yes")
    with pytest.raises(ConfigError, match=f"{VARIABLE} must be 0 or 1, got 'yes'"):
        needs_invariant_kernels(EngineConfig())
    assert not needs_invariant_kernels(
        EngineConfig(batch_invariant=False)
    )  # the setting comes first


def test_devices_without_such_kernels_refuse_it(
    on: Callable[[Device], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    on(TPU)
    assert not needs_invariant_kernels(EngineConfig())
    with pytest.raises(ConfigError, match=r"cannot be True here: only CPUs and NVIDIA .* a tpu"):
        needs_invariant_kernels(EngineConfig(batch_invariant=True))
    on(GPU)
    with monkeypatch.context() as amd:
        amd.setattr(operations, "gfx_version", lambda: "gfx942")
        with pytest.raises(ConfigError, match=r"cannot be True here: .* is an AMD gfx942"):
            needs_invariant_kernels(EngineConfig(batch_invariant=True))

    def older(name: str) -> str:
        raise ValueError("'triton' lacks a GPU of sm_80 or newer (the device is sm_75)")

    monkeypatch.setattr(operations, "choose_backend", older)
    with pytest.raises(ConfigError, match=r"batch_invariant cannot be True here: .*sm_80"):
        needs_invariant_kernels(EngineConfig(batch_invariant=True))


@pytest.mark.parametrize("asked", [True, False, None])
def test_on_a_cpu_it_changes_nothing(asked: bool | None, tiny: str) -> None:
    """All its kernels add in one order anyway, so the engine is the same."""
    config = EngineConfig(batch_invariant=asked)
    assert not needs_invariant_kernels(config)
    llm = LLM(tiny, skip_tokenizer_init=True, num_gpu_blocks_override=16, batch_invariant=asked)
    worker: Any = llm.llm_engine.worker
    assert not worker.steps.batch_invariant


@pytest.mark.parametrize(
    ("name", "lacking"),
    [
        ("qwen2_moe", "a mixture of experts"),
        ("minicpm3", "latent attention"),
        ("gemma3", "windows that differ between layers"),
    ],
)
def test_a_model_with_sums_that_have_no_such_kernel_is_refused(
    name: str, lacking: str, tmp_path: Path
) -> None:
    write(cases()[name], tmp_path)
    config = open_model(str(tmp_path)).abstract.config
    with pytest.raises(ConfigError, match=f"cannot be True for {lacking}"):
        check_invariant(config, jnp.bfloat16, jnp.bfloat16)


def test_what_triton_s_attention_lacks_is_refused(tiny: str) -> None:
    config = open_model(tiny).abstract.config
    check_invariant(config, jnp.float32, jnp.float32)
    check_invariant(config, jnp.bfloat16, jnp.int8)
    with pytest.raises(ConfigError, match="float32 with a cache of int8"):
        check_invariant(config, jnp.float32, jnp.int8)


def test_quantised_weights_are_refused_when_they_are_opened(tiny: str) -> None:
    with pytest.raises(ConfigError, match=r"needs weights that are held as numbers.*'w8a8'"):
        open_model(tiny, quantization="w8a8", batch_invariant=True)


PROMPTS = [[5 + i % 23 for i in range(41)], [9], [12]]
CONFIGS = {"triton_decode": TritonDecodeConfig(16), "triton_prefill": TritonPrefillConfig()}
PARAMS = SamplingParams(temperature=0.0, max_tokens=4, ignore_eos=True, logprobs=2)


@pytest.mark.slow
def test_i52_whole_engines_with_a_gpu_s_kernels(tiny: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Interpreted. Alone, and beside others in chunks of 20 tokens, with a rest of one token.

    That rest is in a step of one token each, and would have other bits as a decode.
    """
    for module in (build, engine_memory):
        name = "needs_invariant_kernels"
        monkeypatch.setattr(module, name, lambda config: bool(config.batch_invariant))
    monkeypatch.setattr(attention, "lookup", lambda kernel, *_: CONFIGS[kernel])

    def run(prompts: list[list[int]], budget: int) -> list[Any]:
        llm = LLM(
            tiny, skip_tokenizer_init=True, num_gpu_blocks_override=32, block_size=4,
            max_model_len=48, max_num_seqs=3, max_num_batched_tokens=budget, batch_invariant=True,
        )  # fmt: skip
        worker: Any = llm.llm_engine.worker
        assert worker.steps.batch_invariant
        outputs = llm.generate(prompts, PARAMS, use_tqdm=False)
        return [
            [(token, {i: one.logprob for i, one in each.items()}) for token, each in
             zip(output.outputs[0].token_ids, output.outputs[0].logprobs or [], strict=True)]
            for output in outputs
        ]  # fmt: skip

    alone = [run([prompt], 48)[0] for prompt in PROMPTS[:2]]
    assert run(PROMPTS, 20)[:2] == alone
