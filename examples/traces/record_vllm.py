"""Records the traces vllm-*.json here: vLLM's own V1 scheduler, and a rule that draws tokens.

    python record_vllm.py FOLDER OUTPUT      FOLDER has the config.json of any small Llama

It needs vLLM and PyTorch, and neither weights nor a GPU. The traces here are of vLLM 0.33.0.
"""

import sys
from pathlib import Path
from typing import Any

import torch
from vllm.config import CacheConfig, DeviceConfig, ModelConfig, SchedulerConfig, VllmConfig
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager
from vllm_v1 import Tracer

BLOCK, LONGEST, BUDGET = 16, 128, 64
BEGINNING = list(range(1, 33))
SCENES = {
    "roomy": (40, {"A": (1, [*BEGINNING, 40, 41, 42], 6), "B": (2, [*BEGINNING, 50, 51], 5),
                   "C": (2, list(range(60, 75)), 8)},
              "Three requests, two of which begin alike; room for all."),
    "tight": (9, {"A": (1, list(range(1, 41)), 24), "B": (1, list(range(60, 100)), 24),
                  "C": (2, list(range(110, 140)), 12)},
              "Three requests on eight blocks."),
}  # fmt: skip
"""Blocks; of each request the step before which it arrives, its prompt and max_tokens."""


def scheduler(folder: str, blocks: int) -> Any:
    cache = CacheConfig(block_size=BLOCK, enable_prefix_caching=True)
    config = VllmConfig(
        model_config=ModelConfig(
            model=folder, skip_tokenizer_init=True, dtype="float32", max_model_len=LONGEST
        ),
        scheduler_config=SchedulerConfig(
            max_num_seqs=8, max_num_batched_tokens=BUDGET, max_model_len=LONGEST,
            is_encoder_decoder=False, async_scheduling=False,
        ),
        cache_config=cache,
        device_config=DeviceConfig("cpu"),
    )  # fmt: skip
    cache.num_gpu_blocks = blocks
    spec = FullAttentionSpec(block_size=BLOCK, num_kv_heads=2, head_size=16, dtype=torch.float32)
    groups = KVCacheConfig(blocks, [], [KVCacheGroupSpec(["layer"], spec)])
    return Scheduler(config, groups, StructuredOutputManager(config), BLOCK)


def record(folder: str, blocks: int, requests: Any, about: str) -> Tracer:
    """Steps until all have ended."""
    own, hasher = scheduler(folder, blocks), get_request_block_hasher(BLOCK, sha256)
    tracer, step = Tracer(own, about), 0
    while step == 0 or own.has_requests():
        step += 1
        for name, (arrives, prompt, longest) in requests.items():
            if arrives == step:
                params = SamplingParams(max_tokens=longest, ignore_eos=True, temperature=0.0)
                own.add_request(Request(name, prompt, params, None, block_hasher=hasher))
        plan = own.schedule()
        names = list(plan.num_scheduled_tokens)
        drawn = [
            [100 + (7 * step + 3 * i) % 100]
            if known.num_computed_tokens >= known.num_tokens
            else []
            for i, known in enumerate(own.requests[name] for name in names)
        ]
        places = {name: i for i, name in enumerate(names)}
        own.update_from_output(plan, ModelRunnerOutput(names, places, drawn))
    return tracer


if __name__ == "__main__":
    init_none_hash(sha256)
    for name, (blocks, requests, about) in SCENES.items():
        tracer = record(sys.argv[1], blocks, requests, about)
        tracer.save(str(Path(sys.argv[2]) / f"vllm-{name}.json"))
