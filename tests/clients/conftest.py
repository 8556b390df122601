"""A server of SmolLM2 for clients that others wrote.

`.ci/clients` runs this folder in an environment that has them and not this project: the server is
started with the interpreter that `JAX_ENGINE_PYTHON` names.
"""

import os
import re
import subprocess
from collections.abc import Iterator

import pytest

PYTHON = os.environ.get("JAX_ENGINE_PYTHON", ".venv/bin/python")
FLAGS = ["--port=0", "--max-model-len=1024", "--dtype=float32", "--request-timeout=60"]
READY_S = 120


@pytest.fixture(scope="session")
def url() -> Iterator[str]:
    """Where the server is, without a path."""
    command = [PYTHON, "-m", "jax_engine", "serve", *FLAGS]
    command += ["--served-model-name", "smollm2", "text-embedding-ada-002"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        try:
            yield _address(server)
            assert server.poll() is None, "a client has ended the server"
        finally:
            server.terminate()


def _address(server: "subprocess.Popen[str]") -> str:
    assert server.stderr is not None
    said = []
    for line in server.stderr:
        said.append(line)
        found = re.search(r"served at (http://\S+)", line)
        if found:
            return found[1]
    raise AssertionError("".join(said))


@pytest.fixture(scope="session")
def base_url(url: str) -> str:
    """What clients of OpenAI are given."""
    return f"{url}/v1"
