"""This engine."""

from importlib.metadata import version

from engine_loop import make_run
from wire import serve


def load(settings):
    from jax_engine import LLM, SamplingParams

    llm = LLM(
        settings["model"],
        dtype=settings["dtype"],
        max_model_len=settings["max_model_len"],
        max_num_seqs=settings["max_num_seqs"],
        num_gpu_blocks_override=settings["kv_cache_bytes"] // settings["kv_bytes_per_token"] // 16,
        block_size=16,
        skip_tokenizer_init=True,
        load_format=settings["load_format"],
    )
    versions = {name: version(name) for name in ("jax", "jaxlib")}
    return make_run(llm.llm_engine, SamplingParams), versions


if __name__ == "__main__":
    serve(load)
