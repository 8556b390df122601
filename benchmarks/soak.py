"""Resident memory over many requests: it must stay where it is after the first tenth of them.

    python -m benchmarks soak --requests 50000            prints a line every twentieth
    python -m benchmarks soak --requests 50000 --save     and keeps them in benchmarks/results/
    python -m benchmarks soak --requests 7000 --smollm2   the default model in place of a tiny one

A tiny model over bytes, or SmolLM2, with all that a request can be: greedy, sampled, several
samples, beams, penalties, stop strings, guided, log-probabilities of prompt and tokens, embeddings;
some are aborted, some time out. What grows to a limit is there from the start: each size of step
takes some MiB when it is compiled, and the tokenizer keeps 10,000 words. What else may grow is
counted beside: Python's objects, the C heap, compiled programs, KV blocks that have been written at
least once (the pool is touched block by block as it is used).

It asks `LLMEngine` itself, not through the tests' protocol of an engine: that names no programs,
and its `debug_state` copies the block tables, so that looking would take memory itself.
"""

import argparse
import ctypes
import gc
import random
import sys
import tempfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.registry import Benchmark, Figures, flag
from benchmarks.tiny import write_model
from jax_engine import (
    EngineConfig,
    LLMEngine,
    PoolingParams,
    PoolingRequestOutput,
    SamplingParams,
)
from jax_engine import StructuredOutputsParams as Guide
from jax_engine.outputs import AnyRequestOutput

IN_FLIGHT, LOOKS, WARMUP_SHARE = 12, 20, 0.1
CACHED_WORDS = 10_000  # by tokenizers' BPE
DECODE_SIZES = (1, 2, 4, 8)  # of steps with max_num_seqs=8
WITH_OWN_STEPS = (
    3,
    4,
    6,
    7,
    8,
    10,
)  # of `kinds`: with them steps differ
LETTERS = "abcdefghij "
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}

MALLINFO2 = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"


@dataclass(frozen=True)
class Look:
    """Memory at one moment.

    Attributes:
        requests: That have ended by then.
        resident_mib: The process's resident memory.
        heap_used_mib: The allocated part of the C heap; large allocations included.
        heap_free_mib: The part of the C heap that is free and not given back.
        python_blocks: That Python's own allocator has given out.
        python_objects: That its garbage collector knows.
        programs: Compiled steps and samplers.
        touched_kv_mib: The part of the KV pool that has been written since the start.
    """

    requests: int
    resident_mib: float
    heap_used_mib: float
    heap_free_mib: float
    python_blocks: int
    python_objects: int
    programs: int
    touched_kv_mib: float


class _Heap(ctypes.Structure):
    """glibc's `struct mallinfo2`."""

    _fields_ = [(name, ctypes.c_size_t) for name in MALLINFO2.split()]


def look(engine: LLMEngine, requests: int, touched_blocks: int) -> Look:
    gc.collect()
    heap = _Heap()
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallinfo2"):  # glibc's
        libc.mallinfo2.restype = _Heap
        heap = libc.mallinfo2()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    steps = engine.worker.steps
    return Look(
        requests=requests,
        resident_mib=round(pages * 4096 / 2**20, 1),
        heap_used_mib=round((heap.uordblks + heap.hblkhd) / 2**20, 1),
        heap_free_mib=round(heap.fordblks / 2**20, 1),
        python_blocks=sys.getallocatedblocks(),
        python_objects=len(gc.get_objects()),
        programs=len(steps.compiled_shapes()) + len(steps.sample.programs),
        touched_kv_mib=round(touched_blocks * engine.memory.block / 2**20, 1),
    )


LIMITS: dict[str, Any] = {
    "max_model_len": 128,
    "max_num_seqs": 8,  # few sizes of steps, all of which `warm_up` meets
    "max_num_batched_tokens": 32,
    "num_gpu_blocks_override": 128,
}


def build(folder: Path) -> LLMEngine:
    """An engine around that model."""
    write_model(folder)
    return LLMEngine.from_config(EngineConfig(model=str(folder), load_format="dummy", **LIMITS))


def kinds(text: str, length: int, seed: int | None) -> list[SamplingParams | PoolingParams]:
    """One of each kind of request."""
    own: list[dict[str, Any]] = [
        {"temperature": 0.0},
        {"temperature": 1.0},
        {"n": 2},
        {"use_beam_search": True, "n": 2, "temperature": 0.0},
        {"frequency_penalty": 0.5, "repetition_penalty": 1.1},
        {"stop": ["a", "bc"]},
        {"logprobs": 2},
        {"prompt_logprobs": 1},
        {"structured_outputs": Guide(json=SCHEMA)},
        {"structured_outputs": Guide(regex=f"{text}[0-9]{{2,5}}")},  # another one each time
    ]
    sampled = [SamplingParams(max_tokens=length, seed=seed, **one) for one in own]
    return [*sampled, PoolingParams()]


