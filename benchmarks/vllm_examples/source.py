"""The examples: where they come from, and which of them count.

They are in vLLM's source distribution, which pip would try to build: so it is fetched from the
index that pip is set to, and only its examples are unpacked.
"""

import os
import re
import subprocess
import sys
import tarfile
import tempfile
import urllib.request
from pathlib import Path
from urllib.parse import urljoin

from jax_engine.models.checkpoints.cache_dir import cache_dir

VERSION = "0.32.0"
ENGINES = ("LLM", "LLMEngine", "AsyncLLM", "AsyncLLMEngine")
_ARCHIVE = re.compile(r"vllm-(\d+(?:\.\d+)*)\.tar\.gz$")
_IMPORT = re.compile(r"^from vllm[\w.]* import (\([^)]*\)|.*)$", re.MULTILINE)


class CannotFetch(Exception):
    """The reason, as the index or the network put it."""


def examples(folder: Path) -> list[str]:
    """Those that count: files that import one of `ENGINES` from vLLM, by path."""
    found = []
    for path in sorted(folder.rglob("*.py")):
        names = set()
        for imported in _IMPORT.findall(path.read_text("utf-8")):
            names.update(re.findall(r"\w+", imported.split("#")[0]))
        if names & set(ENGINES):
            found.append(str(path.relative_to(folder)))
    return found


def fetched() -> Path:
    """The folder of examples in the user's cache; fetched (40 MB) if it is not there.

    Raises:
        CannotFetch: There is no index, or no such distribution in it.
    """
    folder = cache_dir() / "vllm-examples" / VERSION
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            archive = Path(scratch) / "vllm.tar.gz"
            download(archive, VERSION)
            _unpack(archive, Path(scratch) / "examples").rename(folder)
    return folder


def download(archive: Path, version: str | None = None) -> str:
    """Fetches a source distribution of vLLM (40 MB) into a file, and returns its version.

    Args:
        version: None is the newest that is no pre-release.

    Raises:
        CannotFetch: There is no index, or no such distribution in it.
    """
    index = urljoin(_index().rstrip("/") + "/", "vllm/")
    try:
        with urllib.request.urlopen(index, timeout=60) as page:
            links = re.findall(r'href="([^"#]+)', page.read().decode("utf-8", "replace"))
        found = {one[1]: link for link in links if (one := _ARCHIVE.search(link))}
        if version is None and found:
            version = max(found, key=lambda one: [int(part) for part in one.split(".")])
        if version not in found:
            raise CannotFetch(f"the index has no source distribution of vLLM {version}")
        urllib.request.urlretrieve(urljoin(index, found[version]), archive)
    except OSError as error:
        raise CannotFetch(f"vLLM {version or ''}'s source distribution: {error}") from error
    return version


def _index() -> str:
    """What pip would ask: its variable, its settings, or its default."""
    if os.environ.get("PIP_INDEX_URL"):
        return os.environ["PIP_INDEX_URL"]
    command = [sys.executable, "-m", "pip", "config", "get", "global.index_url"]
    asked = subprocess.run(command, capture_output=True, text=True, check=False)
    if asked.returncode == 0 and asked.stdout.strip():
        return asked.stdout.strip()
    code = "from pip._internal.models.index import PyPI; print(PyPI.simple_url)"
    asked = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    if asked.returncode:
        raise CannotFetch(f"{sys.executable} has no pip, whose settings name the index")
    return asked.stdout.strip()


def _unpack(archive: Path, folder: Path) -> Path:
    prefix = f"vllm-{VERSION}/examples/"
    with tarfile.open(archive) as members:
        for member in members:
            if member.isfile() and member.name.startswith(prefix):
                member.name = member.name.removeprefix(prefix)
                members.extract(member, folder, filter="data")
    return folder
