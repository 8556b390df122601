"""Requests of random tokens, and running them: no two prompts share a prefix."""

import time

import numpy as np

from jax_engine import LLMEngine, RequestOutput, RequestOutputKind, SamplingParams

SPARE = 48  # tokens: the first requests decode while the last prompts are taken in
RNG = np.random.default_rng(0)


def add(engine: LLMEngine, request_id: str, prompt: int, output: int) -> None:
    """A greedy request of so many tokens in and out, end of sequence ignored."""
    tokens = RNG.integers(3, engine.model_config.vocab_size, size=prompt).tolist()
    params = SamplingParams(
        temperature=0.0,
        max_tokens=output,
        ignore_eos=True,
        output_kind=RequestOutputKind.FINAL_ONLY,  # as `LLM.generate` asks for
    )
    engine.add_request(request_id, {"prompt_token_ids": tokens}, params)


def finish(engine: LLMEngine) -> list[RequestOutput]:
    """Steps until every request has ended."""
    done: list[RequestOutput] = []
    while engine.has_unfinished_requests():
        done += [output for output in engine.step() if output.finished]
    return done


def start_decoding(engine: LLMEngine, count: int, prompt: int, output: int) -> list[str]:
    """Adds requests and steps until all of them are past their prompts; returns their names."""
    names = [f"decode-{i}" for i in range(count)]
    for name in names:
        add(engine, name, prompt, output)
    groups = engine.scheduler.groups
    while any(len(groups[name].seqs[0].token_ids) == groups[name].prompt_len for name in names):
        engine.step()
    return names


def seconds_a_step(engine: LLMEngine, count: int) -> float:
    """The mean time of `count` steps, one after another."""
    started = time.perf_counter()
    for _ in range(count):
        engine.step()
    return (time.perf_counter() - started) / count