def request(rng: random.Random) -> tuple[str, SamplingParams | PoolingParams, float | None]:
    """Prompt, params and timeout; half of the prompts begin alike."""
    text = "".join(rng.choices(LETTERS, k=rng.randint(1, 8)))
    prompt = "a beginning many share " * rng.randint(0, 1) + text
    timeout = rng.uniform(1e-3, 1e-2) if rng.random() < 0.05 else None
    length, seed = rng.randint(1, 8), rng.getrandbits(32)
    return prompt, rng.choice(kinds(text, length, seed)), timeout


def warm_up(engine: LLMEngine) -> None:
    """Fills the cache of words; compiles all sizes of steps, for each kind and for mixtures."""
    rng = random.Random(1)
    for _ in range(2 * CACHED_WORDS):
        engine.text_tokenizer().encode(request(rng)[0])
    each = kinds("abc", 8, None)
    batches = [[one] * size for size in DECODE_SIZES for one in each]
    for number in range(2 ** len(WITH_OWN_STEPS)):
        chosen = [kind for i, kind in enumerate(WITH_OWN_STEPS) if number >> i & 1]
        batches.append([each[0], *(each[kind] for kind in chosen)])
    for batch in batches:
        for i, params in enumerate(batch):
            engine.add_request(str(i), "abc", params)
        while engine.has_unfinished_requests():
            engine.step()
    steps = engine.worker.steps
    for shape in steps.compiled_shapes():
        if shape.decode_only and not shape.pooling:
            # The last token of a prompt among decodes: rare, and so too late to be warm by chance.
            steps.prepare(replace(shape, pooling=True), engine.worker.kv_cache.array)


def soak(engine: LLMEngine, num_requests: int, looks: int = LOOKS) -> list[Look]:
    """Runs them, IN_FLIGHT at a time, and looks at memory `looks` times."""
    warm_up(engine)
    rng, found = random.Random(0), list[Look]()
    blocks, touched = engine.scheduler.block_manager, set[int]()
    added, ended = 0, 0
    while ended < num_requests:
        while added - ended < IN_FLIGHT and added < num_requests:
            prompt, params, timeout = request(rng)
            engine.add_request(str(added), prompt, params, timeout=timeout)
            added += 1
        if rng.random() < 0.02:
            ended += len(engine.abort_request(str(rng.randrange(ended, added))))
        ended += sum(output.finished or _pooled(output) for output in engine.step())
        for table in blocks.tables.values():
            touched.update(table.ids)
        if ended >= (len(found) + 1) * num_requests / looks:
            found.append(look(engine, ended, len(touched)))
            print("".join(f"{value:>18,}" for value in asdict(found[-1]).values()), flush=True)
    return found


def _pooled(output: AnyRequestOutput) -> bool:
    """Whether this is the one output of its request: an aborted one does not say `finished`."""
    return isinstance(output, PoolingRequestOutput)


def summary(looks: list[Look]) -> dict[str, Any]:
    """The growth after warm-up, and all looks by their number of requests."""
    after = [one for one in looks if one.requests >= WARMUP_SHARE * looks[-1].requests]
    first, most = after[0].resident_mib, max(one.resident_mib for one in after)
    return {
        "growth_percent": round(100 * (most / first - 1), 2),
        "after_warmup_mib": first,
        "most_mib": most,
        "looks": {f"after {one.requests}": asdict(one) for one in looks},
    }


def run(args: argparse.Namespace) -> Figures:
    print("".join(f"{name:>18}" for name in Look.__dataclass_fields__))
    with tempfile.TemporaryDirectory() as folder:
        if args.smollm2:
            engine = LLMEngine.from_config(EngineConfig(**LIMITS))
        else:
            engine = build(Path(folder))
        return summary(soak(engine, args.requests, args.looks))


def headline(args: argparse.Namespace, found: Figures) -> dict[str, str]:
    model = "SmolLM2" if args.smollm2 else "a tiny model"
    what = f"growth of memory over the last nine tenths of {args.requests:,} requests, {model}"
    return {f"{what}, steps compiled and words cached before": f"{found['growth_percent']} %"}


BENCHMARK = Benchmark(
    run,
    flags=(
        flag("--requests", type=int, default=50_000),
        flag("--looks", type=int, default=LOOKS, help="at memory, on the way"),
        flag("--smollm2", action="store_true", help="not a tiny model"),
    ),
    smoke={"requests": 60, "looks": 3},
    headline=headline,
    files=lambda args, found: {"soak_smollm2" if args.smollm2 else "soak": found},
)
