"""Compiled kernels in folders that cannot be written, or whose files are damaged."""

import errno
import logging
import os
from pathlib import Path
from typing import Any

import numba
import pytest
from numba.core.caching import FunctionCache, IndexDataCacheFile

from cpu_kernels.compiling.code_cache import KernelCache, caching_in
from cpu_kernels.compiling.user_cache import user_cache


def compiled(folder: Path) -> Any:
    """A function that is compiled, or found in the folder, as a kernel is."""

    def plus_three(x: int) -> int:
        return x + 3

    with caching_in(str(folder)):
        function = numba.njit("int64(int64)", cache=True)(plus_three)
    assert function(4) == 7
    return function


def hits(function: Any) -> int:
    return sum(function.stats.cache_hits.values())


@pytest.fixture
def read_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever Numba writes, a disk that is mounted read-only refuses; to root as well."""

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(IndexDataCacheFile, "_open_for_write", refuse)
    monkeypatch.setattr("tempfile.TemporaryFile", refuse)
    monkeypatch.setattr(KernelCache, "says_lost", True)


def test_a_filled_folder_that_is_read_only_is_read(
    tmp_path: Path, request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture
) -> None:
    assert hits(compiled(tmp_path)) == 0
    request.getfixturevalue("read_only")
    assert hits(compiled(tmp_path)) == 1
    assert caplog.text == ""


def test_an_empty_one_costs_one_line(
    tmp_path: Path, read_only: None, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        assert hits(compiled(tmp_path)) == 0
    assert caplog.text.count("cannot be kept") == 1 and "Read-only file system" in caplog.text
    assert all(record.levelno == logging.WARNING for record in caplog.records)


def test_a_folder_that_cannot_be_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(KernelCache, "says_lost", True)
    (tmp_path / "file").write_text("")
    assert hits(compiled(tmp_path / "file" / "below")) == 0
    assert "Not a directory" in caplog.text
    assert not list(Path(__file__).parent.glob("__pycache__/*plus_three*"))


@pytest.mark.parametrize("pattern", ["*.nbi", "*.nbc"])
@pytest.mark.parametrize("damage", [b"", b"no pickle", b"\x80\x04."], ids=["empty", "text", "stop"])
def test_a_damaged_file_is_replaced(tmp_path: Path, pattern: str, damage: bytes) -> None:
    compiled(tmp_path)
    (damaged,) = tmp_path.rglob(pattern)
    damaged.write_bytes(damage)
    assert hits(compiled(tmp_path)) == 0
    assert hits(compiled(tmp_path)) == 1


def test_numbas_own_cache_is_left_as_it_was(tmp_path: Path) -> None:
    from numba.core import ccallback, dispatcher

    with caching_in(str(tmp_path)):
        pass
    assert dispatcher.FunctionCache is ccallback.FunctionCache is FunctionCache


def test_a_user_without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their folder must be one that no other user could fill: its content is executed."""
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr("os.path.expanduser", lambda path: path)
    assert user_cache() == Path(os.devnull, ".cache")
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert user_cache() == Path("/somewhere")
