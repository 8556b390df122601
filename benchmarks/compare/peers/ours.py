"""This engine."""

from importlib.metadata import version

from engine_loop import lora_settings, make_run
from wire import serve


def load(settings):
    from benchmarks.engines import write_kv_cache
    from jax_engine import LLM, LoRARequest, SamplingParams

    llm = LLM(
        settings["model"],
        dtype=settings["dtype"],
        max_model_len=settings["max_model_len"],
        max_num_seqs=settings["max_num_seqs"],
        num_gpu_blocks_override=settings["kv_cache_bytes"] // settings["kv_bytes_per_token"] // 16,
        block_size=16,
        skip_tokenizer_init=True,
        load_format=settings["load_format"],
        quantization=settings.get("quantization"),
        speculative_config=settings.get("speculative"),
        **lora_settings(settings),
    )
    versions = {name: version(name) for name in ("jax", "jaxlib")}
    paths = settings.get("adapters", [])
    adapters = [LoRARequest(f"adapter-{i}", i, path) for i, path in enumerate(paths, start=1)]
    run_pass = make_run(llm.llm_engine, SamplingParams, adapters)
    num_passes = 0

    def run(clock):
        """Before the second pass, which is not measured, takes the memory of the whole KV cache.

        The other engines write to theirs when they start. The first pass is start-up's.
        """
        nonlocal num_passes
        num_passes += 1
        if num_passes == 2:
            write_kv_cache(llm.llm_engine)
        run_pass(clock)

    return run, versions


if __name__ == "__main__":
    serve(load)
