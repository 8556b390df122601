"""What the Python cells of a page print: run in a process of their own, or from the cache.

A page's cells share a namespace. What they have printed is kept in build/cells, together with a
hash of each file that they came to depend on: the project's modules that were imported, files that
were opened, folders that were listed. It is used again while all of that is the same, and so are
Python, the installed packages, the processor and the variables that JAX and Numba read. Cells that
start other programs are run each time, since nobody knows what those read. With DOCS_QUICK set no
cell runs: a page shows what these cells printed last, whatever has changed since, or `NOT_RUN`; and
it says so.

    start(pages)     runs the cells of pages that are not in the cache, JOBS at a time
    printed(codes)   what each cell of a page prints
    doubt(codes)     what a page says of outputs that may be out of date
"""

import contextlib
import hashlib
import io
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "build" / "cells"
JOBS = 2
QUICK = bool(os.environ.get("DOCS_QUICK"))
NOT_RUN = "(not run)"
NONE_RUN = "Quick build: the cells of this page were not run."
EARLIER = "Quick build: what the cells print is from an earlier build, and something changed since."
LARGE = 4_000_000  # bytes: of such a file the size and the time of its change are compared
VARIABLES = ("JAX_", "XLA_", "NUMBA_", "OMP_", "OPENBLAS_", "NPROC", "PYTHONHASHSEED")
STARTS = ("subprocess.Popen", "os.posix_spawn", "os.fork", "os.exec", "os.system")
Codes = tuple[str, ...]
_running: dict[Codes, Future[list[str]]] = {}
_doubts: dict[Codes, str] = {}


def start(pages: Iterable[Codes]) -> None:
    """Begins with the cells that are not in the cache; `printed` waits for them."""
    if QUICK:
        return
    pool = ThreadPoolExecutor(JOBS)
    for codes in pages:
        if codes not in _running and kept(codes) is None:
            _running[codes] = pool.submit(fresh, codes)
    pool.shutdown(wait=False)


def printed(codes: Codes) -> list[str]:
    """What each cell prints.

    Raises:
        RuntimeError: A cell has failed; the message has its traceback.
    """
    found = _running.pop(codes, None)
    if found is not None:
        return found.result()
    known = kept(codes)
    if known is None:
        return _last(codes) if QUICK else fresh(codes)
    return known


def doubt(codes: Codes) -> str:
    """A sentence for the page, or "", once `printed` has said what its cells print."""
    return _doubts.get(codes, "")


def _last(codes: Codes) -> list[str]:
    """What the cells printed last, or `NOT_RUN` for each; noted for `doubt`."""
    file = _file(codes)
    if not file.exists():
        _doubts[codes] = NONE_RUN
        return [NOT_RUN] * len(codes)
    _doubts[codes] = EARLIER
    return list(json.loads(file.read_text("utf-8"))["printed"])


def kept(codes: Codes) -> list[str] | None:
    """What is in the cache, if nothing that it depends on has changed."""
    file = _file(codes)
    if not file.exists():
        return None
    known = json.loads(file.read_text("utf-8"))
    same = all(_state(Path(path)) == state for path, state in known["depends"].items())
    return list(known["printed"]) if same else None


