"""A result with all that is needed to read it: the machine, the versions, the date, the command."""

import json
import os
import platform
import re
import shutil
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PACKAGES = ("jax", "jaxlib", "flax", "numpy", "transformers", "tokenizers")

# By the kernel's names of them, the newest first.
INSTRUCTIONS = {
    "amx_bf16": "AMX",
    "avx512_bf16": "AVX-512-BF16",
    "avx512f": "AVX-512",
    "avx2": "AVX2",
}


def machine() -> dict[str, Any]:
    """Processor, cores, memory in GiB, accelerators, and the load that others put on the cores."""
    import jax

    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "devices": sorted({device.device_kind for device in jax.devices()}),
        "system": f"{platform.system()} {platform.machine()}",
        "load_average": [round(x, 2) for x in os.getloadavg()],
    }


def machine_in_words(found: dict[str, Any]) -> str:
    """Accelerators, or cores and processor, of what `machine` found."""
    if found["devices"] == ["cpu"]:
        return f"{found['cores']} cores, {found['cpu']}"
    return ", ".join(found["devices"])


def of_processor(name: str) -> str:
    """The name of a result about a CPU's kernels: an older processor runs other code."""
    from cpu_kernels.compiling.jit import processor_has  # needs Numba, which results do not

    if processor_has("avx512f"):
        return name
    return f"{name}_{'avx2' if processor_has('avx2') else platform.machine()}"


def now() -> str:
    """The date of a result."""
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")


def versions() -> dict[str, str]:
    """Python, this project's commit, and the packages that decide the speed."""
    found = {"python": platform.python_version(), "commit": _commit()}
    return found | {package: version(package) for package in PACKAGES}


def write_result(
    name: str,
    result: dict[str, Any],
    path: Path,
    *,
    command: str,
    arguments: dict[str, Any],
    headline: dict[str, str],
) -> Path:
    """Writes a result; returns where.

    Args:
        name: The file's name.
        result: Figures; keys end in their unit (`_s`, `_ms`, `_tokens_per_s`, `_percent`, `_mib`).
        command: As it was typed, without paths of this machine.
        arguments: Values of the benchmark's own flags.
        headline: What the pages' first table shows: what was measured, to the figure with its unit.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {
        "name": name,
        "date": now(),
        "command": command,
        "arguments": {k: _plain(v) for k, v in arguments.items()},
        "machine": machine(),
        "versions": versions(),
        "headline": headline,
        "result": result,
    }
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    return path


def load_result(name: str) -> dict[str, Any]:
    """A saved result, as `write_result` wrote it."""
    saved: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text("utf-8"))
    return saved


def load_results(pattern: str = "*") -> list[dict[str, Any]]:
    """All saved results whose name fits, in the order of their names."""
    return [load_result(path.stem) for path in sorted(RESULTS.glob(f"{pattern}.json"))]


def present(command: str) -> str:
    """A saved command as it is typed now: a benchmark was once a module to run, as others are."""
    return re.sub(r"^python -m benchmarks\.(?!gpu\b)(\S+)", r"python -m benchmarks \1", command)


def _plain(value: Any) -> Any:
    return value if isinstance(value, (bool, int, float, str, type(None))) else str(value)


def _cpu_model() -> str:
    """The processor's name, and the instructions that decide what its products cost.

    A virtual machine's name alone stands for several generations.
    """
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    flags = next((line.split() for line in lines if line.startswith("flags")), [])
    known = [title for flag, title in INSTRUCTIONS.items() if flag in flags]
    return " with ".join([names[0] if names else platform.processor(), *known[:1]])


def _commit() -> str:
    """Short hash, with a + when files differ from it; "" outside a checkout, or without git."""
    if shutil.which("git") is None:
        return ""
    command = ["git", "describe", "--always", "--dirty=+", "--exclude=*"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()
