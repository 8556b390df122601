"""What `doctor` finds out, each part in bounded time and whatever is broken.

A finding is a fact, and what to do about it. The parts are: the processor, memory, and GPUs that
JAX may not see; versions, and packages that are missing; caches and the default model; whether a
model could be downloaded; JAX's devices, and what would run on them; and with several devices,
which numbers of them can share a model, and what each device or stage would hold. JAX is asked in a
process of its own, which may crash.
"""

import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from jax_engine.models.checkpoints.cache_dir import cache_dir, hub_dir, kernels_dir
from jax_engine.models.checkpoints.default_model import FILE_BYTES, MEMBER, REQUIREMENT
from jax_engine.processes.placement import own_cores, split_cores


class Finding(NamedTuple):
    """
    Attributes:
        to_do: what the user should do; None: nothing.
    """

    name: str
    value: str
    to_do: str | None = None


def findings_of(title: str, part: Callable[[], Iterator[Finding]]) -> list[Finding]:
    """All findings of a part. What it cannot find out is a finding with the part's title."""
    found: list[Finding] = []
    try:
        found.extend(part())
    except Exception as error:
        found.append(Finding(title, f"not known ({type(error).__name__}: {error})"))
    return found


def size(num_bytes: int) -> str:
    """Bytes for people."""
    names = ("B", "KiB", "MiB", "GiB", "TiB")
    unit = min(max(num_bytes.bit_length() - 1, 0) // 10, 4)
    return f"{num_bytes / 1024**unit:.{0 if unit < 2 else 1}f} {names[unit]}"


# As the kernel names what the CPU's kernels make use of.
FEATURES = ("avx2", "fma", "avx512f", "avx512_bf16", "amx_bf16")
ENOUGH_BYTES = 1 << 30


def machine() -> Iterator[Finding]:
    """What this process may use."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    model, flags = _processor()
    yield Finding("processor", f"{model or platform.machine()}, {cores} cores for this process")
    if platform.machine() in ("x86_64", "AMD64"):
        has = [one for one in FEATURES if one in flags]
        lacks = [one for one in FEATURES if one not in flags]
        yield Finding("features", f"{' '.join(has) or 'none'}; not here: {' '.join(lacks) or '-'}")
    from jax_engine.host_memory import ram_bytes

    ram = ram_bytes()
    little = "there is little memory for weights and a KV cache: use a smaller model"
    yield Finding("memory", size(ram), little if ram < ENOUGH_BYTES else None)


def _processor() -> tuple[str, set[str]]:
    """Its name, and its features."""
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        return platform.processor(), set()
    fields: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        fields[name.strip()] = value.strip()
    return fields.get("model name", ""), set(fields.get("flags", "").split())


def has_nvidia_gpu() -> bool:
    """Whether the system has one, whatever JAX sees."""
    return os.path.exists("/dev/nvidiactl") or os.path.exists("/proc/driver/nvidia/gpus")


NEEDED = ("jax", "jaxlib", "numpy", "numba", "transformers", "tokenizers", "fastapi", "uvicorn")
# What works only with them.
OPTIONAL = {"gguf": "GGUF files and the default model", "llguidance": "guided decoding"}


def software() -> Iterator[Finding]:
    """What is installed."""
    yield Finding("python", f"{platform.python_version()} ({sys.executable})")
    yield Finding("jax-engine", version("jax-engine") or "a checkout, not installed")
    for name in NEEDED:
        found = version(name)
        yield Finding(name, found or "missing", None if found else f"pip install {name}")
    for name, what in OPTIONAL.items():
        found = version(name)
        advice = f"pip install {name}: {what} need it"
        yield Finding(name, found or f"missing: no {what}", None if found else advice)


def version(package: str) -> str | None:
    """The installed version; None without the package."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


MANY = 20_000  # files after which a size is not counted on


def storage() -> Iterator[Finding]:
    """Each cache: where it is, how large, and whether it can be written."""
    ours = "JAX_ENGINE_CACHE names a folder that can be written"
    yield _cache("compiled steps", cache_dir() / "xla", ours)
    yield _cache("CPU kernels", kernels_dir(), "NUMBA_CACHE_DIR names a folder that can be written")
    yield _cache("hub's models", hub_dir(), "HF_HOME names a folder that can be written")
    path = default_model()
    here = path if path.is_file() and path.stat().st_size == FILE_BYTES else None
    absent = "not here: the first use downloads it (93 MB), as does `jax-engine pull`"
    yield Finding("default model", str(here) if here else absent)


def default_model() -> Path:
    """Where the default model is kept."""
    return cache_dir() / "models" / Path(MEMBER).name


def _cache(name: str, folder: Path, otherwise: str) -> Finding:
    problem = _why_read_only(folder)
    state = "writable" if problem is None else f"not writable ({problem})"
    to_do = None if problem is None else f"{name} cannot be kept in {folder}: {otherwise}"
    return Finding(name, f"{folder}: {_size_of(folder)}, {state}", to_do)


def _why_read_only(folder: Path) -> str | None:
    """Tries the nearest folder that exists: nothing is made here."""
    try:
        while not folder.exists():
            folder = folder.parent
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        return str(error.strerror or error)
    return None


def _size_of(folder: Path) -> str:
    total = files = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(place, name)).st_size
            except OSError:
                continue
            files += 1
        if files > MANY:
            return f"more than {size(total)}"
    return size(total) if files else "empty"


