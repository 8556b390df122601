"""Figures that the engine can show itself; they take a few minutes in all.

2 and 13 need no model (`measured_memory`). The others run SmolLM2-135M, and in `smoke`, which makes
all as small as can be, a tiny model of random weights.
"""

import time
from collections.abc import Callable

import numpy as np

from benchmarks.engines import smollm2_engine
from benchmarks.paper.figure import Figure, Row
from benchmarks.paper.measured_blocks import SMOLLM, figure_18b, figure_19
from benchmarks.paper.measured_memory import figure_2, figure_13
from benchmarks.paper.sharing import PAPER, WIDTHS
from benchmarks.paper.traces import SENTENCE, sentences, trace
from jax_engine import LLMEngine, SamplingParams
from reference.simulator import TraceRequest

INSTRUCTIONS = (
    "Give three tips for staying healthy.",
    "Describe how an atom is built.",
    "Write a short story about a lighthouse keeper who finds a letter.",
    "What are the three primary colours, and why are there three?",
    "Explain to a child why the sky is blue.",
    "List five uses of a brick.",
    "How can a city reduce its traffic?",
    "Suggest a name for a bakery by the sea, and say why it fits.",
)


def figure_15(smoke: bool) -> Figure:
    """Blocks saved by sharing, of instructions like Alpaca's."""
    engine = smollm2_engine(
        smoke,
        max_model_len=256,
        max_num_seqs=64,
        num_gpu_blocks_override=64 * 16,
        enable_prefix_caching=False,
    )
    length = 6 if smoke else 58
    # The tiny model of a smoke run has no tokenizer.
    encode = (lambda text: [5] * len(text)) if smoke else engine.get_tokenizer().encode
    prompts = [encode(text) for text in INSTRUCTIONS[: 2 if smoke else None]]
    rows = []
    for beams in (False, True):
        for width in WIDTHS[:1] if smoke else WIDTHS:
            params = SamplingParams(
                n=width,
                max_tokens=length,
                ignore_eos=True,
                temperature=0.0 if beams else 1.0,
                use_beam_search=beams,
                seed=0,
            )
            saved = _saved_percent(engine, prompts, params)
            how = "beam search" if beams else "parallel sampling"
            paper = PAPER["Alpaca", beams][width]
            rows.append(Row(f"{how}, {width} outputs", saved, "%", paper))
    return Figure(
        "KV blocks saved by sharing",
        "Figure 15",
        "measured",
        [
            SMOLLM,
            f"{len(prompts)} instructions in the manner of Alpaca, of 7 to 16 tokens (19 in the "
            f"paper), all outputs {length} tokens long; beam search follows this model's own "
            "scores. Blocks are counted after each step.",
        ],
        rows,
    )


def _saved_percent(engine: LLMEngine, prompts: list[list[int]], params: SamplingParams) -> float:
    for i, prompt in enumerate(prompts):
        engine.add_request(str(i), {"prompt_token_ids": prompt}, params)
    blocks = engine.scheduler.block_manager
    logical = physical = 0
    while engine.has_unfinished_requests():
        engine.step()
        groups = engine.scheduler.running
        tables = [blocks.block_table(seq.seq_id) for g in groups for seq in g.unfinished()]
        logical += sum(len(table) for table in tables)
        physical += len({block for table in tables for block in table})
    return 100 * (1 - physical / logical)


def figure_16(smoke: bool) -> Figure:
    """Requests behind a shared prefix, found by the prefix cache or computed again."""
    rows = []
    for shots, prefix_len in (("1-shot", 80), ("5-shot", 341)):
        seconds = {}
        for caching in (False, True):
            engine = smollm2_engine(
                smoke,
                max_model_len=1024,
                max_num_seqs=16,
                num_gpu_blocks_override=16 * 64,
                enable_prefix_caching=caching,
            )
            requests = trace(sentences(prefix_len), 1.0, 4 if smoke else 32)
            _serve(engine, requests[:2], prefix_len)  # compiles; fills the cache
            seconds[caching] = _serve(engine, requests, prefix_len)
        gain = seconds[False] / seconds[True]
        rows.append(Row(f"{shots}, {prefix_len} tokens: with sharing over without", gain, "×"))
    return Figure(
        "Translation behind a shared prefix",
        "Figure 16",
        "measured",
        [
            SMOLLM,
            f"Lengths as simulated (sentences of {SENTENCE[0]:g} tokens in, {SENTENCE[1]:g} out), "
            "all at once, 16 at a time. The baseline is this engine without a prefix cache, not "
            "Orca, so there is no number of the paper to compare with; memory is not short here, "
            "so what is gained is computation only.",
        ],
        rows,
    )


def _serve(engine: LLMEngine, requests: list[TraceRequest], prefix_len: int) -> float:
    started = time.perf_counter()
    rng = np.random.default_rng(len(requests))
    for i, request in enumerate(requests):
        own = rng.integers(100, 9000, request.prompt_len - prefix_len).tolist()
        tokens = {"prompt_token_ids": [7] * prefix_len + own}
        params = SamplingParams(temperature=0.0, max_tokens=request.output_len, ignore_eos=True)
        engine.add_request(str(i), tokens, params)
    while engine.has_unfinished_requests():
        engine.step()
    return time.perf_counter() - started


FIGURES: dict[str, Callable[[bool], Figure]] = {
    "2": figure_2,
    "13": figure_13,
    "15": figure_15,
    "16": figure_16,
    "18b": figure_18b,
    "19": figure_19,
}
