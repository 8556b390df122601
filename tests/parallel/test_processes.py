"""A process for each device of a CPU: the same answers, and one end for all of them."""

import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jax_engine import LLM, LoRARequest, SamplingParams
from jax_engine.engine.startup import device_settings
from jax_engine.errors import ConfigError, EngineDeadError
from jax_engine.processes import runner_child
from jax_engine.processes.placement import own_cores
from jax_engine.step import Capabilities
from tests.engine.test_real_adapters import GREEDY, bits
from tests.engine.test_through_bytes import KINDS, SETTINGS, outputs
from tests.golden.families.checkpoints import cases
from tests.golden.families.parity import write
from tests.support.adapted import adapter_of, modules_at
from tests.support.devices import for_cpu_kernels
from tests.support.quantised_llama import quantised_llama
from tests.support.tiny_llama import byte_llama

pytestmark = [
    pytest.mark.usefixtures("patient_runners"),
    for_cpu_kernels("they meet by a kernel for a CPU"),
]
SMALL: dict[str, Any] = {
    "skip_tokenizer_init": True, "max_model_len": 40, "max_num_seqs": 8, "block_size": 4,
    "num_gpu_blocks_override": 60, "max_logprobs": -1, "dtype": "float32",
}  # fmt: skip
PROMPTS = [{"prompt_token_ids": one} for one in ([5, 6, 7, 8, 9], [3, 4], [9] * 6, [*range(3, 24)])]


@pytest.fixture(scope="module")
def of_bytes(tmp_path_factory: pytest.TempPathFactory) -> str:
    heads = {"num_attention_heads": 8, "num_key_value_heads": 4, "intermediate_size": 64}
    return str(byte_llama(tmp_path_factory.mktemp("models") / "bytes", **heads))


def pids(llm: LLM) -> list[int]:
    client = llm.llm_engine._client
    return [] if client is None else client.pids


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 4])
def test_i52_every_kind_of_request_has_the_same_bits(of_bytes: str, size: int) -> None:
    """Masks, beams, samples, embeddings: those of one device in this process."""
    given = {**SETTINGS, "num_gpu_blocks_override": 120, "batch_invariant": True}
    wanted = outputs(LLM(of_bytes, **given))
    assert set(wanted) == {*KINDS, "embedding", "embedded tokens"}
    there = LLM(of_bytes, **given, tensor_parallel_size=size)
    assert len(pids(there)) == size
    cores = [os.sched_getaffinity(pid) for pid in pids(there)]
    if size <= len(own_cores()):
        assert sum(map(len, cores)) == len(set().union(*cores)) == len(own_cores())
    assert outputs(there) == wanted


@pytest.mark.slow
@pytest.mark.parametrize(("name", "cache_dtype"), [(None, "int8"), ("minicpm3", "fp8")])
def test_each_process_swaps_its_own_share(
    of_bytes: str, name: str | None, cache_dtype: str, tmp_path: Path
) -> None:
    """The share is of an 8-bit cache, whose scales each process measures, or all latents."""
    if name is not None:
        write(cases()[name], tmp_path)
    few = {**SMALL, "num_gpu_blocks_override": 13, "preemption_mode": "swap", "swap_space": 0.01}
    few |= {"batch_invariant": True, "kv_cache_dtype": cache_dtype}
    asked = SamplingParams(n=2, temperature=1.0, seed=5, max_tokens=12, logprobs=2, ignore_eos=True)
    found, swapped = [], []
    for size in (1, 2):
        llm = LLM(of_bytes if name is None else str(tmp_path), **few, tensor_parallel_size=size)
        answers = llm.generate(PROMPTS, asked, use_tqdm=False)
        found.append([[(s.token_ids, s.logprobs) for s in one.outputs] for one in answers])
        swapped.append(llm.llm_engine.stats().num_swapped_out)
    assert found[0] == found[1] and swapped[0] == swapped[1] > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "size"),
    [("gpt_neox", 2), ("qwen2_moe", 2), ("cohere", 4), ("olmo2", 4), ("deepseek_v3", 2)],
)
def test_what_layers_say_to_each_other_is_in_one_order(
    name: str, size: int, tmp_path: Path
) -> None:
    """Attention beside its network, a shared network beside experts; fewer KV heads than ranks."""
    write(cases()[name], tmp_path)
    asked = SamplingParams(temperature=0.0, max_tokens=4, prompt_logprobs=61)
    found = []
    for each in (1, size):
        llm = LLM(str(tmp_path), **SMALL, batch_invariant=True, tensor_parallel_size=each)
        answers = llm.generate(PROMPTS, asked, use_tqdm=False)
        rows = [row for one in answers for row in one.prompt_logprobs or () if row is not None]
        found.append(np.array([[row[token].logprob for token in range(61)] for row in rows]))
    np.testing.assert_allclose(found[0], found[1], atol=1e-5)


