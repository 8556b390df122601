"""transformers' continuous batching: the manager behind `generate_batch`, with arrivals.

With "load_format": "dummy" (benchmarks.gpu.engine) the weights are random and on its "device", all
sizes are its own choice, and one manager with its CUDA graphs serves all passes.
"""

import os
import time

from wire import serve


def load(settings):
    import torch
    import transformers

    torch.set_num_threads(os.cpu_count())
    dtype = getattr(torch, settings["dtype"])
    keep = settings.get("load_format") == "dummy"
    kept = []
    if keep:
        config = transformers.AutoConfig.from_pretrained(settings["model"])
        with torch.device(settings["device"]):
            model = transformers.AutoModelForCausalLM.from_config(config, dtype=dtype).eval()
        most = settings["max_num_seqs"]
        sizes = transformers.ContinuousBatchingConfig(max_requests_per_batch=most)
    else:
        model = transformers.AutoModelForCausalLM.from_pretrained(settings["model"], dtype=dtype)
        model.eval()
        sizes = _sizes(transformers, settings)

    def run(clock):
        # -1: no end of sequence. Samples are requests of their own, the prompt shared as a prefix.
        sampled = any(one["n"] > 1 for one in clock.requests)
        how = {"do_sample": True, "top_k": 0} if sampled else {"do_sample": False}
        config = transformers.GenerationConfig(eos_token_id=-1, pad_token_id=0, **how)
        if kept:
            manager = kept[0]
        else:
            manager = model.init_continuous_batching(config, continuous_batching_config=sizes)
            manager.start()
        if keep:
            kept[:] = [manager]
        clock.start = time.monotonic()
        try:
            _drive(manager, clock)
        finally:
            if not keep:
                manager.stop(block=True)

    return run, {"transformers": transformers.__version__, "torch": torch.__version__}


def _sizes(transformers, settings):
    page = 256
    return transformers.ContinuousBatchingConfig(
        page_size=page,
        num_blocks=settings["kv_cache_bytes"] // settings["kv_bytes_per_token"] // page,
        max_batch_tokens=2048,
        max_requests_per_batch=settings["max_num_seqs"],
    )


def _drive(manager, clock):
    todo = [(i, s) for i, one in enumerate(clock.requests) for s in range(one["n"])]
    missing = len(todo)
    while missing:
        while todo and clock.requests[todo[0][0]]["arrival_s"] <= clock.now():
            i, sample = todo.pop(0)
            one = clock.requests[i]
            manager.add_request(
                one["prompt"],
                request_id=f"{i}-{sample}",
                max_new_tokens=one["output_len"],
                record_timestamps=True,
                eos_token_id=-1,
            )
        wait = clock.requests[todo[0][0]]["arrival_s"] - clock.now() if todo else 1.0
        result = manager.get_result(timeout=max(0.001, wait))
        if result is None:
            if manager.background_thread_status.fatal_error is not None:
                raise RuntimeError(manager.background_thread_status.fatal_error)
            continue
        if result.error:
            raise RuntimeError(result.error)
        if result.is_finished():
            _record(clock, result)
            missing -= 1


def _record(clock, result):
    """Timestamps of tokens are of `perf_counter`, which has another zero than `monotonic`."""
    index, sample = map(int, result.request_id.split("-"))
    shift = time.monotonic() - time.perf_counter() - clock.start
    for token, at in zip(result.generated_tokens, result.timestamps, strict=True):
        clock.add(index, sample, [token], at + shift)


if __name__ == "__main__":
    serve(load)
