"""What a new adapter adds to a first token, and slots to a start.

A cold adapter's first token comes after its files are read, checked and hashed, and its arrays are
packed and copied into a slot. Requests with an adapter that nobody has asked for and with one that
is in its slot take turns. How long the same files take to be read, and nothing else, is told beside
it. Starts are processes of their own, whose compiled programs are there already.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.adapters.files import RANK, model_folder, write_adapters
from benchmarks.compare.checkpoint import TINY, hf_directory
from benchmarks.compare.environments import folder
from benchmarks.registry import Benchmark, Figures, flag
from benchmarks.startup import fresh_process
from jax_engine import LLM, LoRARequest, SamplingParams

PROMPT = 16
STARTED = """
import json, sys, time
started = time.perf_counter()
from jax_engine import LLM, SamplingParams
settings = json.loads(sys.argv[1])
llm = LLM(**settings)
built = time.perf_counter() - started
params = SamplingParams(temperature=0.0, max_tokens=1, detokenize=False)
llm.generate({"prompt_token_ids": [2, 3, 4]}, params, use_tqdm=False)
print(json.dumps({"engine_built_s": built, "first_token_s": time.perf_counter() - started}))
"""


def first_tokens(settings: dict[str, Any], adapters: list[Path], vocab_size: int) -> dict[str, Any]:
    """Milliseconds to the first token with an adapter that is new, and with one that is not."""
    llm = LLM(**settings, enable_lora=True, max_loras=2, max_lora_rank=RANK)
    rng = np.random.default_rng(0)
    params = SamplingParams(temperature=0.0, max_tokens=1, detokenize=False)

    def milliseconds(request: LoRARequest) -> float:
        prompt = {"prompt_token_ids": rng.integers(2, vocab_size, PROMPT).tolist()}
        started = time.perf_counter()
        llm.generate(prompt, params, lora_request=request, use_tqdm=False)
        return 1e3 * (time.perf_counter() - started)

    requests = [LoRARequest(path.name, i, str(path)) for i, path in enumerate(adapters, start=1)]
    first = milliseconds(requests[0])  # compiles what takes an adapter into its slot
    for _ in range(3):
        milliseconds(requests[0])
    warm, cold, reading = [], [], []
    for request in requests[1:]:
        warm.append(milliseconds(requests[0]))
        started = time.perf_counter()
        for file in Path(request.lora_path).iterdir():
            file.read_bytes()
        reading.append(1e3 * (time.perf_counter() - started))
        cold.append(milliseconds(request))
        milliseconds(requests[0])
    added = [one - other - read for one, other, read in zip(cold, warm, reading, strict=True)]
    size = (adapters[0] / "adapter_model.safetensors").stat().st_size
    return {
        "adapter_mib": round(size / 2**20, 1),
        "first_adapter_ms": round(first, 1),
        "cold_ms": round(median(cold), 1),
        "warm_ms": round(median(warm), 1),
        "reading_ms": round(median(reading), 1),
        "cold_beyond_reading_ms": round(median(added), 1),
        "adapters": len(adapters) - 1,
    }


def starts(settings: dict[str, Any], repeats: int) -> dict[str, Any]:
    """Seconds to an engine and to its first token with `enable_lora` and without, in turns."""
    ways = {"without": {}, "enable_lora": {"enable_lora": True, "max_loras": 8}}
    found: dict[str, list[dict[str, float]]] = {way: [] for way in ways}
    for turn in range(repeats + 1):
        for way, more in ways.items():
            one = fresh_process(STARTED, json.dumps({**settings, **more}))
            if turn:  # the first ones compile
                found[way].append(one)
    return {
        way: {name: round(median(one[name] for one in each), 2) for name in each[0]}
        for way, each in found.items()
    }


def run(args: argparse.Namespace) -> Iterator[Figures]:
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        settings: dict[str, Any] = {
            "max_model_len": 256, "max_num_seqs": 8, "num_gpu_blocks_override": 128,
            "skip_tokenizer_init": True, "enable_prefix_caching": False, "dtype": "bfloat16",
        }  # fmt: skip
        if args.smoke:
            model = model_folder(scratch / "tiny", TINY)
            settings["load_format"] = "dummy"
        else:
            model = hf_directory(folder() / "checkpoints")
        settings["model"] = str(model)
        config = json.loads((model / "config.json").read_text("utf-8"))
        adapters = write_adapters(scratch / "adapters", config, args.adapters)
        yield {"first token": first_tokens(settings, adapters, config["vocab_size"])}
        yield {"start": starts(settings, args.starts)}


BENCHMARK = Benchmark(
    run,
    flags=(
        flag("--adapters", type=int, default=11, help="the first warms up"),
        flag("--starts", type=int, default=5, help="of each kind"),
    ),
    smoke={"adapters": 3, "starts": 1},
)
