"""A long system prompt after a restart: cold, warm, and from the files of `kv_cache_dir`.

One process writes the blocks of two prompts. Each further one is a restart: it builds an engine on
the folder and answers them, with a new question behind each time. In each of them all ways are
timed, and the median of the processes' ratios is shown:

    first       the very first answer, whose blocks were read while the engine was built; with it
                comes what a process does once
    restarted   the next one, to another prompt that was written before the restart
    warm        the same engine again: the blocks are in its prefix cache
    loaded      after the prefix cache was emptied: the blocks are read for the request, as those
                are that another engine has written
    cold        another prompt of the same length

Steps are compiled, and loaded by a short prompt, before anything is timed.
"""

import argparse
import json
import tempfile
from statistics import median
from typing import Any

from benchmarks.registry import Benchmark, Figures, flag
from benchmarks.startup import fresh_process
from benchmarks.tiny import measured_model

QUESTION = 16  # tokens behind the system prompt

ENGINE = """
import json, random, sys, time
from jax_engine import LLM, SamplingParams

asked = json.loads(sys.argv[1])
length, params = asked["length"], SamplingParams(temperature=0.0, max_tokens=1, detokenize=False)
started = time.perf_counter()
llm = LLM(**asked["settings"])
built_s = time.perf_counter() - started
vocab, turns = llm.llm_engine.model_config.vocab_size, iter(range(10**6))

def tokens(seed, count):
    return random.Random(seed).choices(range(3, vocab), k=count)

def first_token(seed):
    question = tokens(f"{asked['process']} {next(turns)}", asked["question"])
    prompt = {"prompt_token_ids": tokens(seed, length) + question}
    begun = time.perf_counter()
    (output,) = llm.generate(prompt, params, use_tqdm=False)
    return time.perf_counter() - begun, output.num_cached_tokens

def only(cached, found):
    assert found[1] == cached, found
    return found[0]

def several(ask):
    return [ask() for _ in range(asked["repeats"])]

def loaded():
    assert llm.reset_prefix_cache()
    return only(length, first_token("system"))

if asked["only_starts"]:
    print(json.dumps({"built_s": built_s}))
    sys.exit()
for short in range(3):
    prompt = {"prompt_token_ids": tokens(f"short {short}", asked["question"])}
    llm.generate(prompt, params, use_tqdm=False)
figures = {"built_s": built_s}
if asked["process"]:
    figures["first"] = [only(length, first_token("system"))]
    figures["restarted"] = [only(length, first_token("other"))]
figures["cold"] = [only(0, first_token(f"cold {asked['process']}"))]
assert llm.llm_engine._stored.store.drain(600)
if asked["process"]:
    figures["warm"] = several(lambda: only(length, first_token("system")))
    figures["loaded"] = several(loaded)
    figures["warm"] += several(lambda: only(length, first_token("system")))
for prompt in ("system", "other"):  # they are needed most: the next process reads them first
    first_token(prompt)
llm.llm_engine._stored.store.close()
figures["folder_bytes"] = llm.llm_engine.stats().kv_cache_dir.num_bytes
print(json.dumps(figures))
"""

WAYS = ("first", "restarted", "warm", "loaded", "cold")


def asked_of(
    args: argparse.Namespace, settings: dict[str, Any], process: int, *, only_starts: bool = False
) -> str:
    """What a process is told.

    Args:
        process: Its number; 0 is the one that writes the folder.
        only_starts: Whether it answers nothing.
    """
    more: dict[str, Any] = {"process": process, "repeats": args.repeats, "question": QUESTION}
    more["only_starts"] = only_starts
    return json.dumps({"settings": settings, "length": args.length, **more})


def run(args: argparse.Namespace) -> Figures:
    with measured_model(args, args.model) as model, tempfile.TemporaryDirectory() as folder:
        plain = {name: value for name, value in model.items() if value is not None}
        plain["max_model_len"] = args.length + 4 * QUESTION
        settings = plain | {"kv_cache_dir": folder}
        first = fresh_process(ENGINE, asked_of(args, settings, 0))
        runs = [
            fresh_process(ENGINE, asked_of(args, settings, process))
            for process in range(1, 1 + args.restarts)
        ]
        alone = [
            fresh_process(ENGINE, asked_of(args, plain, 0, only_starts=True))
            for _ in range(args.restarts)
        ]
    return figures_of(args.length, first, runs, alone)


def figures_of(
    length: int, first: dict[str, Any], runs: list[dict[str, Any]], alone: list[dict[str, Any]]
) -> Figures:
    """Medians, and medians of the processes' ratios.

    Args:
        first: What the writing process found.
        runs: What the restarts found.
        alone: What processes without a folder found.
    """
    medians = [{way: median(one[way]) for way in WAYS} for one in runs]
    return {
        "prompt_tokens": length,
        "folder_mb": round(first["folder_bytes"] / 1e6, 1),
        **{f"{way}_ms": round(1e3 * median([one[way] for one in medians]), 1) for way in WAYS},
        "first_of_warm": _ratio(medians, "first", "warm"),
        "restarted_of_warm": _ratio(medians, "restarted", "warm"),
        "loaded_of_warm": _ratio(medians, "loaded", "warm"),
        "cold_of_restarted": _ratio(medians, "cold", "restarted"),
        "cold_of_loaded": _ratio(medians, "cold", "loaded"),
        "start_s": round(median([one["built_s"] for one in runs]), 2),
        "start_without_s": round(median([one["built_s"] for one in alone]), 2),
    }


def _ratio(medians: list[dict[str, float]], way: str, other: str) -> float:
    return round(median([one[way] / one[other] for one in medians]), 2)


BENCHMARK = Benchmark(
    run,
    flags=(
        flag("--model", help="SmolLM2-135M-Instruct when not given"),
        flag("--length", type=int, default=4096, help="tokens of the system prompt"),
        flag("--restarts", type=int, default=5, help="processes that find the folder"),
        flag("--repeats", type=int, default=5, help="of each way in a process"),
    ),
    smoke={"restarts": 1, "repeats": 1, "length": 256},
    headline=lambda _, found: {
        "a 4,096-token prompt after a restart": f"{found['restarted_of_warm']}x the warm time"
    },
)
