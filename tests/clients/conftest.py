"""A server of SmolLM2 for clients that others wrote.

`.ci/clients` runs this folder in an environment that has them and not this project: the server is
started with the interpreter that `JAX_ENGINE_PYTHON` names, and is that of this checkout.
"""

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PYTHON = os.environ.get("JAX_ENGINE_PYTHON", ".venv/bin/python")
FLAGS = ["--port=0", "--dtype=float32", "--served-model-name", "smollm2"]


@contextmanager
def server(*flags: str) -> Iterator[str]:
    """Serves SmolLM2; gives the address, without a path."""
    command = [PYTHON, "-m", "jax_engine", "serve", *FLAGS, *flags]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=ROOT) as process:
        try:
            yield _address(process)
            assert process.poll() is None, "a client has ended the server"
        finally:
            process.terminate()


def _address(process: "subprocess.Popen[str]") -> str:
    assert process.stderr is not None
    said = []
    for line in process.stderr:
        said.append(line)
        found = re.search(r"served at (http://\S+)", line)
        if found:
            return found[1]
    raise AssertionError("".join(said))


@pytest.fixture(scope="session")
def url() -> Iterator[str]:
    """Where a server is, without a path."""
    flags = ("text-embedding-ada-002", "--max-model-len=1024", "--request-timeout=900")
    with server(*flags) as found:
        yield found


@pytest.fixture(scope="session")
def base_url(url: str) -> str:
    """What clients of OpenAI are given."""
    return f"{url}/v1"
