"""An environment with pytest and the clients that vLLM's tests use, and without this project."""

from benchmarks.vllm_examples.environment import made

RECIPE = (
    "torch==2.13.0", "pytest", "pytest-asyncio", "pytest-timeout", "anthropic==2.14.0",
    "openai==3.57.0", "transformers==5.24.0", "jsonschema", "prometheus_client", "regex",
    "requests", "starlette", "fastapi", "openai-harmony", "psutil",
)  # fmt: skip


def interpreter() -> str:
    """Its Python; the environment is made if it is not there yet (minutes).

    Raises:
        CannotInstall: pip failed.
    """
    return made("vllm-tests", RECIPE)