NETWORK_TIMEOUT_S = 5.0
_REACHED = "reachable"
_INDEX = "pip's index"


def network() -> Iterator[Finding]:
    """Asks the hub, and pip for the default model if that is not here, both at once."""
    places: dict[str, Callable[[], str]] = {"hub": _hub}
    if not default_model().is_file():
        places[_INDEX] = _pip
    answers: dict[str, str] = {}

    def ask(name: str) -> None:
        answers[name] = places[name]()

    threads = [threading.Thread(target=ask, args=(name,), daemon=True) for name in places]
    for one in threads:
        one.start()
    end = time.monotonic() + NETWORK_TIMEOUT_S
    for one in threads:
        one.join(max(0.0, end - time.monotonic()))
    for name in places:
        answer = answers.get(name, f"no answer within {NETWORK_TIMEOUT_S:.0f} s")
        lost = name == _INDEX and answer != _REACHED
        advice = "the default model is not here, and cannot be had: give others by --model"
        yield Finding(name, answer, advice if lost else None)


def _hub() -> str:
    """A name that cannot be resolved may take long: so this has a thread of its own."""
    url = os.environ.get("HF_ENDPOINT") or "https://huggingface.co"
    try:
        request = urllib.request.Request(url, method="HEAD")
        with urllib.request.urlopen(request, timeout=NETWORK_TIMEOUT_S):
            return _REACHED
    except urllib.error.HTTPError:  # it has answered
        return _REACHED
    except (OSError, ValueError) as error:
        return f"not reachable ({getattr(error, 'reason', error)})"


