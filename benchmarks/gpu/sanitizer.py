"""`python -m benchmarks.gpu.sanitizer`: NVIDIA's compute-sanitizer over the newest kernels.

memcheck finds reads and writes out of bounds, racecheck races in shared memory. The kernels run on
tiny shapes, since a sanitizer slows them by orders of magnitude.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import time

from benchmarks.gpu.said import STARTED, put, skip
from benchmarks.report import ROOT

TOOLS = ("memcheck", "racecheck")
KERNELS = ("new", "products", "experts")
SUMMARY = re.compile(r"(?:ERROR|RACECHECK) SUMMARY: (.*)")


def verdict(printed: str) -> str:
    """The sanitizer's last line, or that it said nothing."""
    found = SUMMARY.findall(printed)
    return (
        found[-1].strip() if found else "no summary: " + (printed.strip().splitlines() or ["-"])[-1]
    )


def main() -> None:
    """Each tool, as long as the limit allows."""
    parser = argparse.ArgumentParser("python -m benchmarks.gpu.sanitizer")
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--limit", type=float, default=1e9)
    parser.add_argument("--card", default="", help="not read")
    args = parser.parse_args()
    program = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    if not os.path.exists(program):
        skip("compute-sanitizer", "a smoke run without it" if args.smoke else "it is not installed")
        return
    kernels = [sys.executable, "-m", "benchmarks.gpu.kernels", *KERNELS, "--smoke", "--once"]
    for number, tool in enumerate(TOOLS):
        left = (args.limit - (time.perf_counter() - STARTED)) / (len(TOOLS) - number)
        command = [program, "--tool", tool, "--error-exitcode", "7", *kernels]
        try:
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=left)
        except subprocess.TimeoutExpired:
            skip(f"compute-sanitizer, {tool}", f"cut off after {left:.0f} s")
            continue
        put("sanitizer", tool, value=verdict(done.stdout + done.stderr))


if __name__ == "__main__":
    main()