@pytest.mark.slow
def test_each_process_has_its_part_of_adapters(of_bytes: str) -> None:
    """More of them than slots, with biases; a request without one has the bits of no slots."""
    few = {**SMALL, "num_gpu_blocks_override": 13, "preemption_mode": "swap", "swap_space": 0.01}
    asked = SamplingParams(n=2, temperature=1.0, seed=5, max_tokens=12, logprobs=2, ignore_eos=True)
    slots = {"enable_lora": True, "max_loras": 2, "max_lora_rank": 20}
    of, names = modules_at(Path(of_bytes))
    loras = [
        LoRARequest(f"a{i}", i, adapter=adapter_of(names[i % 2 :: 2], of, i, biased=i == 2))
        for i in (1, 2, 3)
    ]
    given = [None, *loras, None, *loras]
    found = []
    for size in (1, 2):
        llm = LLM(of_bytes, **few, **slots, tensor_parallel_size=size)
        assert len(pids(llm)) == size * (size > 1)
        for _ in range(2):
            outputs = llm.generate(PROMPTS * 2, asked, lora_request=given, use_tqdm=False)
            found.append([bits(one) for one in outputs])
        assert llm.llm_engine.stats().num_swapped_out > 0
    assert found[0] == found[1] and found[2] == found[3]
    assert tokens_of(found[0]) == tokens_of(found[2])
    plain = LLM(of_bytes, **few, tensor_parallel_size=2)
    bare = [bits(one) for one in plain.generate(PROMPTS[0], asked, use_tqdm=False)]
    assert [found[2][0], found[2][4]] == bare * 2
    assert len({str(one) for one in found[2]}) == 4


@pytest.mark.slow
def test_whole_rows_have_the_bits_of_one_process(tmp_path: Path) -> None:
    """Inputs are rounded, and blocks are swapped."""
    path, _ = quantised_llama(tmp_path / "model", "w8a8")
    few = {**SMALL, "num_gpu_blocks_override": 13, "preemption_mode": "swap", "swap_space": 0.01}
    asked = SamplingParams(n=2, temperature=1.0, seed=5, max_tokens=12, logprobs=2, ignore_eos=True)
    found = []
    for size in (1, 2):
        llm = LLM(str(path), **few, tensor_parallel_size=size)
        found.append([bits(one) for one in llm.generate(PROMPTS, asked, use_tqdm=False)])
        assert llm.llm_engine.stats().num_swapped_out > 0
    assert found[0] == found[1]


@pytest.mark.slow
def test_whole_experts_have_the_bits_of_one_process(tmp_path: Path) -> None:
    """Each process also has a part of a shared network."""
    write(cases()["qwen2_moe"], tmp_path)
    given: dict[str, Any] = {"enable_expert_parallel": True, "batch_invariant": True}
    found = []
    for size in (1, 2):
        llm = LLM(str(tmp_path), **SMALL, **given, tensor_parallel_size=size)
        found.append([bits(one) for one in llm.generate(PROMPTS, GREEDY, use_tqdm=False)])
    assert found[0] == found[1]


@pytest.mark.slow
def test_a_draft_model_is_whole_in_each_process(of_bytes: str) -> None:
    """Each draws the same guesses, and they change no bit."""
    asked = SamplingParams(temperature=1.0, seed=5, max_tokens=12, logprobs=2, ignore_eos=True)
    draft = {
        "model": of_bytes, "num_speculative_tokens": 3, "draft_sample_method": "probabilistic",
        "draft_tensor_parallel_size": 1, "enable_adaptive_verification": False,
    }  # fmt: skip
    found = []
    for given in ({}, {"speculative_config": draft}):
        llm = LLM(of_bytes, **SMALL, **given, tensor_parallel_size=2)
        outputs = llm.generate(PROMPTS, asked, use_tqdm=False)
        found.append([bits(one) for one in outputs])
    assert found[0] == found[1]
    assert sum(one.metrics.num_accepted_tokens for one in outputs if one.metrics) > 0


def tokens_of(found: list[Any]) -> list[Any]:
    return [[tokens for tokens, _ in sequences] for sequences in found]


@pytest.mark.slow
@pytest.mark.parametrize(("rank", "number"), [(1, signal.SIGKILL), (0, signal.SIGSTOP)])
def test_the_end_of_one_is_the_end_of_all(
    of_bytes: str, rank: int, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends in the middle of a step, while the others wait for it."""
    llm = LLM(of_bytes, **SMALL, tensor_parallel_size=2)
    llm.generate(PROMPTS[0], SamplingParams(max_tokens=2), use_tqdm=False)
    every, monkeys = pids(llm), []
    step = llm.llm_engine._pipeline.step

    def stepped(*given: Any) -> Any:
        monkeys.append(0)
        if len(monkeys) == 4:
            os.kill(every[rank], number)
        return step(*given)

    monkeypatch.setattr(llm.llm_engine._pipeline, "step", stepped)
    monkeypatch.setattr(runner_child, "SILENCE_S", 2.0)
    with pytest.raises(EngineDeadError, match=f"rank {rank}"):
        llm.generate(PROMPTS, SamplingParams(max_tokens=30, ignore_eos=True), use_tqdm=False)
    assert not any(Path(f"/proc/{pid}").exists() for pid in every)


def test_what_does_not_fit_is_refused_as_in_one_process(of_bytes: str) -> None:
    with pytest.raises(ConfigError, match=r"8 heads, 4 KV heads .*: 1, 2, 4 or 8, got 3"):
        LLM(of_bytes, **SMALL, tensor_parallel_size=3)


def test_processes_with_different_sizes_are_refused() -> None:
    one = Capabilities(3, 4, 10, 0, 10, 64)
    device_settings.check_alike([[one], [one]])
    with pytest.raises(ConfigError, match="rank 1 has 9 KV blocks, and rank 0 10"):
        device_settings.check_alike([[one], [replace(one, num_blocks=9)]])
