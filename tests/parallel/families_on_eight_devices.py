"""Families whose layers are cut in another way than Llama's. Needs eight devices.

Each is held to transformers' greedy tokens, and to the bits of one device; see
`test_several_devices.py`.
"""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from jax_engine import LLM, SamplingParams
from jax_engine.config.engine_config import EngineConfig
from jax_engine.engine.startup.build import build_engine
from pallas_kernels.backends import runs_cpu_kernels
from tests.golden.families.checkpoints import NUM_GREEDY, PROMPT, cases, goldens
from tests.golden.families.parity import write
from tests.support.exchanges import check_exchanges

CASES, GOLDENS = cases(), goldens()
SMALL: dict[str, Any] = {
    "skip_tokenizer_init": True, "dtype": "float32", "block_size": 4, "max_model_len": 48,
    "num_gpu_blocks_override": 20, "max_num_seqs": 3, "swap_space": 0.01,
}  # fmt: skip


class Answers(NamedTuple):
    tokens: list[list[int]]
    logprobs: np.ndarray
    preemptions: int


def answers(path: Path, size: int, mode: str = "swap", **settings: Any) -> Answers:
    """Three requests of 44 tokens in 80 places: prompts in chunks of 7, and someone must wait."""
    llm = LLM(
        str(path), **SMALL | settings, tensor_parallel_size=size, preemption_mode=mode,
        enable_prefix_caching=True, enable_chunked_prefill=True, max_num_batched_tokens=7,
        distributed_executor_backend="uni", batch_invariant=True,
    )  # fmt: skip
    asked = SamplingParams(temperature=0.0, max_tokens=NUM_GREEDY, ignore_eos=True, logprobs=3)
    outputs = llm.generate([PROMPT, PROMPT[:20], PROMPT], asked, use_tqdm=False)
    tokens = [one.outputs[0].token_ids for one in outputs]
    rows = [row for one in outputs for row in one.outputs[0].logprobs or ()]
    logprobs = np.array([[one.logprob for one in row.values()] for row in rows])
    return Answers(tokens, logprobs, llm.llm_engine.scheduler.num_preemptions[mode])


# With how many devices, and whether all have the bits of one: sums of experts are in no tree.
SHARED = {
    "olmo2": ((2, 4), True),  # four devices have a KV head twice
    "olmo3": ((4,), True),
    "olmoe": ((2,), False),
    "mpt": ((2,), True),  # a layer norm over all heads, with a bias
    "minicpm3": ((2, 4), True),  # latents
    "deepseek_v2_lite": ((2,), False),  # and experts; queries without a latent
    "deepseek_v3": ((4,), False),
    "minimax_m2": ((2, 4), False),  # a norm over all heads, and experts
    "llama4": ((2,), False),  # chunks, and weights of experts' inputs
    "apertus": ((2,), True),  # a learned activation
    "hunyuan_v1_dense": ((2, 4), True),  # norms behind RoPE
}  # fmt: skip


@pytest.mark.parametrize("mode", ["swap", "recompute"])
@pytest.mark.parametrize("name", SHARED)
def test_i52_a_family_s_answers_are_those_of_one_device(
    name: str, mode: str, tmp_path: Path
) -> None:
    """They are transformers' tokens too, under chunks, preemption and prefixes."""
    write(CASES[name], tmp_path)
    sizes, same_bits = SHARED[name]
    one = answers(tmp_path, 1, mode)
    expected = GOLDENS[f"{name}.tokens"].tolist()
    assert [one.tokens[place] for place in (0, 2)] == [expected, expected]
    for size in sizes:
        found = answers(tmp_path, size, mode)
        assert found.preemptions == one.preemptions > 0
        assert found.tokens == one.tokens
        within = 0 if same_bits and runs_cpu_kernels() else 1e-5
        np.testing.assert_allclose(found.logprobs, one.logprobs, rtol=0, atol=within)


@pytest.mark.parametrize(
    ("name", "cache_dtype"), [("olmo2", "int8"), ("olmo2", "fp8"), ("minicpm3", "fp8")]
)
def test_a_family_s_cache_of_8_bits_is_that_of_one_device(
    name: str, cache_dtype: Any, tmp_path: Path
) -> None:
    write(CASES[name], tmp_path)
    one, two = (answers(tmp_path, size, kv_cache_dtype=cache_dtype) for size in (1, 2))
    assert one.tokens == two.tokens and one.preemptions == two.preemptions > 0
    within = 0 if runs_cpu_kernels() else 1e-5
    np.testing.assert_allclose(two.logprobs, one.logprobs, rtol=0, atol=within)


def test_each_device_has_all_latents_and_its_heads(tmp_path: Path) -> None:
    """A block is on all of them, and is swapped out once."""
    write(CASES["minicpm3"], tmp_path)
    counts = []
    for size in (1, 4):
        config = EngineConfig(
            model=str(tmp_path), **SMALL | {"num_gpu_blocks_override": None},
            kv_cache_memory_bytes=2**20, tensor_parallel_size=size, max_num_batched_tokens=48,
            distributed_executor_backend="uni",
        )  # fmt: skip
        parts = build_engine(config)
        counts.append((parts.memory.num_blocks, parts.memory.block))
    (blocks, size), (fewer, larger) = counts
    assert larger == 4 * size and fewer == blocks // 4  # they share this machine's memory
    cache = parts.worker.kv_cache  # type: ignore[attr-defined]
    shards = cache.array.addressable_shards
    assert [shard.data.shape for shard in shards] == [cache.shape] * 4
    assert len({shard.device for shard in shards}) == 4
    assert cache.host.block_shape == (*cache.shape[:2], *cache.shape[3:])


# Two sums, and what a norm over all heads together reads.
EXCHANGES = {"olmo2": 3, "minicpm3": 2}


@pytest.mark.parametrize("name", EXCHANGES)
def test_a_family_s_devices_talk_no_more_than_they_must(name: str, tmp_path: Path) -> None:
    write(CASES[name], tmp_path)
    config = EngineConfig(
        model=str(tmp_path), **SMALL, tensor_parallel_size=2, distributed_executor_backend="uni"
    )
    check_exchanges(build_engine(config).worker, in_layers=EXCHANGES[name])
