"""One example: a process of its own, with a limit on its time, and what came of it."""

import json
import os
import re
import signal
import subprocess
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.report import ROOT
from benchmarks.vllm_examples.models import STAND_INS, local_directory
from jax_engine.compat.stand_ins import get_open_port

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
# Servers, which are asked once and then told to end: their arguments, and a request.
SERVERS = {
    "applications/api_server/server.py": (
        "--model {model} --max-model-len 512 --host 127.0.0.1 --port {port}",
        ("/generate", {"prompt": "The capital of France is", "max_tokens": 8, "temperature": 0}),
    ),
}
# Which must come before, for what they leave.
_HANDED = "disaggregated/{}/{}_example.py"
AFTER = {
    _HANDED.format(folder, "decode"): _HANDED.format(folder, "prefill")
    for folder in ("example_connector", "kv_load_failure_recovery_offline")
} | {
    "features/sharded_state/load_sharded_state_offline.py": (
        "features/sharded_state/save_sharded_state_offline.py"
    ),
}
# What an example leaves that prints nothing.
LEAVES = {"features/sharded_state/save_sharded_state_offline.py": "saved/*.safetensors"}
# Whose output says nothing with a stand-in, though they come to an end.
MEANINGLESS = {
    "tool_calling/chat_with_tools_offline.py": (
        "the model itself: the example reads its answer as calls in JSON, which no stand-in writes"
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
    arguments, asked = SERVERS.get(path, (ARGUMENTS.get(path, ""), None))
    port = get_open_port()
    given = arguments.format(model=local_directory(home), port=port).split()
    command = [python, "-m", "jax_engine.compat.vllm", str(source / path), *given]
    environment = os.environ | {"HF_HOME": str(home), "HF_HUB_OFFLINE": "1"}
    environment |= {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    started = time.monotonic()
    with subprocess.Popen(
        command,
        cwd=scratch,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        output, need = _ended(process, port, asked, limit_s)
    seconds = round(time.monotonic() - started, 1)
    (scratch / (path.replace("/", "_") + ".out")).write_text(output, "utf-8")
    left = path in LEAVES and any(scratch.glob(LEAVES[path]))
    if not need and not output.strip() and not left:
        need = "something to print: it printed nothing"
    need = MEANINGLESS.get(path, need).replace(f"{home}/", "")
    text = (source / path).read_text("utf-8")
    stand_ins = sorted({kind for name, kind in STAND_INS.items() if f'"{name}"' in text})
    return Outcome(path, not need, seconds, arguments, stand_ins, need)


def _ended(
    process: subprocess.Popen[str],
    port: int,
    asked: tuple[str, dict[str, Any]] | None,
    limit_s: float,
) -> tuple[str, str]:
    """What a program printed, and what it lacks, once it has ended; a server is asked first."""
    try:
        answer = "" if asked is None else _answer(process, port, *asked, limit_s)
        output, errors = process.communicate(timeout=limit_s)
    except (subprocess.TimeoutExpired, TimeoutError):
        process.kill()
        return process.communicate()[0], f"more than {limit_s:.0f} s on this machine"
    if process.returncode:
        return output, _last_error(errors)
    if asked is not None and not answer:
        return output, "an answer to its request: it was an error"
    return answer + output, ""


def _answer(
    process: subprocess.Popen[str], port: int, path: str, body: dict[str, Any], limit_s: float
) -> str:
    """What a server answers once it listens; then it is told to end. Nothing if it has ended.

    Raises:
        TimeoutError: It did not listen, or did not answer, in time.
    """
    end = time.monotonic() + limit_s
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    while process.poll() is None:
        try:
            with urllib.request.urlopen(request, timeout=limit_s) as reply:
                answer: str = reply.read().decode()
        except urllib.error.HTTPError:
            answer = ""
        except urllib.error.URLError:  # it does not listen yet
            if time.monotonic() > end:
                raise TimeoutError from None
            time.sleep(1)
            continue
        process.send_signal(signal.SIGINT)
        return answer
    return ""


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
