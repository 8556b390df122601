"""Checks the trace of any engine: which invariants hold, which fell, and which it cannot show.

    python -m playground.check_trace FILE

exits with 0 if none fell of those that the trace can show, 1 if one fell, 2 if FILE is no trace.
The format is in engine_trace.schema.json; docs/tutorial/your-trace.md explains it.

>>> trace = {"engine": {"name": "none", "version": "0"}, "block_size": 4, "num_gpu_blocks": 2,
...          "requests": [{"id": "A", "prompt": [5, 6]}], "steps": [{"arrived": ["A"],
...          "scheduled": [{"seq": "A", "start": 0, "tokens": 2}], "tables": {"A": [1, 1]}}]}
>>> [(one["invariant"], one["step"], one["says"]) for one in check(trace)["fell"]][:1]
[('I4', 1, 'block 1 is 2 times in the table of A')]
>>> check(trace)["not_checked"]["I2"]
'no free list in the trace'
>>> check({"engine": 1})["error"]
"the trace lacks 'block_size'"
"""

import argparse
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from playground.schema import problems
from playground.trace_checks import ABSENT, NEVER, PLAN, SENTENCES, WRITTEN, Check, check_end
from playground.trace_map import Mapped
from playground.trace_replayed import Replayed, Step

SCHEMA = Path(__file__).with_name("engine_trace.schema.json")


class Verdict:
    """What has been found so far."""

    def __init__(self) -> None:
        self.fell: dict[str, dict[str, Any]] = {}
        self.checked: dict[str, int] = {}
        self.lacking: dict[str, str] = {}

    def look(self, checks: Iterable[Check], state: Replayed, step: Step, number: int) -> None:
        for check in checks:
            lacks = [said for name, said in check.needs.items() if name not in step]
            if lacks:
                self.lacking[check.name] = f"no {' and no '.join(lacks)} in the trace"
            elif check.when(state, step):
                self.checked[check.name] = self.checked.get(check.name, 0) + 1
                self.note(check.name, next(check.says(state, step), None), number)

    def note(self, name: str, says: str | None, number: int) -> None:
        """Only the first time counts: what follows may follow from it."""
        if says is not None and name not in self.fell:
            self.fell[name] = {
                "invariant": name,
                "step": number,
                "says": says,
                "sentence": SENTENCES[name],
            }

    def not_checked(self) -> dict[str, str]:
        """By invariant, why."""
        found = {}
        for name in SENTENCES:
            if name not in self.checked:
                found[name] = NEVER.get(name) or self.lacking.get(name) or ABSENT.get(name, "")
        return found


def check(trace: Any) -> dict[str, Any]:
    """Plays a trace again, and looks at it as it goes.

    Returns:
        `fell`: of each invariant that fell its name, step, what is wrong and its sentence, in the
        order of steps; `checked`: in how many steps each was; `not_checked`: why, by name; `notes`;
        `trace`: what docs/javascripts/replay.js draws. Or only `error`.
    """
    wrong = next(problems(trace, json.loads(SCHEMA.read_text("utf-8"))), None)
    wrong = wrong or next(misfits(trace), None)
    if wrong is not None:
        return {"error": wrong}
    state, verdict = Replayed(trace), Verdict()
    mapped = Mapped(state)
    for number, step in enumerate(trace["steps"], 1):
        state.plan(step)
        verdict.look(PLAN, state, step, number)
        mapped.planned(step, number)
        state.move(step)
        mapped.moved(step, number)
        state.write(step)
        verdict.look(WRITTEN, state, step, number)
        mapped.written(step, number)
        mapped.fell([one for one in verdict.fell.values() if one["step"] == number], step, number)
        state.draw(step)
        mapped.drawn(step, number)
    _end(state, verdict, len(trace["steps"]))
    fell = sorted(verdict.fell.values(), key=lambda one: one["step"])
    return {
        "fell": fell,
        "checked": {name: verdict.checked[name] for name in SENTENCES if name in verdict.checked},
        "not_checked": verdict.not_checked(),
        "notes": _notes(state),
        "trace": mapped.trace(),
    }


