"""What `import jax_engine` offers, name by name: a change here is a change for users."""

import inspect
import re
import subprocess
import sys
from importlib import metadata

import pytest

import jax_engine
from jax_engine import errors
from tests.meta.trees import ROOT

PUBLIC = {
    "LLM",
    "AsyncEngineArgs",
    "AsyncLLM",
    "AsyncLLMEngine",
    "LLMEngine",
    "EngineConfig",
    "SamplingParams",
    "PoolingParams",
    "StructuredOutputsParams",
    "RequestOutputKind",
    "BeamSearchParams",
    "BeamSearchOutput",
    "BeamSearchSequence",
    "RequestOutput",
    "ClassificationOutput",
    "ClassificationRequestOutput",
    "CompletionOutput",
    "EmbeddingOutput",
    "EngineArgs",
    "FlatLogprobs",
    "PoolingOutput",
    "PoolingRequestOutput",
    "PromptType",
    "ScoringOutput",
    "ScoringRequestOutput",
    "TextPrompt",
    "TokensPrompt",
    "EmbedsPrompt",
    "inputs",
    "EmbeddingRequestOutput",
    "Logprob",
    "JaxEngineError",
    "ConfigError",
    "EngineDeadError",
    "EngineInUseError",
    "ForkedProcessError",
    "InvalidRequestError",
    "LoRARequest",
    "MissingPackageError",
    "ModelNotFoundError",
    "OutOfMemoryError",
    "RequestTooLargeError",
    "StepFailedError",
    "WeightsError",
}


def test_exported_names() -> None:
    assert set(jax_engine.__all__) - {"__version__", "__version_tuple__"} == PUBLIC


def test_every_exported_name_is_there_and_explained() -> None:
    for name in sorted(PUBLIC):
        assert inspect.getdoc(getattr(jax_engine, name)), name


def test_every_exported_name_is_on_a_page_of_the_api() -> None:
    """But other names of the same, and the modules' (errors are shown as one)."""
    pages = "".join(path.read_text("utf-8") for path in (ROOT / "docs" / "api").glob("*.md"))
    shown = set(re.findall(r"^::: jax_engine\.(\w+)$", pages, re.MULTILINE))
    kinds = {name for name, kind in vars(errors).items() if inspect.isclass(kind)}
    aliases = {"AsyncEngineArgs", "AsyncLLMEngine", "PromptType"}
    assert shown - {"errors", "metrics"} == PUBLIC - kinds - aliases - {"inputs"}


def test_every_error_is_exported_and_has_one_root() -> None:
    kinds = {n for n, kind in vars(errors).items() if inspect.isclass(kind)}
    assert kinds <= PUBLIC
    assert all(issubclass(getattr(errors, name), errors.JaxEngineError) for name in kinds)


def test_the_version_is_that_of_the_distribution() -> None:
    assert jax_engine.__version__ == metadata.version("jax-engine")
    assert jax_engine.__version__.startswith(".".join(map(str, jax_engine.__version_tuple__)))


def test_unknown_names_fail_in_the_usual_way() -> None:
    assert not hasattr(jax_engine, "no_such_name")


@pytest.mark.slow
def test_importing_the_package_is_quiet() -> None:
    """No warning of a library that nobody here needs on the user's screen."""
    command = [sys.executable, "-c", "import jax_engine; jax_engine.LLM, jax_engine.SamplingParams"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout + done.stderr == ""
