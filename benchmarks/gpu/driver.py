"""The GPU of this machine as its driver names it, without a process that takes memory on it."""

import re
import subprocess

COMMAND = (
    "nvidia-smi",
    "--query-gpu=name,driver_version,memory.total,clocks.max.sm,power.limit",
    "--format=csv,noheader",
)


def nvidia_smi() -> list[str]:
    """What the driver says of the first card: name, driver, memory, clock, power; else nothing."""
    try:
        done = subprocess.run(COMMAND, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return [word.strip() for word in done.stdout.splitlines()[0].split(",")]


def file_name(device: str) -> str:
    """A card's name, as a file may be called."""
    return re.sub(r"\W+", "-", device.lower())
