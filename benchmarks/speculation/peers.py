"""Prompt lookup of three engines, each beside itself without it, on the same texts.

All take the default model's numbers in bfloat16 and answer greedily, one request at a time, as many
tokens as this engine's answer has. All guess up to 7 tokens where the last 2 to 5 stood before; of
llama.cpp the lookup is that of the library that its builds come with. Two speeds are told: tokens
a second, and how many times as fast an engine is with guesses as without.
"""

import argparse
import json
from collections.abc import Iterator
from dataclasses import replace
from statistics import median
from typing import Any

from benchmarks.compare import checkpoint
from benchmarks.compare.benchmark import Running, settings_for
from benchmarks.compare.environments import OURS, PEERS, Peer, folder
from benchmarks.compare.metrics import figures
from benchmarks.compare.passes import one_pass
from benchmarks.compare.quantised_peers import LLAMAS
from benchmarks.compare.quantised_peers import PEERS as WITH_LIBRARY
from benchmarks.compare.workloads import Job
from benchmarks.registry import Benchmark, Figures, flag, names_of
from benchmarks.speculation import measure, texts
from jax_engine import LLM, SamplingParams
from jax_engine.models.registry import config_from_hf

LOOKUP = {"method": "ngram", "num_speculative_tokens": 7, "prompt_lookup_max": 5}
WITH = " with guesses"


LLAMA = replace(
    WITH_LIBRARY[LLAMAS[0]], title="llama.cpp (node-llama-cpp)", script="llama_lookup.mjs"
)


def _guessing(peer: Peer, **settings: Any) -> Peer:
    return replace(peer, title=f"{peer.title}, guessing", settings=tuple(settings.items()))


GUESSING: dict[str, Peer] = {
    OURS: PEERS[OURS],
    OURS + WITH: _guessing(PEERS[OURS], speculative=LOOKUP | {"prompt_lookup_min": 2}),
    "vllm": PEERS["vllm"],
    "vllm" + WITH: _guessing(PEERS["vllm"], speculative=LOOKUP | {"prompt_lookup_min": 2}),
    "llama-cpp": LLAMA,
    "llama-cpp" + WITH: _guessing(
        LLAMA, lookup={"patternLength": {"min": 2, "max": 5}, "predictionLength": {"max": 7}}
    ),
}


def jobs_of_texts(model: str, longest: int, count: int) -> dict[str, list[Job]]:
    """Requests of each kind of text; each wants the tokens of a greedy answer, its end left out."""
    tokenizer = LLM(max_model_len=2048, num_gpu_blocks_override=256)
    llm = LLM(
        model, dtype="bfloat16", max_model_len=2048, num_gpu_blocks_override=512,
        skip_tokenizer_init=True,
    )  # fmt: skip
    params = SamplingParams(temperature=0.0, max_tokens=longest, detokenize=False)
    answers = tokenizer.chat(list(texts.chat()), params, use_tqdm=False)
    spoken = [tokenizer.get_tokenizer().decode(one.outputs[0].token_ids) for one in answers]
    kinds = {
        "code edits": texts.code_edits(),
        "quotes": texts.quotes(),
        "second turns": texts.second_turns(spoken),
        "chat": texts.chat(),
    }
    found: dict[str, list[Job]] = {}
    for kind, conversations in kinds.items():
        found[kind] = []
        for prompt in measure.chat_prompts(tokenizer, conversations[:count]):
            (output,) = llm.generate({"prompt_token_ids": prompt}, params, use_tqdm=False)
            length = len(output.outputs[0].token_ids)
            found[kind].append(Job(prompt, max(2, length - 1)))
    return found


def one_kind(running: Running, jobs: list[Job]) -> dict[str, list[float]]:
    """Decoded tokens a second of each engine for each request; the engines take turns."""
    speeds: dict[str, list[float]] = {}
    for number, job in enumerate(jobs):
        order = list(running.sessions) if number % 2 else list(reversed(running.sessions))
        for name in order:
            answer, _ = one_pass(running.sessions[name], [job])
            figures([job], answer)  # each token came
            (one,) = answer["requests"]
            speed = (job.output_len - 1) / max(one["finish_s"] - one["first_s"], 1e-9)
            speeds.setdefault(name, []).append(speed)
    return speeds


def rows(speeds: dict[str, list[float]]) -> dict[str, Any]:
    """Medians over the requests: speeds, and each engine's with guesses over its own without."""
    found: dict[str, Any] = {}
    for name, each in speeds.items():
        row = {"decode_tokens_per_s": round(median(each), 1)}
        plain = speeds.get(name.removesuffix(WITH))
        if name.endswith(WITH) and plain:
            ratios = [one / other for one, other in zip(each, plain, strict=True)]
            row["guesses_speed_ratio"] = round(median(ratios), 2)
        if name.endswith(WITH) and name != OURS + WITH:
            ours = zip(speeds[OURS + WITH], each, strict=True)
            row["ours_over_this"] = round(median(one / other for one, other in ours), 2)
        found[name] = row
    return found


def run(args: argparse.Namespace) -> Iterator[Figures]:
    chosen = [OURS, *args.peers]
    model = checkpoint.hf_directory(folder() / "checkpoints")
    jobs = jobs_of_texts(str(model), args.longest, args.count)
    config = config_from_hf(json.loads((model / "config.json").read_text("utf-8")))
    settings = settings_for(config, model, "bfloat16", smoke=False)
    running = Running([one for name in chosen for one in (name, name + WITH)], settings, GUESSING)
    try:
        one_kind(running, jobs["quotes"][:2])  # compiles
        for kind, some in jobs.items():
            yield {kind: rows(one_kind(running, some))}
    finally:
        running.close()
    yield running.told()


OTHERS = [name for name in GUESSING if name != OURS and not name.endswith(WITH)]
BENCHMARK = Benchmark(
    run,
    flags=(
        flag("--peers", type=names_of(OTHERS, 0), default=OTHERS),
        flag("--longest", type=int, default=160, help="tokens of an answer"),
        flag("--count", type=int, default=6, help="of texts of each kind"),
    ),
    smoke={"peers": [], "longest": 8, "count": 1},
)
