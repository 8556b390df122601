"""What `batch_invariant` costs, and whether it holds: `python -m benchmarks.gpu.engine.invariant`.

Two engines, one after the other: without it and with it. Of each the time of a decode step on the
device, of one sequence and of all, as `graphs` measures it. Then requests run alone and beside all
others, and their tokens and log-probabilities are compared, as bits.
"""

import argparse
import gc
import time
from typing import Any

from benchmarks.gpu.engine.models import FULL, MODELS, SMOKE, Scale, build
from benchmarks.gpu.engine.replay import compile_with, decode_step, device_seconds
from benchmarks.gpu.engine.requests import RNG
from benchmarks.gpu.said import attempt, put
from jax_engine import LLMEngine, RequestOutput, SamplingParams

WITHOUT, WITH = "as it ships", "batch-invariant"
ALONE = 3  # requests that are run alone as well
OUTPUT = 32  # tokens of each
BLOCKS = 6144  # enough for all requests; the other engine's weights and blocks may still be there
PART = "batch invariant"


def main() -> None:
    """Both engines, each in turn."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.engine.invariant")
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("--limit", type=float, default=1e9, metavar="SECONDS")
    parser.add_argument("--card", default="", help="not read")
    parser.add_argument("--smoke", action="store_true", help="a tiny model, on any device")
    args = parser.parse_args()
    scale = SMOKE if args.smoke else FULL
    found: dict[str, dict[str, float]] = {}
    for name in (WITHOUT, WITH):
        attempt(name, lambda name=name: _one(args, scale, name, found), args.limit)
        gc.collect()
    for case, ms in found.get(WITH, {}).items():
        before = found.get(WITHOUT, {}).get(case)
        if before is not None:
            put("models", args.model, PART, f"{case}, times", value=round(ms / before, 3))


def _one(
    args: argparse.Namespace, scale: Scale, name: str, found: dict[str, dict[str, float]]
) -> None:
    """One engine: its steps' times, and whether a request's bits depend on its company."""
    engine = build(args.model, args.smoke, batch_invariant=name == WITH, most_blocks=BLOCKS)
    found[name] = {}
    for count in (1, scale.running):
        step = decode_step(engine, count, scale.prompt // 4)
        ms = 1e3 * device_seconds(engine, step, compile_with(engine, step, {}), scale)
        found[name][f"decode of {count}"] = ms
        put("models", args.model, PART, f"decode of {count}, {name}, ms", value=round(ms, 3))
    differ = differing(engine, scale, args.limit)
    put("models", args.model, PART, f"requests that differ, {name}", value=differ)


def differing(engine: LLMEngine, scale: Scale, limit_s: float) -> dict[str, int]:
    """How many of the requests that also run alone have other tokens or bits of log-probabilities.

    Prompts of many lengths are cut into chunks by the company, and some leave a rest of one token.
    """
    vocabulary, most = engine.model_config.vocab_size, scale.prompt // 2
    lengths = RNG.integers(1, most, size=scale.running)
    prompts = [RNG.integers(3, vocabulary, size=length).tolist() for length in lengths]
    together = _run(engine, prompts, "all")
    counts = {"compared": 0, "other tokens": 0, "other log-probabilities": 0}
    started = time.perf_counter()
    for i, prompt in enumerate(prompts[:ALONE]):
        if i and time.perf_counter() - started > limit_s:
            break
        (alone,) = _run(engine, [prompt], f"alone-{i}")
        counts["compared"] += 1
        counts["other tokens"] += _tokens(alone) != _tokens(together[i])
        counts["other log-probabilities"] += _logprobs(alone) != _logprobs(together[i])
    return counts


def _run(engine: LLMEngine, prompts: list[list[int]], name: str) -> list[RequestOutput]:
    """The outputs in the order of the prompts, with nothing in the cache before."""
    assert engine.reset_prefix_cache(), "a request runs"
    params = SamplingParams(temperature=0.0, max_tokens=OUTPUT, ignore_eos=True, logprobs=1)
    for i, prompt in enumerate(prompts):
        engine.add_request(f"{name}-{i}", {"prompt_token_ids": prompt}, params)
    done: dict[str, RequestOutput] = {}
    while engine.has_unfinished_requests():
        done |= {output.request_id: output for output in engine.step() if output.finished}
    return [done[f"{name}-{i}"] for i in range(len(prompts))]


def _tokens(output: RequestOutput) -> list[int]:
    return list(output.outputs[0].token_ids)


def _logprobs(output: RequestOutput) -> list[Any]:
    found = output.outputs[0].logprobs
    assert found is not None
    return [{token: one.logprob for token, one in each.items()} for each in found]


if __name__ == "__main__":
    main()