def _end(state: Replayed, verdict: Verdict, steps: int) -> None:
    if "free" in state.trace.get("end", {}) and not state.unfinished():
        verdict.checked["I9"] = 1
    for name, says in check_end(state):
        verdict.note(name, says, steps)


def _notes(state: Replayed) -> list[str]:
    left = state.unfinished()
    if left and not state.trace.get("complete"):
        return [f"The trace ends before {', '.join(left)} did: nothing is said of what came later."]
    return []


def misfits(trace: Mapping[str, Any]) -> Iterator[str]:
    """What the schema cannot say: names and blocks that are not there."""
    prompts = {one["id"]: one["prompt"] for one in trace["requests"]}
    sizes = {"tables": trace["num_gpu_blocks"], "cpu_tables": trace.get("num_cpu_blocks", 0)}
    known: set[str] = set()
    for number, step in enumerate(trace["steps"], 1):
        at = f"steps[{number - 1}]"
        for name in step.get("arrived", []):
            if name not in prompts:
                yield f"{at}.arrived: {name!r} is none of the requests"
        for entry in step["scheduled"]:
            if entry["seq"] not in known and entry.get("request", entry["seq"]) not in prompts:
                yield f"{at}.scheduled: {entry['seq']!r} belongs to none of the requests"
            known.add(entry["seq"])
        known |= {*step.get("forked", {}), *step.get("started", {})}
        for field, size in sizes.items():
            for name, table in step.get(field, {}).items():
                if any(block >= size for block in table):
                    yield f"{at}.{field}.{name}: block {max(table)} is beyond the pool of {size}"
        yield from _lengths(trace, step, at)


def _lengths(trace: Mapping[str, Any], step: Step, at: str) -> Iterator[str]:
    gpu, cpu = trace["num_gpu_blocks"], trace.get("num_cpu_blocks", 0)
    for field, size in (("refs", gpu), ("cpu_refs", cpu)):
        if field in step and len(step[field]) != size:
            yield f"{at}.{field} has {len(step[field])} counts, and the pool {size} blocks"
    for field, sizes in (("swap_in", (cpu, gpu)), ("swap_out", (gpu, cpu)), ("copies", (gpu, gpu))):
        for pair in step.get(field, []):
            if pair[0] >= sizes[0] or pair[1] >= sizes[1]:
                yield f"{at}.{field}: {pair} names a block beyond its pool"


def report(found: Mapping[str, Any]) -> str:
    """In lines, for who reads a terminal."""
    lines = [
        f"{one['invariant']} fell in step {one['step']}: {one['says']}.\n    {one['sentence']}"
        for one in found["fell"]
    ]
    held = [
        name for name in found["checked"] if name not in {o["invariant"] for o in found["fell"]}
    ]
    lines.append(f"held: {', '.join(held) or 'none'}")
    lines += [f"not checked: {name}: {why}" for name, why in found["not_checked"].items()]
    return "\n".join([*lines, *found["notes"]])


CODES = (
    "Exit code 0: no invariant fell of those that the trace can show (the others are listed as not "
    "checked). 1: an invariant fell. 2: the file cannot be read, or is no trace."
)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Check the trace of an engine.", epilog=CODES)
    parser.add_argument("file", type=Path)
    path = parser.parse_args(arguments).file
    try:
        trace = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        print(f"{path} cannot be read as JSON: {error}", file=sys.stderr)
        return 2
    found = check(trace)
    if "error" in found:
        print(f"{path}: {found['error']}", file=sys.stderr)
        return 2
    try:
        print(report(found), flush=True)
    except BrokenPipeError:  # a reader such as head has seen enough; the verdict stands
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 1 if found["fell"] else 0


if __name__ == "__main__":
    sys.exit(main())
