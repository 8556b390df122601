"""Two processes of one core each beside one of two cores.

The same requests go to one engine whose model has both cores, to one whose model is cut over two
processes (`tensor_parallel_size=2`), to one whose layers are divided among two processes
(`pipeline_parallel_size=2`), and to two engines (`data_parallel_size=2`). Weights are random, of
shapes whose heads divide. The ways take turns, and each of them waits while the
others run. On a machine with two cores this says what a second device costs; it can gain nothing.
"""

import argparse
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.adapters.files import ONE_B, model_folder
from benchmarks.compare.checkpoint import TINY
from benchmarks.compare.workloads import WORKLOADS, Scale
from benchmarks.registry import Benchmark, Figures, flag
from jax_engine import LLM, SamplingParams

HALF_B = ONE_B | {
    "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28,
    "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128,
}  # fmt: skip
ALONE = "one process, two cores"
WAYS: Mapping[str, dict[str, Any]] = {
    ALONE: {},
    "tensor parallel": {"tensor_parallel_size": 2},
    "pipeline parallel": {"pipeline_parallel_size": 2},
    "data parallel": {"data_parallel_size": 2},
}
LENGTHS = ("W1", "W2")  # of `benchmarks.compare`


def engines(model: Path, dtype: str) -> dict[str, LLM]:
    """One for each way."""
    settings: dict[str, Any] = {
        "dtype": dtype, "load_format": "dummy", "max_model_len": 512, "max_num_seqs": 32,
        "skip_tokenizer_init": True, "enable_prefix_caching": False,
        "num_gpu_blocks_override": 1024,
    }  # fmt: skip
    return {way: LLM(str(model), **settings, **more) for way, more in WAYS.items()}


def seconds(llm: LLM, workload: str, seed: int, scale: Scale) -> float:
    """The time of all requests of a pass, whose prompts are new and whose lengths are not."""
    jobs = WORKLOADS[workload][1](scale, seed)
    prompts = [{"prompt_token_ids": job.prompt} for job in jobs]
    params = [
        SamplingParams(
            temperature=0.0, max_tokens=job.output_len, ignore_eos=True, detokenize=False
        )
        for job in jobs
    ]
    started = time.perf_counter()
    outputs = llm.generate(prompts, params, use_tqdm=False)
    taken = time.perf_counter() - started
    assert [len(one.outputs[0].token_ids) for one in outputs] == [job.output_len for job in jobs]
    return taken


def speeds(
    llms: Mapping[str, LLM], workload: str, passes: int, scale: Scale
) -> dict[str, dict[str, float]]:
    """Each way's tokens a second, and its speed over that of one process, as medians."""
    for llm in llms.values():
        seconds(llm, workload, passes, scale)  # compiles
    found: dict[str, list[float]] = {way: [] for way in llms}
    for turn in range(passes):
        for way in sorted(llms, reverse=turn % 2 == 1):
            found[way].append(seconds(llms[way], workload, turn, scale))
    tokens = sum(job.output_len for job in WORKLOADS[workload][1](scale, 0))
    return {
        way: {
            "tokens_per_s": round(tokens / median(each), 1),
            "over_one_process": round(
                median(alone / one for alone, one in zip(found[ALONE], each, strict=True)), 3
            ),
        }
        for way, each in found.items()
    }


def run(args: argparse.Namespace) -> Iterator[Figures]:
    """Each shape, dtype and workload, with the speeds of each way."""
    shapes, divide = ({"tiny": TINY}, 8) if args.smoke else ({"0.5B": HALF_B}, 1)
    with tempfile.TemporaryDirectory() as scratch:
        for name, config in shapes.items():
            model = model_folder(Path(scratch) / name, config)
            scale = Scale(vocab_size=config["vocab_size"], divide=divide)
            for dtype in args.dtypes:
                llms = engines(model, dtype)
                for workload in LENGTHS:
                    found = speeds(llms, workload, args.passes, scale)
                    yield {f"{name}, {dtype}, {workload}": found}
                del llms  # before the next ones take their memory


BENCHMARK = Benchmark(
    run,
    flags=(
        flag("--dtypes", nargs="+", default=["bfloat16", "float32"]),
        flag("--passes", type=int, default=5),
    ),
    smoke={"dtypes": ["float32"], "passes": 1},
)
