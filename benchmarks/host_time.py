"""Host time of a step with the model stubbed out: all that Python does between two steps.

    python -m benchmarks.host_time            prints the table
    python -m benchmarks.host_time --save     and keeps it in benchmarks/results/

Every request decodes one token a step, on a pool with room for all. Schedule: the scheduler.
Prepare: the packed plan. Process: tokens back into the scheduler, stop conditions, outputs.
"""

import argparse
import gc
import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.report import write_result
from jax_engine import EngineConfig, LLMEngine, RequestOutputKind, SamplingParams
from jax_engine.sampling.sampler import SamplerOutput
from jax_engine.worker.step_output import StepOutput

RUNNING = (1, 16, 64, 256, 1024)
MAX_MODEL_LEN = 2048
STEPS = 300
WARMUP = 20
MODEL = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 49152,
    "hidden_size": 8,
    "intermediate_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
    "num_key_value_heads": 1,
    "max_position_embeddings": MAX_MODEL_LEN,
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
}


@dataclass(frozen=True)
class HostTime:
    """Microseconds a step, medians."""

    schedule_us: float
    prepare_us: float
    process_us: float
    total_us: float


class StubbedSteps:
    """In the compiled steps' place: token 7 for everybody, at once."""

    def __call__(self, shape: Any, kv_cache: Any, *plan: Any) -> tuple[Any, Any]:
        tokens = np.full(shape.num_rows, 7, np.int32)
        return kv_cache, StepOutput(SamplerOutput(tokens, tokens, tokens, tokens, tokens))  # type: ignore


def dummy_engine(**settings: Any) -> LLMEngine:
    """An engine around a tiny model of random weights; `settings` as in `EngineConfig`.

    One step at a time unless asked otherwise, so that its parts add up.
    """
    settings = {"async_scheduling": False} | settings
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(MODEL))
        config = EngineConfig(
            model=folder, load_format="dummy", skip_tokenizer_init=True, swap_space=0, **settings
        )
        return LLMEngine.from_config(config)


def stubbed_engine(**settings: Any) -> LLMEngine:
    """The same with its model never run."""
    engine = dummy_engine(**settings)
    engine.worker.steps = StubbedSteps()  # type: ignore[assignment]
    return engine


def measure(num_seqs: int, scheduling: str = "unified", *, stream: bool = False) -> HostTime:
    """Times the parts of STEPS steps of `num_seqs` decodes."""
    engine = stubbed_engine(
        max_num_seqs=num_seqs,
        max_num_batched_tokens=num_seqs * 128 + MAX_MODEL_LEN,
        num_gpu_blocks_override=num_seqs * 64 + 256,
        scheduling=scheduling,
    )
    kind = RequestOutputKind.CUMULATIVE if stream else RequestOutputKind.FINAL_ONLY
    params = SamplingParams(max_tokens=STEPS + WARMUP + 9, ignore_eos=True, output_kind=kind)
    lengths = np.random.default_rng(0).integers(64, 128, num_seqs).tolist()
    for i, length in enumerate(lengths):
        engine.add_request(str(i), [i, *range(length - 1)], params)
    clock: dict[str, float] = {}
    engine.scheduler.schedule = _timed(engine.scheduler.schedule, "schedule", clock)  # type: ignore
    engine.worker.launch = _timed(engine.worker.launch, "prepare", clock)  # type: ignore
    rows = []
    gc.collect()
    for _ in range(STEPS + WARMUP):
        started = time.perf_counter()
        engine.step()
        total = time.perf_counter() - started
        process = total - clock["schedule"] - clock["prepare"]
        rows.append((clock["schedule"], clock["prepare"], process, total))
    columns = zip(*rows[WARMUP:], strict=True)  # the first step is the prefill
    return HostTime(*(round(1e6 * median(column), 1) for column in columns))


def _timed(function: Callable[..., Any], name: str, clock: dict[str, float]) -> Callable[..., Any]:
    def call(*args: Any) -> Any:
        started = time.perf_counter()
        result = function(*args)
        clock[name] = time.perf_counter() - started
        return result

    return call


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scheduling", default="unified", choices=["unified", "sosp"])
    parser.add_argument("--stream", action="store_true", help="an output each step, not one at end")
    parser.add_argument("--save", action="store_true")
    args = parser.parse_args()
    result = {}
    print("running    schedule     prepare     process       total   microseconds a step")
    for num_seqs in RUNNING:
        found = vars(measure(num_seqs, args.scheduling, stream=args.stream))
        print(f"{num_seqs:>7}" + "".join(f"{x:>12.1f}" for x in found.values()))
        result[f"{num_seqs}_running"] = found
    if args.save:
        total = result["256_running"]["total_us"] / 1000
        headline = {"host time a step, 256 running": f"{total:.2f} ms"}
        write_result("host_time", result, arguments=args, headline=headline)


if __name__ == "__main__":
    main()