def fresh(codes: Codes) -> list[str]:
    """Runs the cells, and keeps what they print."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    root, began = _state(ROOT), time.time_ns()
    command = [sys.executable, "-m", "scripts.cell_outputs"]
    # Bytecode that is written changes the folders that cells have read.
    environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        command, cwd=ROOT, input=json.dumps(codes), capture_output=True, text=True, check=False,
        env=environment,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"a cell of a page has failed:\n{done.stderr}")
    found = json.loads(done.stdout.splitlines()[-1])
    depends = {path: _state(Path(path)) for path in found["paths"]}
    # What was written while the cells ran may have been read before or after. (A build writes
    # build/ and site/ meanwhile, so the root is compared by what is in it.)
    others = [Path(path) for path in depends if Path(path) != ROOT]
    settled = depends[str(ROOT)] == root and all(_changed(path) < began for path in others)
    if settled and not found["starts"]:
        text = json.dumps({"printed": found["printed"], "depends": depends}, ensure_ascii=False)
        part = FOLDER / f"{_file(codes).name}.{os.getpid()}"
        part.write_text(text, encoding="utf-8")
        part.replace(_file(codes))
    return list(found["printed"])


def _file(codes: Codes) -> Path:
    return FOLDER / f"{_hash(json.dumps([codes, _surroundings()]))}.json"


@cache
def _surroundings() -> list[str]:
    """What is not in files of the project, and may change what cells print."""
    packages = sorted(f"{one.name} {one.version}" for one in distributions())
    cpu = Path("/proc/cpuinfo")
    lines = cpu.read_text("utf-8").splitlines() if cpu.exists() else [platform.processor()]
    processor = sorted({line for line in lines if line.startswith(("model name", "flags"))})
    variables = [f"{name}={value}" for name, value in os.environ.items()]
    read = sorted(one for one in variables if one.startswith(VARIABLES))
    return [sys.version, platform.machine(), str(ROOT), *processor, *packages, *read]


def _state(path: Path) -> str:
    """Differs if the file or the folder does."""
    if path.is_dir():
        names = set(os.listdir(path)) - {"__pycache__", "build", "site"}
        return _hash("\n".join(sorted(one for one in names if not one.startswith("."))))
    if not path.exists():
        return "nothing"
    at = path.stat()
    if at.st_size > LARGE:
        return f"{at.st_size} {at.st_mtime_ns}"
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _changed(path: Path) -> int:
    return path.stat().st_mtime_ns if path.exists() else 0


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


class Watch:
    """What the cells of this process come to depend on."""

    def __init__(self) -> None:
        self.starts = False
        self._paths = set[str]()
        sys.addaudithook(self._note)

    def _note(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in STARTS:
            self.starts = True
        elif event in ("open", "os.listdir", "os.scandir") and arguments:
            path = arguments[0] if arguments[0] is not None else "."
            if isinstance(path, (str, bytes, os.PathLike)):
                self._paths.add(os.path.abspath(os.fsdecode(path)))

    def paths(self) -> list[str]:
        files = [getattr(one, "__file__", None) for one in list(sys.modules.values())]
        folders = [path for one in list(sys.modules.values()) for path in _search_path(one)]
        every = (*self._paths, *filter(None, files), *folders, ROOT)
        found = {os.path.realpath(path) for path in every}
        return sorted(path for path in found if _counts(path))


def _search_path(module: Any) -> list[str]:
    """A package's folder: a module that is put there may be imported instead of another."""
    try:
        return [path for path in getattr(module, "__path__", ()) if isinstance(path, str)]
    except Exception:  # a lazy module may refuse
        return []


def _counts(path: str) -> bool:
    """Not what belongs to Python, the packages or the system, nor what a run leaves behind."""
    if "__pycache__" in path or "/.cache/jax-engine/xla" in path:
        return False
    inside = path.startswith(f"{ROOT}/") and not path.startswith(
        (f"{ROOT}/build/", f"{ROOT}/.venv")
    )
    others = (sys.prefix, sys.base_prefix, "/proc", "/sys", "/dev", "/etc", "/usr", "/lib")
    outside = (*others, tempfile.gettempdir(), f"{ROOT}/")
    return inside or path == str(ROOT) or not path.startswith(outside)


def main() -> None:
    """Cells come as JSON; what they print goes out in the last line."""
    codes = json.load(sys.stdin)
    watch = Watch()
    namespace: dict[str, Any] = {"__name__": "__main__"}
    texts = []
    for code in codes:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(code, "a page", "exec"), namespace)
        texts.append(out.getvalue())
    found = {"printed": texts, "paths": watch.paths(), "starts": watch.starts}
    print(f"\n{json.dumps(found)}")


if __name__ == "__main__":
    main()
