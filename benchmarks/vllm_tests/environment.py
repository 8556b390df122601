"""An environment with pytest and the clients that vLLM's tests use, and without this project."""

from benchmarks.compare.environments import PYTHON
from benchmarks.vllm_examples.environment import made

RECIPE = (
    "torch==2.13.0", "pytest==9.2.0", "pytest-asyncio==1.5.0", "pytest-timeout==2.4.0",
    "anthropic==2.14.0", "openai==3.57.0", "transformers==5.24.0", "fastapi==0.165.0",
    "httpx", "jsonschema", "numpy", "pillow", "prometheus_client", "pybase64", "pydantic",
    "regex", "requests",
)  # fmt: skip


def interpreter() -> str:
    """Its Python; the environment is made if it is not there yet (1 GB, minutes).

    Raises:
        CannotInstall: There is no Python 3.11 here, or pip failed.
    """
    return made("vllm-tests", RECIPE, python_of=PYTHON)
