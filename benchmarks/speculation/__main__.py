"""What guesses are worth: at a forced share of right ones, on texts, and on random tokens.

    python -m benchmarks.speculation --save
    python -m benchmarks.speculation --smoke       few and short requests, nothing kept

An engine with guesses and one without take turns in one process, and each answer must be the same.
"Forced": the drafter knows the answer, and each of its 7 guesses is right with probability 0.9.
Texts are answered greedily and at a temperature. Random prompts at a temperature of 1 have nothing
to copy, so they show what the attempt costs.
"""

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.compare.checkpoint import hf_directory
from benchmarks.compare.environments import folder
from benchmarks.machine_limits import matrix_rate, read_bandwidth
from benchmarks.report import write_result
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


def at_forced_share(size: int, rounds: int) -> dict[str, Any]:
    """What each model gains, one request at a time."""
    params = SamplingParams(temperature=0.0, max_tokens=size + 1, ignore_eos=True)
    found = {}
    for name, settings in models().items():
        known = Known()
        plain = LLM(**measure.BASE, **settings)
        guessing = LLM(**measure.BASE, **settings, speculative_config=forced(known, SHARE, COUNT))
        measure.compile_small_steps(plain, guessing)
        measure.one_by_one(plain, guessing, random_prompts(2, 1), params, known)  # warms up
        prompts = random_prompts(rounds, 2)
        found[name] = measure.one_by_one(plain, guessing, prompts, params, known)
        print(f"forced, {name}: {found[name]}", flush=True)
    return found


def on_texts(size: int, count: int) -> dict[str, Any]:
    """What each drafter gains on each kind of text, at each temperature."""
    plain = LLM(**measure.BASE)
    kinds = {"code edits": texts.code_edits(), "quotes": texts.quotes(), "chat": texts.chat()}
    conversations = {name: one[:count] for name, one in kinds.items()}
    greedy = SamplingParams(temperature=0.0, max_tokens=size)
    answers = plain.chat(list(texts.chat()), greedy, use_tqdm=False)
    again = texts.second_turns([one.outputs[0].text for one in answers])
    conversations["second turns"] = again[:count]
    found: dict[str, Any] = {}
    for drafter, config in DRAFTERS.items():
        for temperature in TEMPERATURES:
            guessing = LLM(**measure.BASE, speculative_config=config)
            measure.compile_small_steps(plain, guessing)
            params = SamplingParams(temperature=temperature, seed=1, max_tokens=size)
            for kind, asked in conversations.items():
                prompts = measure.chat_prompts(plain, asked)
                one = measure.one_by_one(plain, guessing, prompts, params, Known())
                found[f"{drafter}, {kind}, temperature {temperature}"] = one
                print(f"{drafter}, {kind}, temperature {temperature}: {one}", flush=True)
    return found


def on_random_tokens(size: int, rounds: int) -> dict[str, Any]:
    """What each drafter costs, alone and eight at a time."""
    plain = LLM(**measure.BASE)
    found: dict[str, Any] = {}
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
            found[f"{drafter}, {batch} at once"] = one
            print(f"random, {drafter}, {batch} at once: {one}", flush=True)
    return found


def headlines(result: dict[str, Any]) -> dict[str, str]:
    """For the table of all results."""
    forced_at = f"guesses, {COUNT} a step, each right with probability {SHARE}"
    return {
        f"{forced_at}, {name}": f"{one['speed_ratio']:.2f} times as fast"
        for name, one in result["forced"].items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.speculation", description=(__doc__ or "").splitlines()[0]
    )
    parts: dict[str, Callable[[int, int], dict[str, Any]]] = {
        "forced": at_forced_share,
        "texts": on_texts,
        "random": on_random_tokens,
    }
    parser.add_argument("--smoke", action="store_true", help="few and short requests")
    parser.add_argument("--parts", default=",".join(parts), help="which of them, with commas")
    parser.add_argument("--save", action="store_true")
    args = parser.parse_args()
    size, rounds = (8, 1) if args.smoke else (160, 7)
    chosen = args.parts.split(",")
    result = {name: run(size, rounds) for name, run in parts.items() if name in chosen}
    if args.save:
        result["machine"] = {
            "read_bandwidth_gb_per_s": round(read_bandwidth() / 1e9, 1),
            "matrix_rate_gflop_per_s": round(matrix_rate() / 1e9, 1),
        }
        write_result("speculation", result, arguments=args, headline=headlines(result))


if __name__ == "__main__":
    main()
