"""The kernels' own property tests on this device, in a process of their own."""

import os
import subprocess
import sys

from benchmarks.report import ROOT

# In a smoke run, one that needs no kernel: only that the tests can be started is of interest then.
SMOKE_TESTS = ("tests/kernels/test_tuning.py",)


def kernel_tests(smoke: bool, limit_s: float) -> dict[str, str]:
    """The last line that pytest prints, and the first failures, by the tests' names."""
    tests = SMOKE_TESTS if smoke else ("tests/kernels",)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=line", *tests]
    # Two processes share the card: neither may take all of its memory in advance.
    environment = {**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=limit_s
        )
    except subprocess.TimeoutExpired as expired:
        shown = expired.stdout or b""
        text = shown.decode() if isinstance(shown, bytes) else shown
        return {"pytest": f"cut off after {limit_s:.0f} s: {text.strip()[-300:]}"}
    lines = done.stdout.strip().splitlines() or [done.stderr.strip()[-300:]]
    failures = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
    return {"pytest": lines[-1], **{f"failure {i}": line for i, line in enumerate(failures[:20])}}
