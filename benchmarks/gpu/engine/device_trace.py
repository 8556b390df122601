"""A GPU's trace as `benchmarks.step_profile.trace.attribute` reads it: events named by their part.

On a GPU the profiler names kernels, and keeps with each the instruction of XLA that it belongs to
(`hlo_op`) and that instruction's path of scopes (`tf_op`). A kernel that has neither, such as one
in a command buffer, is told by its own name: a product of which layer it cannot say.
"""

import re
from collections.abc import Mapping
from typing import Any

from benchmarks.step_profile.parts import PARTS, REST, part_of
from benchmarks.step_profile.trace import WINDOW

PRODUCT, UNKNOWN = "a product, unnamed", "unnamed"
ALL_PARTS = (*PARTS, PRODUCT, UNKNOWN)
_GUESSES = (
    (re.compile(r"gemm|gemv|cutlass|cublas|nvjet|xmma", re.I), PRODUCT),
    (re.compile(r"attention|decode_kernel|prefill_kernel|flash", re.I), "attention over pages"),
    (re.compile(r"sort|topk|top_k", re.I), "sampling"),
)


def by_part(events: list[dict[str, Any]], parts: Mapping[str, str]) -> list[dict[str, Any]]:
    """Complete events of the device, their names replaced by parts, in one window.

    Args:
        events: All of the trace, the names of processes and threads included.
        parts: By instruction of the program.
    """
    kernels = _of_gpu(events)
    if kernels is None:  # a CPU: its events are named by instruction
        kernels = [e for e in events if e.get("ph") == "X" and e["name"] in parts]
    named = [event | {"name": _part(event, parts)} for event in kernels]
    if not named:
        raise ValueError("the trace has no event of the device")
    begin = min(event["ts"] for event in named)
    end = max(event["ts"] + event["dur"] for event in named)
    window = {"ph": "X", "name": WINDOW, "ts": begin, "dur": end - begin, "pid": -1, "tid": -1}
    return [window, *named]


def _of_gpu(events: list[dict[str, Any]]) -> list[dict[str, Any]] | None:
    """What ran on the streams of a GPU; None if there is no GPU in the trace.

    Other rows of the GPU's repeat the same kernels by instruction, module and step.
    """
    names: dict[tuple[str, Any, Any], str] = {}
    for event in events:
        if event.get("ph") == "M" and event["name"] in ("process_name", "thread_name"):
            thread = event.get("tid") if event["name"] == "thread_name" else None
            names[event["name"], event["pid"], thread] = event["args"]["name"]
    gpus = {key[1] for key, name in names.items() if key[2] is None and "/device:GPU" in name}
    if not gpus:
        return None
    return [
        event
        for event in events
        if event.get("ph") == "X"
        and event["pid"] in gpus
        and "stream" in names.get(("thread_name", event["pid"], event["tid"]), "").lower()
    ]


def _part(event: dict[str, Any], parts: Mapping[str, str]) -> str:
    details = event.get("args", {})
    for name in (details.get("hlo_op"), event["name"]):
        if name in parts:
            return parts[name]
    part = part_of(details.get("tf_op", ""))
    if part != REST:
        return part
    guesses = (guess for pattern, guess in _GUESSES if pattern.search(event["name"]))
    return next(guesses, UNKNOWN)
