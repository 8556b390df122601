"""Distributes cases to worker processes, and replaces a process that a compiler crashes."""

import json
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

from pallas_kernels.aot.worker import environment

Work = tuple[str, str]  # target, case


def run_cases(work: list[Work], modules: list[str], jobs: int) -> Iterator[dict[str, Any]]:
    """Outcomes as dictionaries (see `compiling.Outcome`), in the order in which they are ready.

    Args:
        modules: the modules that have the cases.
    """
    todo: queue.SimpleQueue[Work] = queue.SimpleQueue()
    done: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    for item in work:
        todo.put(item)
    for _ in range(min(jobs, len(work))):
        threading.Thread(target=_serve, args=(todo, done, modules), daemon=True).start()
    for _ in work:
        yield done.get()


def _serve(
    todo: "queue.SimpleQueue[Work]",
    done: "queue.SimpleQueue[dict[str, Any]]",
    modules: list[str],
) -> None:
    worker, serving = None, None
    while True:
        try:
            target, case = todo.get_nowait()
        except queue.Empty:
            break
        if worker is None or serving != target:
            _stop(worker)
            worker, serving = _start(target, modules), target
        outcome = _ask(worker, case)
        if outcome is None:
            reason = f"the compiler ended its process (exit status {worker.wait()})"
            outcome = {"case": case, "target": target, "seconds": 0.0, "kernels": [], "copies": []}
            outcome |= {"temporary": 0, "aliased": 0, "launches": 0, "refused": ""}
            outcome |= {"arguments": 0, "collectives": [], "starts": []}
            outcome |= {"problems": [reason]}
            worker = None
        done.put(outcome)
        if _platform(target) == "rocm":  # whose XLA leaves files of new kernels only
            _stop(worker)
            worker = None
    _stop(worker)


def _start(target: str, modules: list[str]) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "pallas_kernels.aot.worker", target, *modules],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment(_platform(target)),
        text=True,
    )


def _platform(target: str) -> str:
    from pallas_kernels.aot.targets import TARGETS

    return TARGETS[target].platform


def _ask(worker: "subprocess.Popen[str]", case: str) -> dict[str, Any] | None:
    """The worker's outcome, or None if the process died."""
    assert worker.stdin and worker.stdout
    try:
        print(case, file=worker.stdin, flush=True)
    except BrokenPipeError:
        return None
    line = worker.stdout.readline()
    return json.loads(line) if line else None


def _stop(worker: "subprocess.Popen[str] | None") -> None:
    if worker is not None and worker.stdin:
        worker.stdin.close()
        worker.wait()
