"""Several devices that share a model against the oracle, which has one. Needs eight of them.

JAX makes devices of a CPU before it starts, so a process of its own runs this file: see
`test_several_devices.py`.
"""

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from jax_engine import LLM, ConfigError, SamplingParams
from jax_engine.models.model_loader import load_model
from pallas_kernels.backends import runs_cpu_kernels
from tests.support.builders import Pool, build_pair, oracle_for, parts_for
from tests.support.engine_under_test import Request
from tests.support.engine_workloads import (
    IN_OUTPUTS,
    Abort,
    Aborts,
    Service,
    aborts,
    scheduler_settings,
    suited,
    workloads,
)
from tests.support.exchanges import check_exchanges
from tests.support.in_numpy import InNumpy
from tests.support.in_process import InProcess, debug_state
from tests.support.side_by_side import SideBySide
from tests.support.tiny_llama import tiny_llama

# KV heads: two on each device, one on each, one on two of them.
TWO, FOUR, EIGHT = (
    Pool(3, 17, devices=2), Pool(8, 9, cache_dtype="int8", devices=4), Pool(5, 14, devices=8),
)  # fmt: skip
SWAPS: dict[str, Any] = {
    "scheduling": "unified", "max_num_batched_tokens": 40, "prefix_caching": True,
    "preemption_mode": "swap", "num_cpu_blocks": 60,
}  # fmt: skip
CROWD = [
    Request(
        str(i), [3 + i] * 9,
        {"temperature": 1.3 * (n > 1), "n": n, "max_tokens": 16, "ignore_eos": True, "seed": i},
        0, float(i),
    )
    for i, n in enumerate([1, 6, 1, 1])
]  # fmt: skip


def serve_both(pool: Pool, given: dict[str, Any], workload: list[Request], plan: Aborts) -> Any:
    """Serves a workload by the engine and by the oracle, side by side; returns the engine."""
    engine, reference = build_pair(pool, **given)
    exact = not given.get("async_scheduling", True)
    pair = SideBySide(InProcess(engine), InNumpy(reference), oracle_for(pool), exact=exact)
    Service(pair, [suited(one, pool, given) for one in workload], plan).run()
    return engine


