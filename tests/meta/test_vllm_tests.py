"""vLLM's tests of its server: each saved failure has a reason; tests are read as meant."""

import json
import sys
from pathlib import Path

import pytest

import jax_engine
from benchmarks.compare.environments import FOLDER_VARIABLE, CannotInstall
from benchmarks.report import load_result
from benchmarks.vllm_examples.environment import made
from benchmarks.vllm_examples.page import cell
from benchmarks.vllm_tests import benchmark as command
from benchmarks.vllm_tests import page, reasons, remote, run


def test_every_saved_failure_has_a_reason() -> None:
    found = load_result("vllm_tests")["result"]
    assert all(test["reason"] for one in found["files"] for test in one["failed"])
    assert sum(one["passed"] for one in found["files"]) > 0


def test_saved_reasons_of_files_that_are_not_run_are_today_s() -> None:
    not_run = load_result("vllm_tests")["result"]["not_run"]
    assert not_run == {path: reasons.out(path) for path in not_run}


def test_code_in_a_cell_has_no_backslashes() -> None:
    """Markdown's tables end no cell at a pipe within code."""
    markdown = pytest.importorskip("markdown")
    text = "`a_b|c` needs a_b | c"
    assert cell(text) == "`a_b|c` needs a\\_b \\| c"
    shown = markdown.markdown(f"| x | y |\n|---|---|\n| {cell(text)} | z |", extensions=["tables"])
    assert "<td><code>a_b|c</code> needs a_b | c</td>\n<td>z</td>" in shown


def test_cases_of_a_test_that_fail_for_one_reason_are_counted() -> None:
    failed = [{"test": f"test_x[{case}]", "reason": why} for case, why in ("1a", "2a", "3b")]
    rows = page._failing([{"path": "entrypoints/a.py", "failed": failed}])
    assert rows == [
        {"test": "`a.py::test_x`, 2 times", "why": "a"},
        {"test": "`a.py::test_x`", "why": "b"},
    ]


def test_flags_of_the_server_are_kept_with_their_values() -> None:
    flags = ["--max-model-len", "128", "--root-path", "/x", "--api-key=a", "--enforce-eager"]
    known = {"--max-model-len", "--api-key", "--enforce-eager", "--dtype"}
    words, others = remote.kept([*flags, "--dtype", "bfloat16"], known)
    assert words == ["--max-model-len", "128", "--api-key", "a"] and others == ["--root-path"]


def test_files_are_those_that_start_a_server(tmp_path: Path) -> None:
    folder = tmp_path / "tests/entrypoints/openai"
    (folder / "deep").mkdir(parents=True)
    (folder / "test_one.py").write_text("with RemoteOpenAIServer(MODEL, args) as server: ...")
    (folder / "test_inside.py").write_text("from vllm import LLM")
    (folder / "deep/conftest.py").write_text("RemoteOpenAIServer(MODEL, args)")
    (folder / "deep/test_two.py").write_text("def test_two(server): ...")
    found = ["entrypoints/openai/deep/test_two.py", "entrypoints/openai/test_one.py"]
    assert run.files(tmp_path) == found


def test_the_reason_is_that_of_the_place_and_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reasons, "FAILS", (("a.py::test_x", "404", "one"), ("", "404", "two")))
    assert reasons.why("a.py", "test_x[1]", "Error 404") == "one"
    assert reasons.why("b.py", "test_x[1]", "Error 404") == "two"
    assert reasons.why("b.py", "test_x[1]", "Error 400") == ""
    assert reasons.out("entrypoints/x/test_vision.py") == reasons.IMAGES
    assert reasons.out("entrypoints/x/test_chat.py") == ""


PROGRAM = """
import pytest
from tests.utils import RemoteOpenAIServer
from vllm.entrypoints.protocol import SomeResponse, SomeRequest
from vllm.platforms import current_platform
from vllm.version import __version__ as VLLM_VERSION
from vllm import envs

LIMIT = SomeRequest.limit() + 1  # while files are read, vLLM's functions are not asked

class Own(SomeRequest): ...

@pytest.mark.skipif(current_platform.is_rocm(), reason="no")
def test_passes():
    assert SomeResponse.model_validate({"data": [{"index": 1}]}).data[0].index == 1
    answer = SomeResponse.model_validate({"id": 1, "data": [{"index": 1}]})
    assert answer.model_dump(exclude={"id"}) == {"data": answer.data}
    assert RemoteOpenAIServer.__name__ == "RemoteServer"
    assert VLLM_VERSION == "OURS" and not envs.VLLM_USE_RUST_FRONTEND

def test_inside():
    SomeRequest(n=5)

def test_fails():
    assert 1 == 2
"""


@pytest.mark.slow
def test_a_file_runs_without_vllm(tmp_path: Path) -> None:
    """Its own tests pass and fail, those of vLLM's insides are skipped."""
    folder = tmp_path / "tests/entrypoints"
    folder.mkdir(parents=True)
    for place in (folder, folder.parent):
        (place / "__init__.py").touch()
    (folder / "test_some.py").write_text(PROGRAM.replace("OURS", jax_engine.__version__))
    found = run.run_file(
        tmp_path, "entrypoints/test_some.py", python=sys.executable, models={"": "nowhere"},
        log=tmp_path / "some.log", limit_s=0,
    )  # fmt: skip
    said = (tmp_path / "some.log").read_text()
    outcomes = {one["test"].rpartition("::")[2]: one["outcome"] for one in found}
    wanted = {"test_passes": "passed", "test_inside": "skipped", "test_fails": "failed"}
    assert outcomes == wanted, said


def test_an_environment_needs_its_interpreter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    with pytest.raises(CannotInstall, match="no-such-python is not on the PATH"):
        made("some", ("pytest",), python_of="no-such-python")
    assert not list(tmp_path.iterdir())


def test_a_stand_in_has_a_default_for_the_length_of_answers(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    for _ in range(2):  # it may be there already
        folder = command._with_a_length(model)
    assert (folder / "config.json").read_text() == "{}"
    settings = json.loads((folder / "generation_config.json").read_text())
    assert settings == {"max_new_tokens": command.LONGEST}
    assert [one.name for one in model.iterdir()] == ["config.json"]
