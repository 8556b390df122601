"""vLLM's examples: the saved result is whole; the runner works."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.report import load_result
from benchmarks.vllm_examples import models, run
from benchmarks.vllm_examples.models import STAND_INS
from benchmarks.vllm_examples.source import CannotFetch, examples, fetched
from jax_engine import LLM
from tests.support.patience import HANG_S

FEW = [
    "basic/offline_inference/basic.py",
    "basic/offline_inference/embed.py",
    "observability/metrics/offline.py",
    "pooling/token_embed/multi_vector_retrieval_offline.py",
]


@pytest.fixture(scope="module")
def saved() -> dict[str, Any]:
    return load_result("vllm_examples")


def test_the_count_is_that_of_the_list(saved: dict[str, Any]) -> None:
    found = saved["result"]
    assert found["runs"] == sum(one["runs"] for one in found["examples"])
    assert all(bool(one["need"]) != one["runs"] for one in found["examples"])
    assert len({one["path"] for one in found["examples"]}) == len(found["examples"])


def test_examples_are_those_that_import_an_engine(tmp_path: Path) -> None:
    for name, text in {
        "one.py": "from vllm import LLM, SamplingParams\n",
        "two.py": "from vllm import (\n    EngineArgs,\n    LLMEngine,\n)\n",
        "three.py": "from vllm.v1.engine.async_llm import AsyncLLM  # the engine\n",
        "none.py": "from vllm import SamplingParams  # no LLM\n",
        "client.py": "from openai import LLM\n",
    }.items():
        (tmp_path / name).write_text(text)
    assert examples(tmp_path) == ["one.py", "three.py", "two.py"]


def test_what_leaves_something_for_others_comes_first() -> None:
    late = next(iter(run.AFTER))
    assert run.in_order([late, "z.py", run.AFTER[late]])[-1] == late


@pytest.mark.parametrize(
    ("program", "need"),
    [
        ("from vllm import SamplingParams\nprint(SamplingParams())", ""),
        ("pass", "something to print: it printed nothing"),
        ("from vllm.multimodal.image import x", "images, audio and videos"),
        ("raise SystemExit('give a model')", "give a model"),
        ("import time; time.sleep(1e6)", "more than 8 s"),
    ],
)
def test_what_comes_of_a_program(
    program: str, need: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "program.py").write_text(program)
    monkeypatch.setattr(run, "local_directory", lambda home: home)
    limit = 8 if "sleep" in program else HANG_S
    outcome = run.run_example(
        tmp_path,
        "program.py",
        python=sys.executable,
        home=tmp_path,
        scratch=tmp_path,
        limit_s=limit,
    )
    assert outcome.runs == (not need) and need in outcome.need


@pytest.fixture(scope="module")
def home(smollm2_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where the examples find stand-ins of random weights: 115 MB, written once."""
    with pytest.MonkeyPatch.context() as patch:
        tiny = {kind: models.KINDS[models.TINY] for kind in models.KINDS}
        patch.setattr(models, "KINDS", tiny)
        patch.setattr(models, "STAND_INS", {name: models.TINY for name in STAND_INS})
        yield models.hub_cache(tmp_path_factory.mktemp("home"))


@pytest.mark.slow
@pytest.mark.model
def test_a_stand_in_has_its_head(
    smollm2_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The head is in a file of its own, which only an index makes one of the model's."""
    kind = models.KINDS[models.TINY] | {"labels": 2, "head": "SequenceClassification"}
    monkeypatch.setitem(models.KINDS, "two classes", kind)
    llm = LLM(str(models.local_directory(tmp_path, "two classes")), max_model_len=16)
    (output,) = llm.classify(["Hello"], use_tqdm=False)
    assert len(output.outputs.probs) == 2


@pytest.mark.model
@pytest.mark.parametrize("path", FEW)
@pytest.mark.slow
def test_a_few_examples_run(path: str, home: Path, tmp_path: Path) -> None:
    """Unchanged, with stand-ins of random weights: CI has the package index, and no hub."""
    try:
        source = fetched()
    except CannotFetch as error:
        pytest.skip(str(error))
    outcome = run.run_example(
        source, path, python=sys.executable, home=home, scratch=tmp_path, limit_s=300
    )
    assert outcome.runs, outcome.need