@settings(max_examples=settings.default.max_examples // 2)
@given(
    pool=st.sampled_from([TWO, EIGHT]),
    given=scheduler_settings(), workload=workloads(), plan=aborts(),
)  # fmt: skip
@example(TWO, SWAPS, CROWD, {1: Abort(3, IN_OUTPUTS)})
@example(FOUR, SWAPS, CROWD, {})
def test_i30_to_i37_any_number_of_devices_gives_the_oracle_s_outputs(
    pool: Pool, given: dict[str, Any], workload: list[Request], plan: Aborts
) -> None:
    serve_both(pool, given, workload, plan)


@pytest.mark.parametrize("mode", ["swap", "recompute"])
@pytest.mark.parametrize("pool", [TWO, EIGHT])
def test_preempted_requests_go_on_as_the_oracle_s(pool: Pool, mode: str) -> None:
    engine = serve_both(pool, SWAPS | {"preemption_mode": mode}, CROWD, {})
    stats = debug_state(engine).stats
    happened = stats.num_swapped_out if mode == "swap" else stats.num_recomputed
    assert happened > 0, "the pool was large enough for all"


def test_each_device_holds_its_share_and_nothing_else() -> None:
    worker = parts_for(EIGHT).worker
    weights = [one for one in worker.steps.weights if one.ndim]
    for array in (worker.kv_cache.array, *weights):
        shards = array.addressable_shards
        assert len({shard.device for shard in shards}) == 8
        assert all(shard.data.nbytes * 8 == array.nbytes for shard in shards)
    _, kv, blocks, heads, size, dim = worker.kv_cache.array.addressable_shards[0].data.shape
    assert (kv, blocks, heads, size, dim) == (2, 14, 1, 5, 4)


def test_the_donated_cache_stays_where_it_is_on_each_device() -> None:
    """A step writes it in place."""
    worker = parts_for(TWO).worker
    cache = worker.kv_cache.array
    engine, _ = build_pair(TWO, **SWAPS)
    engine.add_request("a", {"prompt_token_ids": [3, 4, 5]}, SamplingParams(max_tokens=2))
    places = [shard.data.unsafe_buffer_pointer() for shard in cache.addressable_shards]
    while engine.has_unfinished_requests():
        engine.step()
    after = worker.kv_cache.array.addressable_shards
    assert [shard.data.unsafe_buffer_pointer() for shard in after] == places


def test_devices_talk_twice_a_layer_and_copy_neither_weights_nor_cache() -> None:
    """They also talk once for the embedding and once for the logits."""
    check_exchanges(parts_for(TWO).worker, in_layers=2)


FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {"tie_word_embeddings": True},
    "qwen3": {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3"},
    "qwen2": {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"},
    "bloom": {
        "architectures": ["BloomForCausalLM"], "model_type": "bloom", "n_layer": 2, "n_head": 8,
        "layer_norm_epsilon": 1e-5,
    },
    "gpt2": {
        "architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_layer": 2, "n_head": 8,
        "n_embd": 32, "n_positions": 64, "n_inner": 64, "layer_norm_epsilon": 1e-5,
    },
    "mixtral": {
        "architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "num_local_experts": 4,
        "num_experts_per_tok": 2,
    },
    "gpt_oss": {
        "architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "num_local_experts": 4,
        "num_experts_per_tok": 2, "sliding_window": 8,
    },
}  # fmt: skip


def configured(folder: Path, changes: dict[str, Any]) -> str:
    fields = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 45,
        "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 4,
        "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "layer_norm_eps": 1e-5,
        "tie_word_embeddings": False, "eos_token_id": 2, "bos_token_id": 1,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(fields | changes))
    return str(folder)


@pytest.mark.parametrize("name", FAMILIES)
def test_every_kind_of_layer_has_the_logits_of_one_device(name: str, tmp_path: Path) -> None:
    """Biases once, slopes and sinks by head, experts, heads that are the embedding."""
    found = []
    path = configured(tmp_path, FAMILIES[name])
    for size in (1, 4):
        llm = LLM(
            path, load_format="dummy", skip_tokenizer_init=True, num_gpu_blocks_override=20,
            max_model_len=32, seed=3, dtype="float32", max_logprobs=-1, tensor_parallel_size=size,
            batch_invariant=True,
        )  # fmt: skip
        asked = SamplingParams(temperature=0.0, max_tokens=1, prompt_logprobs=45)
        output = llm.generate({"prompt_token_ids": [*range(3, 24)]}, asked, use_tqdm=False)[0]
        assert output.prompt_logprobs is not None
        rows = [entry for entry in output.prompt_logprobs if entry is not None]
        found.append([[row[token].logprob for token in range(45)] for row in rows])
    np.testing.assert_allclose(found[0], found[1], atol=1e-5)


@pytest.mark.parametrize(
    ("dtype", "kv_heads", "sizes"), [("float32", 8, (1, 2, 4, 8)), ("bfloat16", 2, (1, 8))]
)
@pytest.mark.skipif(not runs_cpu_kernels(), reason="XLA's products are not added as a tree")
def test_i52_bits_are_the_same_on_any_number_of_devices(
    dtype: str, kv_heads: int, sizes: tuple[int, ...], tmp_path: Path
) -> None:
    """Tokens and log-probabilities; each has another block size."""
    heads = {"num_attention_heads": 16, "num_key_value_heads": kv_heads, "head_dim": 4}
    path, found = configured(tmp_path, heads), []
    for size in sizes:
        llm = LLM(
            path, load_format="dummy", skip_tokenizer_init=True, num_gpu_blocks_override=40,
            max_model_len=48, seed=3, dtype=dtype, tensor_parallel_size=size, max_num_seqs=4,
            batch_invariant=True,
            block_size=size + 3,
        )  # fmt: skip
        prompts = [[5 + i, *range(3, 3 + 7 * i)] for i in range(1, 5)]
        asked = SamplingParams(temperature=1.1, max_tokens=9, logprobs=4, seed=1, ignore_eos=True)
        given = [{"prompt_token_ids": prompt} for prompt in prompts]
        outputs = llm.generate(given, asked, use_tqdm=False)
        found.append([(one.outputs[0].token_ids, one.outputs[0].logprobs) for one in outputs])
    assert all(one == found[0] for one in found)


@pytest.mark.parametrize("size", [2, 4])
def test_the_shares_together_are_the_checkpoint(size: int, tmp_path: Path) -> None:
    path, _ = tiny_llama(tmp_path / "tiny", num_attention_heads=8, num_key_value_heads=4)
    whole = load_model(str(path)).num_parameters
    shared = load_model(str(path), tensor_parallel_size=size)
    assert shared.num_parameters == whole
    for array in jax.tree.leaves(shared.params):
        assert len(array.addressable_shards) == size


def test_more_devices_than_there_are_is_refused_with_their_number(tmp_path: Path) -> None:
    path = configured(tmp_path, {"num_attention_heads": 16, "hidden_size": 64})
    with pytest.raises(ConfigError, match=r"at most the number of devices \(8\), got 16") as error:
        LLM(
            path,
            load_format="dummy",
            skip_tokenizer_init=True,
            tensor_parallel_size=16,
            distributed_executor_backend="uni",
        )
    assert "--xla_force_host_platform_device_count=16" in str(error.value)
