"""What guesses are worth: at a forced share of right ones, on texts, and on random tokens.

An engine with guesses and one without take turns in one process, and each answer must be the same.
"Forced": the drafter knows the answer, and each of its 7 guesses is right with probability 0.9.
Texts are answered greedily and at a temperature. Random prompts at a temperature of 1 have nothing
to copy, so they show what the attempt costs.
"""

import argparse
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks.compare.checkpoint import hf_directory
from benchmarks.compare.environments import folder
from benchmarks.machine_limits import matrix_rate, read_bandwidth
from benchmarks.registry import Benchmark, Figures, flag, names_of
from benchmarks.speculation import measure, texts
from benchmarks.speculation.forced import Known, forced
from jax_engine import LLM, SamplingParams

SHARE, COUNT = 0.9, 7
PROMPT_LEN, FIRST_TOKEN, END_TOKEN = 64, 3, 49152
DRAFTERS: dict[str, dict[str, Any]] = {"ngram": {"method": "ngram"}, "suffix": {"method": "suffix"}}
TEMPERATURES = (0.0, 0.8)
BATCHES = (1, 8)


def models() -> dict[str, dict[str, Any]]:
    """The default model as `LLM()` has it, with activations in 16 bits, and decoded to bfloat16."""
    decoded = str(hf_directory(folder() / "checkpoints"))
    return {
        "4 bits": {},
        "4 bits, activations in bfloat16": {"dtype": "bfloat16"},
        "bfloat16": {"model": decoded, "dtype": "bfloat16", "skip_tokenizer_init": True},
    }


def random_prompts(count: int, seed: int) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    found: list[list[int]] = rng.integers(FIRST_TOKEN, END_TOKEN, (count, PROMPT_LEN)).tolist()
    return found


def at_forced_share(size: int, rounds: int) -> Iterator[Figures]:
    """What each model gains, one request at a time."""
    params = SamplingParams(temperature=0.0, max_tokens=size + 1, ignore_eos=True)
    for name, settings in models().items():
        known = Known()
        plain = LLM(**measure.BASE, **settings)
        guessing = LLM(**measure.BASE, **settings, speculative_config=forced(known, SHARE, COUNT))
        measure.compile_small_steps(plain, guessing)
        measure.one_by_one(plain, guessing, random_prompts(2, 1), params, known)  # warms up
        prompts = random_prompts(rounds, 2)
        yield {name: measure.one_by_one(plain, guessing, prompts, params, known)}


def on_texts(size: int, count: int) -> Iterator[Figures]:
    """What each drafter gains on each kind of text, at each temperature."""
    plain = LLM(**measure.BASE)
    kinds = {"code edits": texts.code_edits(), "quotes": texts.quotes(), "chat": texts.chat()}
    conversations = {name: one[:count] for name, one in kinds.items()}
    greedy = SamplingParams(temperature=0.0, max_tokens=size)
    answers = plain.chat(list(texts.chat()), greedy, use_tqdm=False)
    again = texts.second_turns([one.outputs[0].text for one in answers])
    conversations["second turns"] = again[:count]
    for drafter, config in DRAFTERS.items():
        for temperature in TEMPERATURES:
            guessing = LLM(**measure.BASE, speculative_config=config)
            measure.compile_small_steps(plain, guessing)
            params = SamplingParams(temperature=temperature, seed=1, max_tokens=size)
            for kind, asked in conversations.items():
                prompts = measure.chat_prompts(plain, asked)
                one = measure.one_by_one(plain, guessing, prompts, params, Known())
                yield {f"{drafter}, {kind}, temperature {temperature}": one}


def on_random_tokens(size: int, rounds: int) -> Iterator[Figures]:
    """What each drafter costs, alone and eight at a time."""
    plain = LLM(**measure.BASE)
    for drafter, config in DRAFTERS.items():
        guessing = LLM(**measure.BASE, speculative_config=config)
        measure.compile_small_steps(plain, guessing)
        for batch in BATCHES:
            params = [
                SamplingParams(temperature=1.0, seed=i, max_tokens=size, ignore_eos=True)
                for i in range(batch)
            ]
            prompts = [random_prompts(batch, 10 + i) for i in range(rounds)]
            measure.together(plain, guessing, prompts[:1], params)  # warms up
            one = measure.together(plain, guessing, prompts, params)
            yield {f"{drafter}, {batch} at once": one}


PARTS: dict[str, Callable[[int, int], Iterator[Figures]]] = {
    "forced": at_forced_share,
    "texts": on_texts,
    "random": on_random_tokens,
}


def run(args: argparse.Namespace) -> Iterator[Figures]:
    for name in args.parts:
        for part in PARTS[name](args.tokens, args.rounds):
            yield {name: part}
    if not args.smoke:
        yield {
            "machine": {
                "read_bandwidth_gb_per_s": round(read_bandwidth() / 1e9, 1),
                "matrix_rate_gflop_per_s": round(matrix_rate() / 1e9, 1),
            }
        }


def headline(args: argparse.Namespace, found: Figures) -> dict[str, str]:
    forced_at = f"guesses, {COUNT} a step, each right with probability {SHARE}"
    return {
        f"{forced_at}, {name}": f"{one['speed_ratio']:.2f} times as fast"
        for name, one in found.get("forced", {}).items()
    }


BENCHMARK = Benchmark(
    run,
    flags=(
        flag("--parts", type=names_of(PARTS), default=list(PARTS), help="with commas"),
        flag("--tokens", type=int, default=160, help="of an answer"),
        flag("--rounds", type=int, default=7),
    ),
    smoke={"tokens": 8, "rounds": 1},
    headline=headline,
)
