"""Measurements by PyTorch, whose memory and compiler stay in a process of their own."""

import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence

from benchmarks.gpu.record import Record
from benchmarks.gpu.shapes import Shape
from benchmarks.report import ROOT


def torch_rows(
    record: Record, shapes: Sequence[Shape], smoke: bool, limit_s: float
) -> Iterator[tuple[Shape, str, float]]:
    """(shape, method, microseconds); what is missing is noted in the record."""
    if smoke or importlib.util.find_spec("torch") is None:
        record.skip("torch SDPA, torch FlexAttention", "a smoke run" if smoke else "no torch here")
        return
    names = {shape.name: shape for shape in shapes}
    command = [sys.executable, "-m", "benchmarks.gpu.with_torch", *names]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=limit_s)
        text = done.stdout
        if done.returncode:
            record.skip("torch", done.stderr.strip()[-200:])
    except subprocess.TimeoutExpired as expired:
        shown = expired.stdout or b""
        text = shown.decode() if isinstance(shown, bytes) else shown
        record.skip("the rest of torch", f"cut off after {limit_s:.0f} s")
    for line in text.splitlines():
        result = json.loads(line)
        if "us" in result:
            yield names[result["shape"]], result["method"], result["us"]
        else:
            record.skip(f"{result['method']}, {result['shape']}", result["error"])
