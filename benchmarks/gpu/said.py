"""What a step of `benchmarks.gpu.plan` says to the process that keeps the results: lines of JSON.

`{"put": [key, ...], "value": ...}` is a figure, by its path in the results; `{"row": {...}}` a row
of the kernels' tables; `{"skip": what, "why": ...}` what was not measured. All else is progress.
"""

import json
import time
import traceback
from collections.abc import Callable
from typing import Any, Protocol

STARTED = time.perf_counter()


class Measured(Protocol):
    """What a row of the kernels' tables is about: an attention's shape, or a product's."""

    part: str

    @property
    def name(self) -> str: ...
    @property
    def traffic(self) -> int: ...
    @property
    def flops(self) -> int: ...


def put(*path: str, value: Any) -> None:
    """A figure."""
    print(json.dumps({"put": path, "value": value}), flush=True)


def skip(what: str, why: str) -> None:
    """What was not measured, and the reason."""
    print(json.dumps({"skip": what, "why": why}), flush=True)


def row(shape: Measured, method: str, limit_s: float, timing: dict[str, float]) -> None:
    """A measurement in microseconds.

    Args:
        limit_s: Seconds if nothing but the memory or the matrix units were in the way.
    """
    us = timing["us"]
    found = {
        "part": shape.part,
        "shape": shape.name,
        "method": method,
        "predicted_us": round(limit_s * 1e6, 2),
        **{key: round(value, 2) for key, value in timing.items()},
        "percent_of_limit": round(100 * limit_s * 1e6 / us, 1),
        "gb_per_s": round(shape.traffic / us / 1e3, 1),
        "tflop_per_s": round(shape.flops / us / 1e6, 1),
    }
    print(json.dumps({"row": found}), flush=True)


def attempt(what: str, run: Callable[[], Any], limit_s: float = 1e9) -> bool:
    """One measurement, unless the process is older than `limit_s`.

    If it fails, the reason is said, and stderr gets the traceback.
    """
    if time.perf_counter() - STARTED > limit_s:
        skip(what, "the time was spent")
        return False
    try:
        run()
    except Exception as error:
        traceback.print_exc()
        lines = str(error).splitlines() or [""]
        skip(what, f"{type(error).__name__}: {lines[0][:300]}")
        return False
    return True
