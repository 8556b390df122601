"""vLLM's `LLMEngine` on a CPU, on a tiny random Llama, with the engine core in this process.

    paged-conformance engine --command "other/python serve_vllm.py"

where serve_vllm.py calls `serve_pipe(make)` under the Python that has vLLM. An engine takes seconds
to make, so there is one for each setting of the prefix cache, emptied between examples.
"""

import logging
import os
from importlib import import_module

from paged_conformance.adapters import tiny_llama
from paged_conformance.adapters.vllm_shaped import SIZES, WORDS, VllmShaped

BLOCKS = 24  # so few that a full batch preempts
_MADE: dict[bool, VllmShaped] = {}


def _engine(prefix_cache: bool) -> VllmShaped:
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    vllm = import_module("vllm")

    logging.getLogger("vllm").setLevel(logging.CRITICAL)
    args = vllm.EngineArgs(
        model=str(tiny_llama.folder()),
        dtype="float32",
        max_model_len=SIZES["max_len"],
        max_num_seqs=6,
        max_num_batched_tokens=SIZES["max_len"],
        num_gpu_blocks_override=BLOCKS,
        block_size=32,
        enforce_eager=True,
        enable_prefix_caching=prefix_cache,
        scheduling_policy="priority",
        seed=0,
        disable_log_stats=True,
    )
    engine = vllm.LLMEngine.from_engine_args(args)
    return VllmShaped(engine, vllm, (ValueError, TypeError))


class _Make:
    """The factory. It makes its first engine when it is asked what it can do, which takes long."""

    sizes = SIZES | {"block_size": 32, "patience": 20}

    @property
    def capabilities(self) -> set[str]:
        self(prefix_cache=True)
        return WORDS

    def __call__(self, *, prefix_cache: bool = True) -> VllmShaped:
        if not prefix_cache and not _MADE:
            prefix_cache = True
        if True not in _MADE:
            _MADE[True] = _engine(True)
        engine = _MADE[True]
        states = engine.engine.output_processor.request_states
        engine.engine.abort_request(list(states))
        while engine.is_busy():
            engine.step()
        engine.flush()
        return engine


make = _Make()
