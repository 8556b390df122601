"""`python -m benchmarks.gpu`: what a GPU has to tell, in calls of limited time.

Each step of `plan.PLAN`, and with `--failed` of `plan.SECOND`, is a process of its own, with its
own limit. What it says goes into the results line by line, so that a run that is cut off leaves
what it had. What was predicted of a step is written before it starts. With `--smoke` everything
runs in miniature, on any device: nothing it prints then is a measurement.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from benchmarks.gpu.driver import file_name, nvidia_smi
from benchmarks.gpu.plan import (
    BEST,
    BUDGET,
    LOG,
    PLAN,
    SECOND,
    SMALL,
    STEPS,
    TABLE,
    Step,
    best_graphs,
    missing,
)
from benchmarks.gpu.predicted import by_path
from benchmarks.gpu.record import Record
from benchmarks.gpu.table import tables
from benchmarks.report import RESULTS, ROOT

LEAST_S = 8.0  # no process is started for less
SMOKE_S = 3600  # of each step: only a hang takes so long
DONE, CUT_OFF = "done", "cut off"


def main() -> None:
    """Runs the steps, until the budget is spent."""
    options = _options()
    found = nvidia_smi()
    if not found and not options.smoke:
        sys.exit("no GPU here (nvidia-smi says nothing); --smoke runs all of it in miniature")
    name = "smoke" if options.smoke else file_name(found[0])
    command = " ".join(["python -m benchmarks.gpu", *sys.argv[1:]])
    again = bool(options.only) or options.failed
    record = Record(options.output, name, command, tables, add=again)
    every = (*PLAN, *SECOND) if options.smoke or options.failed else PLAN
    steps = [STEPS[one] for one in options.only] if options.only else list(every)
    if options.smoke:
        steps = [one for one in steps if one.in_smoke]
    if options.failed:
        steps = [one for one in steps if _status(record, one) != DONE]
    for step in steps:
        left = options.budget - record.elapsed()
        if options.smoke:
            _run(record, step, SMOKE_S, options)
        elif left < LEAST_S:
            record.put(["steps", step.name], {"status": "not begun: the time was spent"})
        else:
            _run(record, step, min(left, _limit(step, steps, left)), options)
    record.save()
    sys.exit(any(_status(record, step) != DONE for step in steps))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m benchmarks.gpu", description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="in miniature, on any device")
    parser.add_argument("--only", nargs="+", choices=STEPS, metavar="STEP",
                        help=f"only these, added to the file: {', '.join(STEPS)}")  # fmt: skip
    parser.add_argument(
        "--failed",
        action="store_true",
        help="only what the file does not hold, and what a second call measures",
    )
    parser.add_argument("--budget", type=float, default=BUDGET, metavar="SECONDS")
    parser.add_argument("--output", type=Path, default=RESULTS / "gpu", metavar="FOLDER")
    return parser.parse_args()


def _status(record: Record, step: Step) -> str:
    return str(record.content["steps"].get(step.name, {}).get("status", ""))


def _limit(step: Step, steps: list[Step], left: float) -> float:
    """The step's seconds, and its share of what earlier steps have left."""
    rest = sum(one.seconds for one in steps[steps.index(step) :])
    return step.seconds * max(1.0, left / rest)


def _run(record: Record, step: Step, limit: float, options: argparse.Namespace) -> None:
    """One step's process; what it says goes into the results."""
    lacking = missing(step)
    if lacking and not options.smoke:
        status = f"not begun: {', '.join(lacking)} cannot be imported"
        record.put(["steps", step.name], {"status": status})
        return
    record.content["predicted"] |= by_path(step.name)
    record.put(["steps", step.name], {"status": "begun", "limit_s": round(limit, 1)})
    began, log_file = record.elapsed(), record.json_file.with_suffix(".log")
    with log_file.open("a") as log:
        print(f"\n### {step.name}", file=log, flush=True)
        process = _start(step, limit, options, record, log)
        timer = threading.Timer(limit, _end, (process,))
        timer.start()
        try:
            assert process.stdout is not None
            for line in process.stdout:
                _take(record, line, log)
            status = process.wait()
        finally:
            timer.cancel()
            _end(process)
    said = DONE if status == 0 else CUT_OFF if status < 0 else f"failed with status {status}"
    spent = {"seconds": round(record.elapsed() - began, 1), "limit_s": round(limit, 1)}
    record.put(["steps", step.name], {"status": said, **spent})


def _take(record: Record, line: str, log: IO[str]) -> None:
    """A line of a step: a figure, or progress, which goes into the log."""
    if line.startswith(('{"put"', '{"row"', '{"skip"')):
        record.take(json.loads(line))
    else:
        print(line, end="", file=log, flush=True)


def _start(
    step: Step, limit: float, options: argparse.Namespace, record: Record, log: IO[str]
) -> subprocess.Popen[str]:
    graphs = record.content["models"].get(SMALL, {}).get("graphs", {})
    stand_for = {
        BEST: best_graphs(graphs),
        LOG: str(record.json_file.with_name(f"{record.json_file.stem}-tests.txt")),
        TABLE: str(options.output),
    }
    words = [stand_for.get(word, word) for word in step.command]
    # It begins nothing in the last tenth of its time, and is ended after it.
    words += ["--limit", f"{0.9 * limit:.1f}", "--card", json.dumps(record.content["card"])]
    return subprocess.Popen(
        [sys.executable, "-m", *words, *["--smoke"] * options.smoke],
        cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True,
        env=os.environ | _memory(step), start_new_session=True,
    )  # fmt: skip


def _memory(step: Step) -> dict[str, str]:
    """An engine's pool is one piece; other processes leave room to those beside them."""
    if step.command[0].startswith("benchmarks.gpu.engine"):
        return {"XLA_PYTHON_CLIENT_PREALLOCATE": "true", "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.85"}
    return {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}


def _end(process: subprocess.Popen[Any]) -> None:
    """Ends a process and those that it started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


if __name__ == "__main__":
    main()
