"""vLLM 0.33.0: a request waits for ever where its padded step is more than the budget of a step.

I20: what was added ends, if steps go on.

A waiting request that lacks one token of a found prefix is padded to `1 + num_speculative_tokens`,
so that its step has the form of other decodes. `Scheduler.schedule` (scheduler.py, line 1325) stops
looking at waiting requests where that is more than `request_token_budget`. The comment there says
that it is better not to schedule it in this step than without padding. Where the whole budget is
smaller than the padded step, no later step is better: nothing runs, nothing is scheduled, and what
waits behind the request waits as well.

The configuration allows it. `_set_max_num_scheduled_tokens` refuses a `max_num_batched_tokens` that
is no more than `num_lookahead_tokens`, which is 0 for drafts of n-grams. With draft models,
`max_num_new_slots_for_drafting` is taken off the budget as well, and is not counted there. Padding
only where a whole step has room (`max_num_batched_tokens` less those slots, not what is left of it)
would end the wait.

    python vllm_padded_for_drafts.py

It needs vLLM, and no GPU and no weights. With a BUDGET of 5 all requests end.
"""

import json
import os
import tempfile
from pathlib import Path

os.environ.setdefault("VLLM_TARGET_DEVICE", "cpu")

import torch
import vllm
from vllm import SamplingParams
from vllm.config import (
    CacheConfig,
    DeviceConfig,
    ModelConfig,
    ParallelConfig,
    SchedulerConfig,
    SpeculativeConfig,
    VllmConfig,
)
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

DRAFTS = 4
BUDGET = 4
BLOCK = 2
BLOCKS = 32
LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 100,
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
    "max_position_embeddings": 64,
}


def scheduler():
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(LLAMA))
        model = ModelConfig(model=folder, skip_tokenizer_init=True, dtype="float32")
        drafts = SpeculativeConfig(
            target_model_config=model,
            target_parallel_config=ParallelConfig(),
            method="ngram",
            num_speculative_tokens=DRAFTS,
            prompt_lookup_max=2,
        )
        steps = SchedulerConfig(
            max_num_seqs=2,
            max_num_batched_tokens=BUDGET,
            max_model_len=64,
            is_encoder_decoder=False,
        )
        config = VllmConfig(
            model_config=model,
            scheduler_config=steps,
            cache_config=CacheConfig(block_size=BLOCK, enable_prefix_caching=True),
            speculative_config=drafts,
            device_config=DeviceConfig("cpu"),
        )
    config.cache_config.num_gpu_blocks = BLOCKS
    spec = FullAttentionSpec(block_size=BLOCK, num_kv_heads=1, head_size=16, dtype=torch.float32)
    groups = [KVCacheGroupSpec(["layer"], spec)]
    return Scheduler(
        vllm_config=config,
        kv_cache_config=KVCacheConfig(BLOCKS, kv_cache_tensors=[], kv_cache_groups=groups),
        structured_output_manager=StructuredOutputManager(config),
        block_size=BLOCK,
        hash_block_size=BLOCK,
    )


def request(name, prompt):
    params = SamplingParams(max_tokens=1, ignore_eos=True)
    hasher = get_request_block_hasher(BLOCK, sha256)
    return Request(name, prompt, params, None, block_hasher=hasher)


def step(scheduler):
    """One step, which draws the token 7 for each of its rows."""
    plan = scheduler.schedule()
    names = list(plan.num_scheduled_tokens)
    rows = {name: row for row, name in enumerate(names)}
    scheduler.update_from_output(plan, ModelRunnerOutput(names, rows, [[7] for _ in names]))
    return plan.num_scheduled_tokens


print("vLLM", vllm.__version__)
init_none_hash(sha256)
under_test = scheduler()
under_test.add_request(request("first", [1, 2]))
print("step 0:", step(under_test))
under_test.add_request(request("second", [1, 2, 3]))  # of which the block [1, 2] is found
under_test.add_request(request("third", [4]))
for number in range(1, 6):
    print(f"step {number}:", step(under_test))
assert not under_test.requests, f"nothing runs, and these wait: {sorted(under_test.requests)}"
print("as it should be")
