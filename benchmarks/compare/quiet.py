"""What others do with the cores while a pass runs."""

import os
import time
from pathlib import Path

TICK = os.sysconf("SC_CLK_TCK")


def busy_seconds() -> float:
    """Core seconds that anybody has used since the machine started; stolen ones count."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    user, nice, system, _, _, irq, softirq, steal = map(int, fields[:8])
    return (user + nice + system + irq + softirq + steal) / TICK


def settle(limit_s: float = 10.0, share: float = 0.1) -> None:
    """Waits until nobody uses the cores, but no longer than `limit_s` seconds.

    Some engines spin for a while after their last step, and would slow down whoever is next.
    """
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        busy, started = busy_seconds(), time.monotonic()
        time.sleep(0.5)
        if busy_seconds() - busy <= share * (time.monotonic() - started):
            return


def tree(root: int) -> list[int]:
    """A process and its descendants."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (stat := _stat(int(entry.name))):
            children.setdefault(int(stat[1]), []).append(int(entry.name))
    found = [root]
    for pid in found:  # grows while it is walked
        found += children.get(pid, [])
    return found


def used_seconds(pids: list[int]) -> float:
    """Core seconds of these processes, and of children that they have seen end."""
    stats = [stat for pid in pids if (stat := _stat(pid))]
    return sum(int(ticks) for stat in stats for ticks in stat[11:15]) / TICK


def peak_memory_mib(pids: list[int]) -> int:
    """Sum of the peaks of resident memory."""
    total = 0
    for pid in pids:
        try:
            lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    return total >> 10


def _stat(pid: int) -> list[str] | None:
    """Fields of /proc/PID/stat from the state on (the third); None when it has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return None
