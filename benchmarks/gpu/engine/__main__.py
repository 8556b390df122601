"""`python -m benchmarks.gpu.engine`: the whole engine on this GPU, in limited time.

Each model runs in processes of its own, whose results are written as they come: first what the
project aims at, then transformers beside it, then XLA's options. With `--smoke` a tiny model on any
device: nothing it prints then is a measurement.
"""

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import jax

from benchmarks.gpu.card import device_name
from benchmarks.gpu.checks import SMOKE_S
from benchmarks.gpu.engine import peer
from benchmarks.gpu.engine.models import MODELS
from benchmarks.gpu.engine.table import EMPTY, tables
from benchmarks.gpu.record import Record
from benchmarks.report import RESULTS, ROOT

SMALL, LARGE = MODELS
# (what, model, until which share of the budget): what takes long must leave room for what follows.
PLAN = (
    ("main", SMALL, 0.34),
    ("main", LARGE, 0.66),
    ("transformers", SMALL, 0.80),
    ("options", LARGE, 0.92),
    ("transformers", LARGE, 1.0),
    ("options", SMALL, 1.0),
)
LEAST_S = 20.0  # no process is started for less
GRACE_S = 5.0  # of the budget, for what has to be written in the end


def main() -> None:
    """Run everything, until the budget is spent."""
    options = _options()
    smoke = options.smoke
    if not smoke and jax.devices()[0].platform != "gpu":
        sys.exit("no GPU here; --smoke runs a tiny model on the CPU")
    name = f"{'smoke' if smoke else device_name()}-engine"
    command = "bash benchmarks/gpu.sh --only engine" + (" --smoke" if smoke else "")
    record = Record(options.output, name, command, EMPTY, tables)
    if smoke:
        asked = peer.message(peer.jobs(SMALL, smoke))
        _child(record, SMALL, ["main", "options", "trace"], SMOKE_S, smoke, asked)
    plan = [] if smoke else [one for one in PLAN if one[0] in options.parts]
    for what, model, share in plan:
        limit = share / plan[-1][2] * options.budget - GRACE_S - record.elapsed()
        if limit < LEAST_S:
            record.skip(f"{model}: {what}", "the time was spent")
        elif what == "transformers":
            _beside_transformers(record, model, limit)
        else:
            _child(record, model, [what], limit)
    record.save()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m benchmarks.gpu.engine", description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="a tiny model, on any device")
    parts = dict.fromkeys(what for what, _, _ in PLAN)
    parser.add_argument("--parts", nargs="+", choices=parts, default=list(parts))
    parser.add_argument("--budget", type=float, default=500, metavar="SECONDS")
    parser.add_argument("--output", type=Path, default=RESULTS / "gpu", metavar="FOLDER")
    return parser.parse_args()


def _put(record: Record, model: str, part: str, figures: dict[str, Any]) -> None:
    """Into the results, and to disk."""
    models = record.content["models"]
    shown = {key: value for key, value in figures.items() if not isinstance(value, dict)}
    record.say(f"{model}, {part}: {json.dumps(shown)}")
    record.put("models", models | {model: models.get(model, {}) | {part: figures}})


def _child(
    record: Record,
    model: str,
    parts: list[str],
    limit_s: float,
    smoke: bool = False,
    message: str = "",
) -> None:
    """A process that measures one model; what it says goes into the results line by line."""
    command = [sys.executable, "-m", "benchmarks.gpu.engine.child", model, *parts]
    # A fresh pool of the allocator, all in one piece; the rest is this process's context.
    pool = {"XLA_PYTHON_CLIENT_PREALLOCATE": "true", "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.85"}
    # All that the processes say beside their results: why one failed.
    with record.json_file.with_suffix(".log").open("a+") as log:
        process = subprocess.Popen(
            # It starts nothing in the last part of its time, and is ended after it.
            [*command, "--limit", str(0.85 * limit_s), *(["--smoke"] if smoke else [])],
            cwd=ROOT, env=os.environ | pool, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=log, text=True,
        )  # fmt: skip
        timer = threading.Timer(limit_s, process.kill)
        timer.daemon = True
        timer.start()
        for line in _talk(process, message):
            _take(record, model, line)
        timer.cancel()
        if process.wait():
            log.seek(0)
            last = log.read().strip().splitlines()[-1:] or [""]
            why = "cut off" if process.returncode == -9 else f"status {process.returncode}"
            record.skip(f"{model}: the rest of {' and '.join(parts)}", f"{why}: {last[0][:300]}")


def _talk(process: subprocess.Popen[str], message: str) -> Iterator[dict[str, Any]]:
    """What the child says, as it says it; libraries may print other lines."""
    assert process.stdin is not None and process.stdout is not None
    with suppress(BrokenPipeError):  # its exit status says what happened
        process.stdin.write(message)
        process.stdin.close()
    for line in process.stdout:
        if line.startswith('{"part"'):
            yield json.loads(line)


def _take(record: Record, model: str, said: dict[str, Any]) -> None:
    if "error" in said:
        record.skip(f"{model}: {said['part']}", said["error"])
    elif said["part"] == "card":
        if not record.content["card"]:
            record.put("card", said["figures"])
    else:
        _put(record, model, said["part"], said["figures"])


def _beside_transformers(record: Record, model: str, limit_s: float) -> None:
    """The same requests by this engine, then by transformers; the ratio of tokens a second."""
    if importlib.util.find_spec("torch") is None:
        record.skip(f"{model}: transformers", "no torch here")
        return
    asked = peer.jobs(model, smoke=False)
    started = record.elapsed()
    _child(record, model, ["trace"], 0.4 * limit_s, message=peer.message(asked))
    ours = record.content["models"].get(model, {}).get("trace")
    if ours is None:
        return
    try:
        theirs = peer.run_transformers(model, asked, limit_s - (record.elapsed() - started))
    except RuntimeError as error:
        record.skip(f"{model}: transformers", str(error))
        return
    ratio = ours["output_tokens_per_s"] / theirs["output_tokens_per_s"]
    _put(record, model, "transformers", {"ours_over_theirs": round(ratio, 2), **theirs})


if __name__ == "__main__":
    main()
