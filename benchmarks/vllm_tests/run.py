"""One file of tests: a process of pytest, and what came of each test."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jax_engine
from benchmarks.report import ROOT

HERE = Path(__file__).parent
# Folders and files below vLLM's tests/ that ask a server, but for what is about nothing here.
FOLDERS = (
    "entrypoints/anthropic",
    "entrypoints/openai",
    "entrypoints/pooling",
    "entrypoints/scale_out/token_in_token_out",
    "entrypoints/serve",
    "tool_use",
    "v1/sample",
)


def files(source: Path) -> list[str]:
    """Those that ask a server, or whose folder has a fixture that does, below `source`/tests."""
    found = []
    for folder in FOLDERS:
        servers = set()
        for path in sorted((source / "tests" / folder).rglob("*.py")):
            if "RemoteOpenAIServer(" in path.read_text("utf-8"):
                servers.add(path.parent if path.name == "conftest.py" else path)
        for path in sorted((source / "tests" / folder).rglob("test_*.py")):
            if path in servers or servers.intersection(path.parents):
                found.append(str(path.relative_to(source / "tests")))
    return found


def run_file(
    source: Path, path: str, *, python: str, models: dict[str, str], log: Path, limit_s: int
) -> list[dict[str, str]]:
    """What came of each test of a file: its name, outcome, and what it said.

    Args:
        source: vLLM's unpacked source distribution.
        python: An interpreter with pytest and the clients.
        models: The directory for each name of a model, and for any other under "".
        log: A file for what pytest and the server say. The record of the tests is beside it; where
            one is already, they are not run again.
        limit_s: The longest time that one test may take.
    """
    record, part = log.with_suffix(".jsonl"), log.with_suffix(".part")
    if record.exists():
        return _read(record)
    part.unlink(missing_ok=True)
    part.touch()
    top = source / "tests" / path.split("/")[0]
    command = [python, "-m", "pytest", "-c", str(HERE / "pytest.ini"), "--rootdir", str(source)]
    command += ["--confcutdir", str(top), "-q", "-o", f"timeout={limit_s}", f"tests/{path}"]
    environment = os.environ | {
        "PYTHONPATH": str(ROOT),
        "PYTHONSAFEPATH": "1",  # vLLM has a folder benchmarks, too
        "PYTHONDONTWRITEBYTECODE": "1",
        "JAX_ENGINE_PYTHON": sys.executable,
        "VLLM_SOURCE": str(source),
        "VLLM_TESTS_MODELS": json.dumps(models),
        "VLLM_TESTS_RECORD": str(part),
        "VLLM_TESTS_VERSION": jax_engine.__version__,
    }
    with log.open("w") as said:
        subprocess.run(
            command, cwd=source, env=environment, stdout=said, stderr=subprocess.STDOUT, check=False
        )
    part.rename(record)
    return _read(record)


def _read(record: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in record.read_text("utf-8").splitlines()]
