"""Several devices: `on_eight_devices.py` runs in a process that has eight."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from jax_engine import LLM, SamplingParams
from tests.meta.trees import ROOT
from tests.support.tiny_llama import tiny_llama

DEVICES = "--xla_force_host_platform_device_count=8"


@pytest.mark.slow
def test_models_on_several_devices() -> None:
    """I30 to I37 for tensor_parallel_size 2, 4 and 8; what each device holds."""
    run_on_eight_devices("on_eight_devices.py")


@pytest.mark.slow
def test_codes_on_several_devices() -> None:
    run_on_eight_devices("codes_on_eight_devices.py")


@pytest.mark.slow
def test_families_on_several_devices() -> None:
    run_on_eight_devices("families_on_eight_devices.py")


@pytest.mark.slow
def test_adapters_on_several_devices() -> None:
    run_on_eight_devices("adapters_on_eight_devices.py")


@pytest.mark.slow
def test_experts_on_several_devices() -> None:
    run_on_eight_devices("experts_on_eight_devices.py")


@pytest.mark.slow
def test_draft_models_on_several_devices() -> None:
    run_on_eight_devices("drafts_on_eight_devices.py")


def run_on_eight_devices(name: str) -> None:
    flags = f"{os.environ.get('XLA_FLAGS', '')} {DEVICES}".strip()
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    ended = subprocess.run(
        [*command, f"tests/parallel/{name}"],
        cwd=ROOT,
        env=os.environ | {"XLA_FLAGS": flags},
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stdout[-6000:]


@pytest.mark.slow
def test_a_cpu_s_devices_are_in_a_process_that_has_them(tmp_path: Path) -> None:
    """This one has a device; the other has as many as are asked for, and the same bits."""
    path, _ = tiny_llama(tmp_path / "tiny", num_attention_heads=8, num_key_value_heads=4)
    settings: dict[str, Any] = {
        "skip_tokenizer_init": True, "max_model_len": 32, "num_gpu_blocks_override": 24,
        "dtype": "float32", "swap_space": 0.01,
    }  # fmt: skip
    params = SamplingParams(temperature=1.0, seed=5, max_tokens=8, logprobs=2, ignore_eos=True)
    prompts = [{"prompt_token_ids": [3 + i] * (3 + i)} for i in range(4)]
    found = []
    for size in (1, 2):
        llm = LLM(str(path), tensor_parallel_size=size, batch_invariant=True, **settings)
        assert (llm.llm_engine._client is None) == (size == 1)
        outputs = llm.generate(prompts, params, use_tqdm=False)
        found.append([(one.outputs[0].token_ids, one.outputs[0].logprobs) for one in outputs])
    assert found[0] == found[1]
