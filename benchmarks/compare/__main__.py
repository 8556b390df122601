"""The same requests through this engine and through its peers, taking turns on one machine.

    python -m benchmarks.compare --workloads W1,W2 --peers vllm,transformers --dtypes float32
    python -m benchmarks.compare --smoke        tiny, our engine only: does everything fit together

Each peer runs in an environment of its own, installed when it is missing, under .venv-peers (or
$JAX_ENGINE_PEERS). Every workload starts with an unmeasured pass. Results go to
benchmarks/results/compare_WORKLOAD_DTYPE.json, one file each.
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.compare import bounds, checkpoint
from benchmarks.compare.environments import OURS, PEERS, CannotInstall, folder, interpreter
from benchmarks.compare.passes import summary, take_turns
from benchmarks.compare.session import PeerFailed, Session
from benchmarks.compare.workloads import WORKLOADS, Scale
from benchmarks.report import RESULTS, write_result
from jax_engine.models.config import ModelConfig
from jax_engine.models.families import llama

KV_CACHE_BYTES = 2 << 30
TINY_SCALE = Scale(requests=16, rate=5.0, vocab_size=checkpoint.TINY["vocab_size"], divide=8)


def settings_for(config: ModelConfig, model: Path, dtype: str, smoke: bool) -> dict[str, Any]:
    """What every peer is told."""
    itemsize = 4 if dtype == "float32" else 2
    per_token = 2 * config.num_layers * config.num_kv_heads * config.head_dim * itemsize
    return {
        "model": str(model),
        "gguf": "" if smoke else str(checkpoint.gguf_file(model.parent, dtype)),
        "dtype": dtype,
        "max_model_len": 512 if smoke else 4608,  # W6 has 4,352
        "max_num_seqs": 64,
        "kv_cache_bytes": (1 << 22) if smoke else KV_CACHE_BYTES,
        "kv_bytes_per_token": per_token,
        "load_format": "dummy" if smoke else "auto",
    }


def start(names: list[str], settings: dict[str, Any]) -> tuple[dict[str, Session], dict[str, str]]:
    """Those that run, and for the others the reason why not."""
    sessions, failures = {}, {}
    for name in names:
        log = folder() / "logs" / f"{name}-{settings['dtype']}.log"
        try:
            sessions[name] = Session(PEERS[name], interpreter(PEERS[name]), settings, log)
            sessions[name].pause()
            print(f"  {name}: {sessions[name].start_up}", flush=True)
        except (CannotInstall, PeerFailed) as error:
            failures[name] = str(error)
            print(f"  {name}: {error}", flush=True)
    if OURS not in sessions:
        raise SystemExit(f"our own engine failed: {failures[OURS]}")
    return sessions, failures


def compare(args: argparse.Namespace, model: Path, dtype: str, name: str) -> dict[str, Any]:
    """One workload in one dtype, all peers in fresh processes."""
    config = llama.from_hf(json.loads((model / "config.json").read_text("utf-8")))
    scale = TINY_SCALE if args.smoke else Scale(requests=args.requests, rate=args.rate)
    print(f"{name} {dtype}", flush=True)
    limits = bounds.measure(config)
    sessions, failures = start(
        [OURS, *args.peers], settings_for(config, model, dtype, args.smoke)
    )
    jobs = WORKLOADS[name][1](scale, 0)
    found = take_turns(name, sessions, scale, args.runs)
    table = summary(found, jobs[0].n == 1, dtype == "float32")
    for peer, session in sessions.items():
        table[peer] |= {"start_up": session.start_up, "peak_memory_mib": session.close()}
        table[peer]["versions"] = session.versions
    bound = bounds.bounds(config, limits, jobs, dtype).get(name)
    return {
        "workload": name,
        "what": WORKLOADS[name][0],
        "dtype": dtype,
        "requests": len(jobs),
        "input_tokens": sum(len(job.prompt) for job in jobs),
        "output_tokens": sum(job.output_len * job.n for job in jobs),
        "machine_limits": limits,
        "bound_tokens_per_s": bound,
        "peers": table | {peer: {"failure": reason} for peer, reason in failures.items()},
    }


def _names(known: Any) -> Any:
    def parse(text: str) -> list[str]:
        names = [name for name in text.split(",") if name]
        for name in names:
            if name not in known:
                raise argparse.ArgumentTypeError(f"{name!r}; known: {', '.join(known)}")
        return names

    return parse


def parse_args() -> argparse.Namespace:
    others = [name for name in PEERS if name != OURS]
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.compare", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--workloads", type=_names(WORKLOADS), default=list(WORKLOADS))
    parser.add_argument("--peers", type=_names(others), default=others)
    parser.add_argument(
        "--dtypes", type=_names(("float32", "bfloat16")), default=["float32", "bfloat16"]
    )
    parser.add_argument("--runs", type=int, default=3, help="measured passes of each peer")
    parser.add_argument("--requests", type=int, default=64, help="of W3 and W4")
    parser.add_argument("--rate", type=float, default=0.15, help="arrivals a second in W4")
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder of the results")
    parser.add_argument(
        "--smoke", action="store_true", help="a tiny random model, short workloads, no bounds kept"
    )
    return parser.parse_args()


def run_all(args: argparse.Namespace, model: Path) -> None:
    for dtype in args.dtypes:
        for name in args.workloads:
            result = compare(args, model, dtype, name)
            path = args.output / f"compare_{name}_{dtype}.json"
            write_result(f"compare_{name}_{dtype}", result, path, arguments=args)


def main() -> None:
    args = parse_args()
    if args.smoke:
        args.peers, args.runs, args.dtypes = [], 1, args.dtypes[:1]
        with tempfile.TemporaryDirectory() as scratch:
            args.output = Path(scratch) if args.output == RESULTS else args.output
            run_all(args, checkpoint.tiny_directory(Path(scratch) / "tiny"))
        return
    run_all(args, checkpoint.hf_directory(folder() / "checkpoints"))


if __name__ == "__main__":
    main()
