"""A plugin of pytest that lets vLLM's tests of its server run without vLLM.

It is loaded by the interpreter that has the clients (openai, anthropic, ...) and not this project:
so nothing of `jax_engine` is imported here. Three things stand in for what the tests import:

- `tests.utils`: its `RemoteOpenAIServer` starts `jax-engine serve` with the flags of the test.
- A few names of `vllm` that tests of servers need as tools: tokenizers, answers' fields, and the
  version, which is the server's.
- Every other name of `vllm`: a test that uses it is about vLLM's insides, and is skipped.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import sys
import types
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pytest

from benchmarks.vllm_tests.remote import RemoteServer, directory

INSIDES = "vLLM's insides"
_in_a_test = False
_STUBBED = ("vllm", "tests.utils", "tests.conftest", "tests.models", "schemathesis", "mteb")


class Missing:
    """A name of vLLM that is not here: it may be imported, subclassed and read, not called."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __getattr__(self, name: str) -> "Missing":
        if name.startswith("__"):
            raise AttributeError(name)
        return Missing(f"{self.name}.{name}")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not _in_a_test:
            return Missing(f"{self.name}()")
        pytest.skip(f"{INSIDES}: {self.name}")

    def __add__(self, other: object) -> Any:
        return self()

    def __eq__(self, other: object) -> Any:
        return self()

    def __hash__(self) -> int:
        return hash(self.name)

    def __mro_entries__(self, bases: tuple[object, ...]) -> tuple[type, ...]:
        return (object,)

    def __getitem__(self, key: object) -> "Missing":
        return self

    def __or__(self, other: object) -> "Missing":
        return self

    def __ror__(self, other: object) -> "Missing":
        return self

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __fspath__(self) -> str:
        return self.name


class Answer(types.SimpleNamespace):
    """The fields of an answer, at any depth, as attributes."""

    @classmethod
    def model_validate(cls, data: Any) -> Any:
        if isinstance(data, dict):
            return cls(**{name: cls.model_validate(value) for name, value in data.items()})
        return [cls.model_validate(one) for one in data] if isinstance(data, list) else data

    def model_dump(self, exclude: Iterable[str] = ()) -> dict[str, Any]:
        """The fields, but for some of the outermost; those within stay answers."""
        return {name: one for name, one in vars(self).items() if name not in exclude}

    @classmethod
    def model_validate_json(cls, text: str | bytes) -> Any:
        return cls.model_validate(json.loads(text))


class _Hub:
    """vLLM's view of the hub: every repository is the stand-in of its name."""

    def snapshot_download(self, repo_id: str, **options: Any) -> str:
        return directory(repo_id)


def _tokenizer(tokenizer_name: str, **options: Any) -> Any:
    from transformers import AutoTokenizer  # type: ignore[import-untyped]

    return AutoTokenizer.from_pretrained(directory(tokenizer_name))


class _Platform:
    """A machine that is none of those that vLLM's tests ask for."""

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: False


def _unless(reason: str) -> Any:
    return lambda *args, **kwargs: pytest.mark.skip(reason=reason)


_TOOLS: dict[str, Any] = {
    "get_tokenizer": _tokenizer,
    "envs": types.SimpleNamespace(VLLM_USE_RUST_FRONTEND=False),
    "hf_api": _Hub,
    "download_weights_from_hf": lambda name, **options: directory(name),
    "current_platform": _Platform(),
    "RemoteOpenAIServer": RemoteServer,
    "ROCM_EXTRA_ARGS": [],
    "ROCM_ENV_OVERRIDES": {},
    "multi_gpu_only": _unless("more than one GPU")(),
    "requires_fp8": pytest.mark.skip(reason="a GPU with FP8"),
    "multi_gpu_test": _unless("more than one GPU"),
    "large_gpu_mark": _unless("a large GPU"),
}


class _Module(types.ModuleType):
    """A module of which every name is there."""

    def __getattr__(self, name: str) -> Any:
        if name == "__version__":
            return os.environ["VLLM_TESTS_VERSION"]
        if name.startswith("__"):
            raise AttributeError(name)
        if name == "VLLM_PATH":
            from pathlib import Path

            return Path(os.environ["VLLM_SOURCE"])
        if name.endswith("Response"):
            return Answer
        if name.endswith("Error"):
            return type(name, (Exception,), {})
        return _TOOLS.get(name, Missing(f"{self.__name__}.{name}"))


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds a `_Module` for each name below `_STUBBED`."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if any(name == one or name.startswith(one + ".") for one in _STUBBED):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        pass


sys.meta_path.insert(0, _Finder())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """While files are read, what vLLM's functions give is not asked for."""
    global _in_a_test
    _in_a_test = True
    try:
        return (yield)
    finally:
        _in_a_test = False


@pytest.fixture
def local_asset_server() -> Missing:
    """That of vLLM's own conftest: pictures, for tests of models that see."""
    return Missing("local_asset_server")


def _names_are_stand_ins() -> None:
    """`AutoTokenizer` of a test finds what stands for the model."""
    if (transformers := sys.modules.get("transformers")) is None:
        return
    real = transformers.AutoTokenizer.from_pretrained
    transformers.AutoTokenizer.from_pretrained = lambda name, *args, **options: real(
        directory(name) if not os.path.isdir(name) else name, *args, **options
    )


def pytest_collection_finish() -> None:
    _names_are_stand_ins()


def _said(report: pytest.TestReport | pytest.CollectReport) -> str:
    """What a test or a file failed with, or was skipped for, in a line."""
    if report.skipped and isinstance(report.longrepr, tuple):
        return report.longrepr[2].removeprefix("Skipped: ")
    crash = getattr(report.longrepr, "reprcrash", None)
    lines = str(crash.message if crash else report.longrepr).strip().splitlines()
    return " ".join(lines[:3])[:400] if crash else " ".join(lines[-1:])[:400]


def _write(report: pytest.TestReport | pytest.CollectReport, outcome: str) -> None:
    line = {"test": report.nodeid, "outcome": outcome, "said": _said(report)}
    with open(os.environ["VLLM_TESTS_RECORD"], "a") as record:
        record.write(json.dumps(line) + "\n")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" or report.outcome != "passed":
        if report.when == "teardown" and report.passed:
            return
        _write(report, report.outcome)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.outcome != "passed":
        _write(report, report.outcome)
