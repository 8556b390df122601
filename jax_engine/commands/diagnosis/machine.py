"""The processor and memory."""

import os
import platform
from collections.abc import Iterator
from pathlib import Path

from jax_engine.commands.diagnosis.finding import Finding, size

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
