"""What adapters add to the time of the same requests.

32 or 256 requests run at once, as many tokens each; an eighth of them has each of eight adapters of
rank 16 on every weight of every layer. The same engine then runs the same prompts without adapters,
and another engine, without `enable_lora`, runs them as well. The three take turns.
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

from benchmarks.adapters.files import ONE_B, RANK, model_folder, shapes, write_adapters
from benchmarks.compare.checkpoint import TINY, hf_directory
from benchmarks.compare.environments import folder
from benchmarks.registry import Benchmark, Figures, flag
from jax_engine import LLM, LoRARequest, SamplingParams

ADAPTERS = 8
PROMPT, OUTPUT = 32, 64  # tokens of a request
WITH, WITHOUT, NOT_ENABLED = "adapters", "without", "not enabled"


class Engines:
    """One engine with adapters and one without, of the same model.

    Args:
        rows: The largest number of requests that run at once.
    """

    def __init__(self, model: Path, dtype: str, load_format: str, rows: int, scratch: Path) -> None:
        config = json.loads((model / "config.json").read_text("utf-8"))
        self.vocab_size = config["vocab_size"]
        self.numbers_over_weights = numbers_over_weights(config)
        settings: dict[str, Any] = {
            "dtype": dtype, "load_format": load_format, "max_model_len": 2 * (PROMPT + OUTPUT),
            "max_num_seqs": rows, "skip_tokenizer_init": True, "enable_prefix_caching": False,
            "num_gpu_blocks_override": rows * (PROMPT + OUTPUT) // 8,
        }  # fmt: skip
        adapted = LLM(
            str(model), enable_lora=True, max_loras=ADAPTERS, max_lora_rank=RANK, **settings
        )
        plain = LLM(str(model), **settings)
        self.llms = {WITH: adapted, WITHOUT: adapted, NOT_ENABLED: plain}
        paths = write_adapters(scratch, config, ADAPTERS)
        self.adapters = [
            LoRARequest(path.name, i, str(path)) for i, path in enumerate(paths, start=1)
        ]

    def seconds(self, way: str, rows: int, seed: int, output: int = OUTPUT) -> float:
        """The time of all requests of a round, which starts with an idle engine."""
        rng = np.random.default_rng(seed)
        prompts = [
            {"prompt_token_ids": rng.integers(2, self.vocab_size, PROMPT).tolist()}
            for _ in range(rows)
        ]
        params = SamplingParams(
            temperature=0.0, max_tokens=output, ignore_eos=True, detokenize=False
        )
        asked = None
        if way == WITH:
            asked = [self.adapters[i % ADAPTERS] for i in range(rows)]
        started = time.perf_counter()
        outputs = self.llms[way].generate(prompts, params, lora_request=asked, use_tqdm=False)
        seconds = time.perf_counter() - started
        assert all(len(one.outputs[0].token_ids) == output for one in outputs)
        return seconds


def numbers_over_weights(config: dict[str, Any]) -> float:
    """Numbers in A and B of all adapters over those in the weights that a step multiplies with."""
    layer = shapes(config).values()
    low = sum(RANK * (outputs + inputs) for outputs, inputs in layer)
    whole = sum(outputs * inputs for outputs, inputs in layer)
    layers, head = config["num_hidden_layers"], config["vocab_size"] * config["hidden_size"]
    return ADAPTERS * layers * low / (layers * whole + head)


def ratios(engines: Engines, rows: int, rounds: int) -> dict[str, Any]:
    """Medians of rounds in which the three ways take turns, and of their ratios."""
    ways = [WITH, WITHOUT, NOT_ENABLED]
    for way in ways:
        engines.seconds(way, rows, seed=10_000)  # compiles, and reads the adapters
    found: dict[str, list[float]] = {way: [] for way in ways}
    for turn in range(rounds):
        for way in ways[turn % 3 :] + ways[: turn % 3]:
            found[way].append(engines.seconds(way, rows, seed=turn))
    over = [one / other for one, other in zip(found[WITH], found[WITHOUT], strict=True)]
    idle = [one / other for one, other in zip(found[WITHOUT], found[NOT_ENABLED], strict=True)]
    return {
        "tokens_per_s_without": round(rows * OUTPUT / median(found[WITHOUT]), 1),
        "adapters_over_without": round(median(over), 3),
        "enabled_over_not": round(median(idle), 3),
        "numbers_over_weights": round(engines.numbers_over_weights, 3),
        "rounds": rounds,
    }


def run(args: argparse.Namespace) -> Iterator[Figures]:
    """Each model, dtype and number of rows."""
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        models = {"1B": (model_folder(scratch / "1b", ONE_B), "dummy")}
        if args.smoke:
            models = {"tiny": (model_folder(scratch / "tiny", TINY), "dummy")}
        else:
            models["135M"] = hf_directory(folder() / "checkpoints"), "auto"
        for model in args.models or list(models):
            for dtype in args.dtypes:
                path, load_format = models[model]
                adapters = scratch / f"adapters of {model}"
                engines = Engines(path, dtype, load_format, max(args.rows), adapters)
                for count in args.rows:
                    found = ratios(engines, count, args.rounds)
                    yield {f"{model}, {dtype}, {count} rows": found}
                del engines


BENCHMARK = Benchmark(
    run,
    flags=(
        flag("--models", nargs="+", choices=("135M", "1B"), default=[]),
        flag("--dtypes", nargs="+", default=["bfloat16", "float32"]),
        flag("--rows", nargs="+", type=int, default=[32, 256]),
        flag("--rounds", type=int, default=7),
    ),
    smoke={"dtypes": ["float32"], "rows": [2], "rounds": 1},
)
