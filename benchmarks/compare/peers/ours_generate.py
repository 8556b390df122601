"""This engine's `LLM.generate`, with text: what its server is compared with.

As in the server, blocks of the KV cache take memory when they are first written.
"""

from importlib.metadata import version

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
        load_format=settings["load_format"],
    )

    def run(clock):
        prompts = [{"prompt_token_ids": one["prompt"]} for one in clock.requests]
        params = [
            SamplingParams(temperature=0.0, max_tokens=one["output_len"], ignore_eos=True)
            for one in clock.requests
        ]
        outputs = llm.generate(prompts, params, use_tqdm=False)
        now = clock.now()
        for index, output in enumerate(outputs):
            clock.add(index, 0, output.outputs[0].token_ids, now)

    return run, {"jax": version("jax")}


if __name__ == "__main__":
    serve(load)
