"""Throughput and latency of the engine on requests with ShareGPT lengths (§6 of the paper).

    python -m benchmarks throughput --request-rate 0.5       Poisson, one request in two seconds

Greedy decoding of random token ids, each output as long as in the trace. The engine is driven step
by step through `LLM.llm_engine`. A first, shorter pass compiles the step shapes, unmeasured.
"""

import argparse
import resource
import time
from typing import Any

import jax
import numpy as np

from benchmarks.registry import Benchmark, Figures, flag, positive
from benchmarks.tiny import measured_llm
from benchmarks.workload import Request, sharegpt_requests
from jax_engine import LLM, LLMEngine, RequestOutput, SamplingParams

WARMUP_OUTPUT = 24


def drive(
    engine: LLMEngine, requests: list[Request], label: str
) -> tuple[float, list[tuple[float, RequestOutput]]]:
    """Runs a trace to its end.

    Returns:
        Seconds from the start to the last token; for each request its arrival on the clock of
        `RequestMetrics` and its last output.
    """
    start = time.monotonic()
    arrivals: dict[str, float] = {}
    done: list[tuple[float, RequestOutput]] = []
    submitted = 0
    while submitted < len(requests) or engine.has_unfinished_requests():
        now = time.monotonic()
        while submitted < len(requests) and start + requests[submitted].arrival_s <= now:
            request_id = f"{label}-{submitted}"
            arrivals[request_id] = start + requests[submitted].arrival_s
            _submit(engine, request_id, requests[submitted])
            submitted += 1
        if not engine.has_unfinished_requests():
            time.sleep(max(0.0, start + requests[submitted].arrival_s - time.monotonic()))
            continue
        done += [(arrivals[o.request_id], o) for o in engine.step() if o.finished]
    return time.monotonic() - start, done


def _submit(engine: LLMEngine, request_id: str, request: Request) -> None:
    params = SamplingParams(temperature=0.0, max_tokens=request.output_len, ignore_eos=True)
    engine.add_request(request_id, {"prompt_token_ids": request.prompt_token_ids}, params)


def latencies(done: list[tuple[float, RequestOutput]]) -> dict[str, float]:
    """Time to first token from the arrival, and time per output token after it."""
    first, per_token = [], []
    for arrival, output in done:
        metrics, tokens = output.metrics, len(output.outputs[0].token_ids)
        assert metrics.first_token_time is not None and metrics.finished_time is not None
        first.append(metrics.first_token_time - arrival)
        if tokens > 1:
            per_token.append((metrics.finished_time - metrics.first_token_time) / (tokens - 1))
    return _spread("time_to_first_token", first, 1.0, "s") | _spread(
        "time_per_output_token", per_token, 1e3, "ms"
    )


def _spread(name: str, seconds: list[float], scale: float, unit: str) -> dict[str, float]:
    values = scale * np.asarray(seconds or [0.0])
    figures = {"mean": values.mean(), "p50": np.median(values), "p99": np.percentile(values, 99)}
    return {f"{name}_{key}_{unit}": round(float(value), 3) for key, value in figures.items()}


def measure(llm: LLM, args: argparse.Namespace) -> dict[str, Any]:
    """Warm-up pass, measured pass, figures."""
    engine = llm.llm_engine
    config = engine.model_config
    requests = sharegpt_requests(
        args.num_requests,
        request_rate=args.request_rate,
        vocab_size=config.vocab_size,
        max_model_len=engine.max_model_len,
        seed=args.seed,
    )
    short = [Request(0.0, r.prompt_token_ids, min(r.output_len, WARMUP_OUTPUT)) for r in requests]
    drive(engine, short, "warm-up")
    engine.reset_prefix_cache()  # the measured pass must compute its prompts itself
    before = dict(engine.scheduler.num_preemptions)
    seconds, done = drive(engine, requests, "request")
    after = engine.scheduler.num_preemptions
    num_in = sum(len(output.prompt_token_ids) for _, output in done)
    num_out = sum(len(output.outputs[0].token_ids) for _, output in done)
    return {
        "requests": len(done),
        "seconds": round(seconds, 2),
        "input_tokens": num_in,
        "output_tokens": num_out,
        "requests_per_s": round(len(done) / seconds, 3),
        "input_tokens_per_s": round(num_in / seconds, 1),
        "output_tokens_per_s": round(num_out / seconds, 1),
        **latencies(done),
        "preemptions": {mode: after[mode] - before.get(mode, 0) for mode in after},
        **peak_memory(),
    }


def peak_memory() -> dict[str, int]:
    """The most memory of this process, and of the accelerator where there is one, in MiB."""
    peaks = {"peak_memory_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)}
    device = jax.devices()[0].memory_stats() or {}
    if "peak_bytes_in_use" in device:
        peaks["peak_device_memory_mib"] = round(device["peak_bytes_in_use"] / 2**20)
    return peaks


def headline(args: argparse.Namespace, result: dict[str, Any]) -> dict[str, str]:
    """The rows of the README's table."""
    rate = args.request_rate
    load = "all at once" if rate == float("inf") else f"{rate:g} requests/s (Poisson)"
    rows = {
        f"{args.num_requests} ShareGPT requests, {load}": f"{result['input_tokens_per_s']} input "
        f"and {result['output_tokens_per_s']} output tokens/s",
    }
    if rate != float("inf"):
        rows["time to first token there, median"] = f"{result['time_to_first_token_p50_s']} s"
    return rows


ENGINE = ("dtype", "block_size", "max_model_len", "max_num_seqs", "max_num_batched_tokens",
          "num_gpu_blocks_override", "scheduling", "preemption_mode")  # fmt: skip


def run(args: argparse.Namespace) -> Figures:
    settings = {name: getattr(args, name) for name in ENGINE}
    with measured_llm(args, args.model, **settings) as llm:
        return measure(llm, args)


BENCHMARK = Benchmark(
    run,
    flags=(
        flag("--model", help="directory, GGUF file or hub name (SmolLM2 by default)"),
        flag("--num-requests", type=positive(int), default=64),
        flag("--request-rate", type=positive(float), default=float("inf"),
             help="arrivals a second (all at once)"),
        flag("--seed", type=int, default=0),
        # Arguments of LLM(), by the same names
        flag("--dtype", default="auto"),
        flag("--block-size", type=int, default=16),
        flag("--max-model-len", type=int, default=2048),
        flag("--max-num-seqs", type=int, default=64),
        flag("--max-num-batched-tokens", type=int),
        flag("--num-gpu-blocks-override", type=int),
        flag("--scheduling", default="unified"),
        flag("--preemption-mode"),
    ),
    smoke={"num_requests": 2, "max_model_len": 64},
    headline=headline,
)  # fmt: skip
