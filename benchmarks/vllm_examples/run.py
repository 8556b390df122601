"""One example: a process of its own, with a limit on its time, and what came of it."""

import os
import re
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.report import ROOT
from benchmarks.vllm_examples.models import STAND_INS, local_directory

# Arguments that an example does not do without, or without which it shows nothing.
ARGUMENTS = {
    "disaggregated/flexkv_connector/prefix_caching_flexkv.py": "--model {model}",
    "features/data_parallel/data_parallel_offline.py": "--data-parallel-size 2",
    "features/profiling/run_one_batch_offline.py": "--profile both --profile-dir profile",
    "features/sharded_state/save_sharded_state_offline.py": "--model {model} --output saved",
    "features/sharded_state/load_sharded_state_offline.py": "--model saved",
    "features/speculative_decoding/spec_decode_offline.py": (
        "--method ngram --num-prompts 4 --random-input-len 64 --output-len 32 --max-model-len 4096"
    ),
}
# Which must come before, for what they leave.
AFTER = {
    "features/sharded_state/load_sharded_state_offline.py": (
        "features/sharded_state/save_sharded_state_offline.py"
    ),
}
# What an example leaves that prints nothing.
LEAVES = {"features/sharded_state/save_sharded_state_offline.py": "saved/*.safetensors"}
# Whose output says nothing with a stand-in, though they come to an end.
MEANINGLESS = {
    "pooling/token_embed/jina_reranker_v3_offline.py": (
        "the architecture of jina-reranker-v3, which reads query and documents as one prompt"
    ),
}


@dataclass(frozen=True)
class Outcome:
    """What came of one example.

    Attributes:
        runs: It came to its end without an error, and printed something or left what it should.
        need: What it lacks, if it does not run.
        stand_ins: Kinds of model that stood for those that it names.
    """

    path: str
    runs: bool
    seconds: float
    arguments: str
    stand_ins: list[str]
    need: str = ""


def in_order(paths: list[str]) -> list[str]:
    """Those that leave something for others before these."""
    late = [path for path in paths if path in AFTER]
    return [path for path in paths if path not in AFTER] + late


def run_example(
    source: Path, path: str, *, python: str, home: Path, scratch: Path, limit_s: float
) -> Outcome:
    """Runs an example as it is, under the stand-in for vLLM's modules.

    Args:
        python: An interpreter that has jax-engine, and PyTorch for the examples that import it.
        home: `hub_cache`.
        scratch: The folder that it runs in.
    """
    arguments = ARGUMENTS.get(path, "")
    given = arguments.format(model=local_directory(home)).split()
    command = [python, "-m", "jax_engine.compat.vllm", str(source / path), *given]
    environment = os.environ | {"HF_HOME": str(home), "HF_HUB_OFFLINE": "1"}
    environment |= {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    started = time.monotonic()
    try:
        done = subprocess.run(
            command, cwd=scratch, env=environment, capture_output=True, text=True, timeout=limit_s
        )
        output, need = done.stdout, _last_error(done.stderr) if done.returncode else ""
    except subprocess.TimeoutExpired as error:
        output = error.stdout.decode() if isinstance(error.stdout, bytes) else ""
        need = f"more than {limit_s:.0f} s on this machine"
    seconds = round(time.monotonic() - started, 1)
    (scratch / (path.replace("/", "_") + ".out")).write_text(output, "utf-8")
    left = path in LEAVES and any(scratch.glob(LEAVES[path]))
    if not need and not output.strip() and not left:
        need = "something to print: it printed nothing"
    need = MEANINGLESS.get(path, need)
    text = (source / path).read_text("utf-8")
    stand_ins = sorted({kind for name, kind in STAND_INS.items() if f'"{name}"' in text})
    return Outcome(path, not need, seconds, arguments, stand_ins, need)


def _last_error(stderr: str) -> str:
    """The last line that names an exception, without its type."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    for line in reversed(lines):
        kind, colon, words = line.partition(": ")
        if colon and kind.rpartition(".")[2].endswith(("Error", "Exception", "NotFound")):
            # One sentence: those behind it name folders of this machine
            words = re.split(r"\.\s", words)[0]
            return words if "jax_engine" in kind or "jax-engine" in words else f"{kind}: {words}"
    return lines[-1] if lines else "it ended without a word"
