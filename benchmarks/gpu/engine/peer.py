"""transformers' continuous batching on the same card and the same requests, in its own process.

It runs the script of `benchmarks.compare`, with random weights and with its own choice of memory,
graphs and attention. Needs a PyTorch that sees the GPU; without one the results say so.
"""

import json
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.compare.metrics import figures
from benchmarks.compare.session import SCRIPTS
from benchmarks.compare.workloads import Job
from benchmarks.gpu.engine.models import FULL, MODELS, SMOKE, TINY, write_config
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
