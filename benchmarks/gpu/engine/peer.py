"""`python -m benchmarks.gpu.engine.peer MODEL`: the engine and transformers on the same requests.

transformers' continuous batching runs by the script of `benchmarks.compare`, in its own process,
with random weights and with its own choice of memory, graphs and attention. It needs a PyTorch that
sees the GPU.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.compare.metrics import figures
from benchmarks.compare.session import SCRIPTS
from benchmarks.compare.workloads import Job
from benchmarks.gpu.engine.models import FULL, MODELS, SMOKE, TINY, write_config
from benchmarks.gpu.said import put, skip
from benchmarks.report import ROOT
from benchmarks.workload import sharegpt_requests

SHORT = 4  # tokens of each output in the pass that is not measured


def jobs(name: str, smoke: bool) -> list[Job]:
    """As many ShareGPT requests as may run at once, all there from the start."""
    scale = SMOKE if smoke else FULL
    vocab_size = (TINY if smoke else MODELS[name])["vocab_size"]
    requests = sharegpt_requests(
        scale.running, vocab_size=vocab_size, max_model_len=scale.max_model_len
    )
    return [Job(one.prompt_token_ids, one.output_len) for one in requests]


def message(asked: list[Job]) -> str:
    return json.dumps({"requests": [asdict(job) for job in asked]}) + "\n"


def run_ours(name: str, asked: list[Job], limit_s: float, smoke: bool) -> float | None:
    """Output tokens a second of this engine, which the results get as well; None if it failed."""
    command = [sys.executable, "-m", "benchmarks.gpu.engine.child", name, "trace"]
    done = subprocess.run(
        command + ["--smoke"] * smoke,
        input=message(asked), stdout=subprocess.PIPE, text=True, timeout=limit_s, cwd=ROOT,
    )  # fmt: skip
    print(done.stdout, end="", flush=True)
    for line in done.stdout.splitlines():
        if line.startswith('{"put"') and (found := json.loads(line))["put"][-1] == "trace":
            return float(found["value"]["output_tokens_per_s"])
    return None


def run_transformers(name: str, asked: list[Job], limit_s: float) -> dict[str, Any]:
    """Figures of its second pass.

    Raises:
        RuntimeError: It failed, or was not done in time; with what it said.
    """
    short = [Job(job.prompt[::-1], SHORT) for job in asked]
    with tempfile.TemporaryDirectory() as folder:
        write_config(name, Path(folder), smoke=False)
        settings = {
            "model": folder,
            "load_format": "dummy",
            "device": "cuda",
            "dtype": "bfloat16",
            "max_num_seqs": FULL.running,
        }
        command = [sys.executable, str(SCRIPTS / "transformers_continuous.py")]
        try:
            done = subprocess.run(
                [*command, json.dumps(settings)],
                input=message(short) + message(asked),
                capture_output=True,
                text=True,
                timeout=limit_s,
            )
        except subprocess.TimeoutExpired as expired:
            raise RuntimeError(f"not done after {limit_s:.0f} s, both passes included") from expired
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    for answer in answers:
        if "error" in answer:
            raise RuntimeError(answer["error"])
    if len(answers) < 3:
        raise RuntimeError(f"ended early: {done.stderr.strip()[-300:]}")
    loaded, _, answer = answers
    return {**figures(asked, answer), "versions": loaded["versions"]}


def main() -> None:
    """Both, and the ratio of their tokens a second."""
    parser = argparse.ArgumentParser("python -m benchmarks.gpu.engine.peer")
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("--limit", type=float, default=1e9)
    parser.add_argument("--card", default="", help="not read")
    parser.add_argument("--smoke", action="store_true", help="this engine alone, in miniature")
    args = parser.parse_args()
    started, asked = time.perf_counter(), jobs(args.model, args.smoke)
    ours = run_ours(args.model, asked, args.limit, args.smoke)
    if ours is None or args.smoke:
        skip(f"{args.model}: transformers", "a smoke run" if args.smoke else "this engine failed")
        return
    try:
        left = args.limit - (time.perf_counter() - started)
        theirs = run_transformers(args.model, asked, left)
    except RuntimeError as error:
        skip(f"{args.model}: transformers", str(error))
        return
    ratio = round(ours / theirs["output_tokens_per_s"], 2)
    put("models", args.model, "transformers", value={"ours_over_theirs": ratio, **theirs})


if __name__ == "__main__":
    main()