def _pip() -> str:
    """Pip knows how it is set up."""
    command = [sys.executable, "-m", "pip", "index", "versions", REQUIREMENT.partition("=")[0]]
    command += [
        "--disable-pip-version-check",
        "--retries",
        "0",
        "--timeout",
        str(int(NETWORK_TIMEOUT_S)),
    ]
    try:
        done = subprocess.run(command, capture_output=True, timeout=NETWORK_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return f"no answer within {NETWORK_TIMEOUT_S:.0f} s"
    return _REACHED if done.returncode == 0 else "not reachable, or without the default model"


DEVICE_TIMEOUT_S = 120.0  # it takes 2 s where a core is free
PACKAGES = str(Path(__file__).resolve().parents[2])  # where this package is
_REPORT_MODULE = "jax_engine.operations.report"
_REINSTALL = "reinstall it (pip install --force-reinstall jax jaxlib)"
_BROKEN = f"JAX does not work here: {_REINSTALL}"
_SLOW = (
    f"JAX is very slow or hangs here: try again when the machine has less to do, or {_REINSTALL}"
)
_MEMORY, _DTYPES = "device memory", "weights, KV cache"
_ATTENTION, _PRODUCTS = "attention", "matrix products"


def ask(module: str, *arguments: str) -> "subprocess.CompletedProcess[str] | None":
    """Runs `python -m MODULE ARGUMENTS`; None: it took too long."""
    path = os.pathsep.join(dict.fromkeys([PACKAGES, *filter(None, sys.path)]))
    try:
        return subprocess.run(
            [sys.executable, "-m", module, *arguments],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=DEVICE_TIMEOUT_S,
            env=os.environ | {"PYTHONPATH": path},
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None


def device() -> Iterator[Finding]:
    """What the process says; a crash or a hang is a finding, and the rest is not known."""
    done = ask(_REPORT_MODULE)
    if done is None:
        yield from _nothing(f"JAX has not answered within {DEVICE_TIMEOUT_S:.0f} s", _SLOW)
        return
    if done.returncode != 0:
        yield from _nothing(f"JAX fails: {why(done)}", _BROKEN)
        return
    yield from _findings_of(json.loads(done.stdout.splitlines()[-1]))


def why(done: "subprocess.CompletedProcess[str]") -> str:
    """Why such a process failed, in a line."""
    if done.returncode < 0:
        return f"its process ended with {signal.Signals(-done.returncode).name}"
    return (done.stderr.strip().splitlines() or ["it says nothing"])[-1][:200]


def _nothing(why: str, to_do: str) -> Iterator[Finding]:
    """All findings by their names, so that programs find them in the JSON."""
    yield Finding("device", why, to_do)
    for name in (_MEMORY, _DTYPES, _ATTENTION, _PRODUCTS):
        yield Finding(name, "not known")


def _findings_of(facts: dict[str, Any]) -> Iterator[Finding]:
    cuda = None
    if facts["platform"] == "cpu" and has_nvidia_gpu() and "JAX_PLATFORMS" not in os.environ:
        cuda = "there is an NVIDIA GPU that JAX does not use: pip install 'jax-engine[cuda]'"
    yield Finding("device", ", ".join(facts["devices"]), cuda)
    memory = facts["memory"]
    share = int(memory * facts["memory_share"])
    yield Finding(_MEMORY, f"{size(memory)}; an engine takes {size(share)} of it")
    dtype = facts["dtype"]
    yield Finding(_DTYPES, f"{dtype} and {dtype} (--dtype)")
    yield Finding(_ATTENTION, facts["attention"], facts["to_do"])
    yield Finding(_PRODUCTS, facts["products"])


_SHARES_MODULE = "jax_engine.worker.memory"
_OF_MODEL = "jax-engine doctor --model MODEL says which numbers of devices can share it"


def several(model: str | None = None) -> Iterator[Finding]:
    """
    Args:
        model: A directory, a file or a hub name; None: only what holds for any model.
    """
    cores = len(own_cores())
    yield Finding("on a CPU", f"a process for each of several devices, which share {cores} cores")
    if model is None:
        yield Finding("sizes", _OF_MODEL)
        return
    done = ask(_SHARES_MODULE, model)
    if done is None or done.returncode != 0:
        reason = "it takes too long" if done is None else why(done)
        yield Finding("sizes", f"not known: {reason}", f"--model {model}: {reason}")
        return
    shares, stages = json.loads(done.stdout.splitlines()[-1])
    for count, weights, kv_cache in shares:
        own = split_cores(list(range(cores)), count)
        threads = f"{len(own[-1])} cores" if own[0] else "all cores"
        yield Finding(
            f"size {count}",
            f"{size(weights)} of weights and {size(kv_cache)} of KV cache a token on each; "
            f"on a CPU {threads}",
        )
    for layers, weights, kv_cache in stages:
        yield Finding(
            f"{len(layers)} stages",
            f"{', '.join(map(str, layers))} layers; at most {size(weights)} of weights and "
            f"{size(kv_cache)} of KV cache a token in one",
        )
