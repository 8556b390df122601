"""The same requests through this engine and through its peers, taking turns on one machine.

    python -m benchmarks compare --workloads W1,W2 --peers vllm,transformers --dtypes float32

Each peer runs in an environment of its own, installed when it is missing, under .venv-peers (or
$JAX_ENGINE_PEERS). Every workload starts with an unmeasured pass, and has a result of its own.
"""

import argparse
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.compare import bounds, checkpoint
from benchmarks.compare.environments import OURS, PEERS, CannotInstall, Peer, folder, interpreter
from benchmarks.compare.passes import requests_of, summary, take_turns
from benchmarks.compare.session import PeerFailed, Session
from benchmarks.compare.table import headline
from benchmarks.compare.workloads import WORKLOADS, Scale
from benchmarks.registry import Benchmark, Figures, flag, names_of, positive
from jax_engine.models.model_config import ModelConfig
from jax_engine.models.registry import config_from_hf

KV_CACHE_BYTES = 2 << 30
TINY_SCALE = Scale(requests=16, rate=5.0, vocab_size=checkpoint.TINY["vocab_size"], divide=8)


def settings_for(config: ModelConfig, model: Path, dtype: str, smoke: bool) -> dict[str, Any]:
    """What every peer is told."""
    spec, itemsize = config.spec, 4 if dtype == "float32" else 2
    per_token = 2 * spec.num_layers * spec.num_kv_heads * spec.head_dim * itemsize
    return {
        "model": str(model),
        "gguf": "" if smoke else str(checkpoint.gguf_file(model.parent, dtype)),
        "dtype": dtype,
        "max_model_len": 1024 if smoke else 4608,  # W6 has 4,352, an eighth of it in a smoke run
        "max_num_seqs": 64,
        "kv_cache_bytes": (1 << 22) if smoke else KV_CACHE_BYTES,
        "kv_bytes_per_token": per_token,
        "load_format": "dummy" if smoke else "auto",
    }


class Running:
    """The peers that run, and for the others the reason why not."""

    def __init__(
        self, names: list[str], settings: dict[str, Any], peers: dict[str, Peer] = PEERS
    ) -> None:
        self.sessions: dict[str, Session] = {}
        self.failures: dict[str, str] = {}
        for name in names:
            log = folder() / "logs" / f"{name}-{settings['dtype']}.log"
            try:
                python = interpreter(peers[name])
                self.sessions[name] = Session(peers[name], python, settings, log)
                self.sessions[name].pause()
                print(f"  {name}: {self.sessions[name].start_up}", flush=True)
            except (CannotInstall, PeerFailed) as error:
                self.failures[name] = str(error)
                print(f"  {name}: {error}", flush=True)
        if OURS not in self.sessions:
            raise SystemExit(f"our own engine failed: {self.failures[OURS]}")

    def drop_failed(self, failures: dict[str, str]) -> None:
        """Those take no part in later workloads."""
        for name, why in failures.items():
            self.sessions.pop(name).close()
            self.failures[name] = why

    def told(self) -> Figures:
        """What a result says of all: why some did not run, and the versions of the others."""
        return {
            "failures": {name: {"failure": why} for name, why in self.failures.items()},
            "versions": {name: one.versions for name, one in self.sessions.items()},
        }

    def close(self) -> None:
        for session in self.sessions.values():
            session.close()


def compare(
    args: argparse.Namespace, config: ModelConfig, dtype: str, name: str, running: Running
) -> dict[str, Any]:
    """One workload in one dtype."""
    scale = TINY_SCALE if args.smoke else Scale(requests=args.requests, rate=args.rate)
    limits = bounds.measure(config)
    for session in running.sessions.values():
        session.forget_peak()
    jobs = requests_of(name, scale, turn=0)
    found = take_turns(name, running.sessions, scale, args.runs)
    table = summary(found, jobs[0].n == 1, dtype == "float32")
    for peer, session in running.sessions.items():
        table[peer] |= {"start_up": session.start_up, "peak_memory_mib": session.peak_memory_mib()}
        table[peer]["versions"] = session.versions
    running.drop_failed({peer: one.failure for peer, one in found.items() if one.failure})
    return {
        "workload": name,
        "what": WORKLOADS[name][0],
        "dtype": dtype,
        "requests": len(jobs),
        "input_tokens": sum(len(job.prompt) for job in jobs),
        "output_tokens": sum(job.output_len * job.n for job in jobs),
        "machine_limits": limits,
        "bound_tokens_per_s": bounds.bounds(config, limits, jobs, dtype).get(name),
        "peers": {peer: {"failure": why} for peer, why in running.failures.items()} | table,
    }


def run(args: argparse.Namespace) -> Iterator[Figures]:
    with tempfile.TemporaryDirectory() as scratch:
        if args.smoke:
            model = checkpoint.tiny_directory(Path(scratch) / "tiny")
        else:
            model = checkpoint.hf_directory(folder() / "checkpoints")
        config = config_from_hf(json.loads((model / "config.json").read_text("utf-8")))
        for dtype in args.dtypes:
            print(dtype, flush=True)
            running = Running([OURS, *args.peers], settings_for(config, model, dtype, args.smoke))
            try:
                for name in args.workloads:
                    yield {f"{name}_{dtype}": compare(args, config, dtype, name, running)}
            finally:
                running.close()


def files(args: argparse.Namespace, found: Figures) -> dict[str, Figures]:
    return {f"compare_{case}": one for case, one in found.items()}


OTHERS = [name for name in PEERS if name != OURS]
DTYPES = ["float32", "bfloat16"]
BENCHMARK = Benchmark(
    run,
    flags=(
        flag("--workloads", type=names_of(WORKLOADS), default=list(WORKLOADS)),
        flag("--peers", type=names_of(OTHERS, 0), default=OTHERS),
        flag("--dtypes", type=names_of(DTYPES), default=DTYPES),
        flag("--runs", type=positive(int), default=3, help="measured passes of each peer"),
        flag("--requests", type=positive(int), default=64, help="of W3 and W4"),
        flag("--rate", type=positive(float), default=0.15, help="arrivals a second in W4"),
    ),
    smoke={"peers": [], "runs": 1, "dtypes": DTYPES[:1]},
    headline=lambda args, one: headline(one),
    files=files,
)
