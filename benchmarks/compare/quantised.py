"""This engine and others on the same quantised files, taking turns on one machine.

    python -m benchmarks compare.quantised --files Q8_0 --workloads W2

The files are the default model's own (Q4_1), its numbers quantised anew (Q4_0, Q8_0), and random
numbers in the shape of a model of a billion (1B-Q4_0). For the first file that is named, this
engine also runs with weights that it decodes when it loads them. onnxruntime-genai reads no GGUF:
its own builder makes blocks like those of Q4_0 from the same numbers.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.compare.benchmark import Running
from benchmarks.compare.bounds import num_weights
from benchmarks.compare.checkpoint import bytes_per_token as stored_bytes
from benchmarks.compare.checkpoint import quantised_file
from benchmarks.compare.environments import OURS, CannotInstall, folder, interpreter
from benchmarks.compare.large_checkpoint import large_file
from benchmarks.compare.onnx_checkpoint import onnx_directory
from benchmarks.compare.passes import Runs, requests_of, summary, take_turns
from benchmarks.compare.quantised_peers import DECODED, LLAMAS, NAME, ONNX, PEERS
from benchmarks.compare.workloads import Scale
from benchmarks.machine_limits import read_bandwidth
from benchmarks.registry import Benchmark, Figures, flag, names_of, positive
from jax_engine.models.checkpoints.gguf.gguf_file import GgufFile
from jax_engine.models.checkpoints.gguf.gguf_source import config_from_gguf
from jax_engine.models.model_config import ModelConfig

LARGE, ONNX_FILE = "1B-Q4_0", "Q4_0"
FILES = ("Q4_1", "Q4_0", "Q8_0", LARGE)
MAX_MODEL_LEN, MAX_NUM_SEQS = 256, 32  # W1's and W2's longest request, and W1's number of them


def settings_for(config: ModelConfig, file: Path) -> dict[str, Any]:
    """What every peer is told. Each holds the KV of 32 sequences; the sizes are of float32."""
    spec = config.spec
    per_token = 8 * spec.num_layers * spec.num_kv_heads * spec.head_dim
    return {
        "model": str(file),
        "gguf": str(file),
        "dtype": "file",  # llama.cpp takes what the file has; ours have their own
        "max_model_len": MAX_MODEL_LEN,
        "max_num_seqs": MAX_NUM_SEQS,
        "kv_cache_bytes": MAX_NUM_SEQS * MAX_MODEL_LEN * per_token,
        "kv_bytes_per_token": per_token,
        "load_format": "auto",
    }


def bytes_per_token(peer: str, file: Path, config: ModelConfig) -> int:
    """Weights that this peer reads for a token: the file's blocks, or decoded numbers.

    onnxruntime-genai's blocks of 32 have 16 bytes of codes and a scale in float32.
    """
    if peer == ONNX:
        return num_weights(config) // 32 * 20
    if DECODED not in peer:
        return stored_bytes(file)
    dtype = dict(PEERS[peer].settings)["dtype"]
    return num_weights(config) * (4 if dtype == "float32" else 2)


def rows(
    found: dict[str, Runs], file: Path, config: ModelConfig, bandwidth: float
) -> dict[str, Any]:
    """`passes.summary`, with the bytes that a token reads and the bound of one stream from them.

    llama.cpp also says how much of a pass was inside the library's step.
    """
    table = summary(found, greedy=True, compare_tokens=True)
    for peer, row in table.items():
        if "failure" in row:
            continue
        size = bytes_per_token(peer, file, config)
        row["bytes_per_token"] = size
        row["read_bound_tokens_per_s"] = round(bandwidth / size, 1)
        answer = found[peer].answer
        if "decode_s" in answer:
            row["in_decode_percent"] = round(100 * answer["decode_s"] / answer["seconds"], 1)
    return table


def case(kind: str, name: str, file: Path, running: Running, runs: int) -> dict[str, Any]:
    """One workload on one file."""
    config = config_from_gguf(GgufFile(file))
    bandwidth = read_bandwidth()
    for session in running.sessions.values():
        session.forget_peak()
    jobs = requests_of(name, Scale(), turn=0)
    found = take_turns(name, running.sessions, Scale(), runs)
    table = rows(found, file, config, bandwidth)
    for peer, session in running.sessions.items():
        table[peer] |= {"start_up": session.start_up, "peak_memory_mib": session.peak_memory_mib()}
        table[peer]["versions"] = session.versions
    running.drop_failed({peer: one.failure for peer, one in found.items() if one.failure})
    return {
        "file": kind,
        "workload": name,
        "output_tokens": sum(job.output_len for job in jobs),
        "read_bandwidth_gb_per_s": round(bandwidth / 1e9, 1),
        "peers": {peer: {"failure": why} for peer, why in running.failures.items()} | table,
    }


def headline(cases: dict[str, Any]) -> dict[str, str]:
    """Our tokens a second on each file, and over llama.cpp's with its better number of threads."""
    found = {}
    for one in cases.values():
        ours, theirs = one["peers"][OURS], [one["peers"].get(name, {}) for name in LLAMAS]
        over = min(
            (row["ours_over_this"] for row in theirs if "ours_over_this" in row), default=None
        )
        figure = f"{ours.get('output_tokens_per_s', 'failed')} output tokens/s"
        figure += "" if over is None else f"; {over:.2f}x llama.cpp"
        found[f"{one['workload']} on a {one['file']} file, bfloat16"] = figure
    return found


def _file(kind: str) -> Path:
    checkpoints = folder() / "checkpoints"
    return large_file(checkpoints) if kind == LARGE else quantised_file(checkpoints, kind)


def _onnx() -> str:
    """The directory for onnxruntime-genai, or "" with a line that says why there is none."""
    try:
        return str(onnx_directory(folder() / "checkpoints", interpreter(PEERS[ONNX])))
    except CannotInstall as error:
        print(f"  {ONNX}: {error}", flush=True)
        return ""


def run(args: argparse.Namespace) -> Iterator[Figures]:
    for kind in args.files:
        print(kind, flush=True)
        file = _file(kind)
        config = config_from_gguf(GgufFile(file))
        names = [n for n in args.peers if DECODED not in n or kind == args.files[0]]
        settings = settings_for(config, file)
        if ONNX in names:
            settings["onnx"] = _onnx() if kind == ONNX_FILE else ""
        names = [name for name in names if name != ONNX or settings["onnx"]]
        running = Running([OURS, *names], settings, PEERS)
        try:
            for name in args.workloads:
                yield {f"{kind} {name}": case(kind, name, file, running, args.runs)}
        finally:
            running.close()


def merge(args: argparse.Namespace, saved: Figures, new: Figures) -> Figures:
    return saved | new if args.add else new


OTHERS = [name for name in PEERS if name != OURS]
BENCHMARK = Benchmark(
    run,
    flags=(
        flag("--files", type=names_of(FILES), default=list(FILES)),
        flag("--workloads", type=names_of(("W1", "W2")), default=["W1", "W2"]),
        flag("--peers", type=names_of(OTHERS, 0), default=OTHERS),
        flag("--runs", type=positive(int), default=3, help="measured passes of each"),
        flag("--add", action="store_true", help="keep the file's other cases"),
    ),
    smoke={"files": ["Q4_1"], "workloads": ["W2"], "peers": [], "runs": 1},
    headline=lambda args, cases: headline(cases),
    files=lambda args, cases: {NAME: cases},
    merge=merge,
)
