"""`python -m benchmarks.gpu.checks`: the kernels' property tests on this device.

What never ran on a device comes first. When the time is spent, tests that passed on one are left.
"""

import argparse
import importlib.util
import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from benchmarks.gpu.said import put
from benchmarks.report import ROOT

# For any device; the other files are about CPUs, about refusals, or interpret what is for GPUs.
DEVICE_TESTS = (
    "quantized_matmul", "grouped_product", "paged_attention", "invariants", "merge", "block_copy",
    "gpu_metadata",
)  # fmt: skip
# In a smoke run, one that needs no kernel: only that the tests can be started is of interest then.
SMOKE_TESTS = ("tuning",)
PRINTING_S = 4.0
MOST_WORKERS = 12  # compiling and the oracle keep a core each; contexts take memory
RESULT = re.compile(r"\b(PASSED|FAILED|ERROR|SKIPPED)\b")
NAME = re.compile(r"tests/\S+::\S+")


def kernel_tests(smoke: bool, limit_s: float, log: Path) -> dict[str, str]:
    """What pytest says at the end, and the first failures by name. All that it prints is in `log`.

    After `limit_s` seconds it is ended, and what was found until then is counted.
    """
    names = SMOKE_TESTS if smoke else DEVICE_TESTS
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "--tb=short"]
    command += [*_workers(smoke), *(f"tests/kernels/test_{name}.py" for name in names)]
    with log.open("w") as out:
        process = subprocess.Popen(
            command, cwd=ROOT, env=_environment(smoke), stdout=out, stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip
        try:
            process.wait(limit_s)
            cut_off = None
        except subprocess.TimeoutExpired:
            cut_off = f"cut off after {limit_s:.0f} s"
            process.send_signal(signal.SIGINT)  # it prints what failed until then
            with suppress(subprocess.TimeoutExpired):
                process.wait(PRINTING_S)
        finally:
            with suppress(ProcessLookupError):  # the workers too: measurements come next
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return digest(log.read_text("utf-8", "replace"), cut_off)


def digest(text: str, cut_off: str | None) -> dict[str, str]:
    """What counts of the text of `pytest -v`: a line as its last one is, and up to 20 failures."""
    lines = text.strip().splitlines() or ["it printed nothing"]
    found = {name[0]: result[0] for line in lines
             if (result := RESULT.search(line)) and (name := NAME.search(line))}  # fmt: skip
    last = lines[-1].strip("= ")
    if cut_off is not None:
        counts = [f"{list(found.values()).count(kind)} {kind.lower()}" for kind in _kinds(found)]
        last = ", ".join([*counts, cut_off])
    failures = [name for name, result in found.items() if result in ("FAILED", "ERROR")]
    return {"pytest": last, **{f"failure {i}": name for i, name in enumerate(failures[:20])}}


def main() -> None:
    """The tests, as long as the limit allows."""
    parser = argparse.ArgumentParser("python -m benchmarks.gpu.checks")
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--limit", type=float, default=1e9)
    parser.add_argument("--card", default="", help="not read")
    parser.add_argument("--log", type=Path, required=True, help="takes all that pytest prints")
    args = parser.parse_args()
    for name, said in kernel_tests(args.smoke, args.limit, args.log).items():
        put("tests", name, value=said)


def _kinds(found: dict[str, str]) -> list[str]:
    return sorted(set(found.values()))


def _workers(smoke: bool) -> list[str]:
    if importlib.util.find_spec("xdist") is None:
        return []
    return ["--numprocesses", str(1 if smoke else min(MOST_WORKERS, os.cpu_count() or 1))]


def _environment(smoke: bool) -> dict[str, str]:
    # The processes share the card: none may take all of its memory in advance.
    environment = {**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    if not smoke:
        # The device that JAX finds; tests/conftest.py would choose the CPU. XLA's twin would round
        # float32 to TF32 there, which is allowed for speed and not what the tests look for.
        environment.setdefault("JAX_PLATFORMS", "")
        environment["JAX_DEFAULT_MATMUL_PRECISION"] = "highest"
    return environment


if __name__ == "__main__":
    main()
