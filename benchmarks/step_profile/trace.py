"""A trace of JAX's profiler, read as: how long was which part of the step at work."""

import gzip
import json
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jax

from benchmarks.step_profile.parts import DISPATCH, REST

WINDOW = "profiled step"  # the annotation around what is to be explained

Span = tuple[float, float, str]  # begin, end in microseconds, name


def record(run: Callable[[], None]) -> list[dict[str, Any]]:
    """The complete events of everything that ran meanwhile, Python calls left out."""
    return [event for event in record_all(run) if event.get("ph") == "X"]


def record_all(run: Callable[[], None]) -> list[dict[str, Any]]:
    """The same, and the events that name processes and threads."""
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder, profiler_options=options):
            run()
        (path,) = Path(folder).rglob("*.trace.json.gz")
        events: list[dict[str, Any]] = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    return events


def attribute(events: list[dict[str, Any]], parts: Mapping[str, str]) -> tuple[Counter[str], int]:
    """Microseconds by part over all windows, and the number of windows.

    Each instant of a window goes to the part that is at work then; to equal shares if the
    threads work on several; to "dispatch" if no instruction runs.
    """
    spans = [(e["ts"], e["ts"] + e["dur"], e["name"], (e["pid"], e["tid"])) for e in events]
    windows = sorted(span[:2] for span in spans if span[2] == WINDOW)
    threads: dict[Any, list[Span]] = {}
    for begin, end, name, thread in spans:
        if name in parts:
            threads.setdefault(thread, []).append((begin, end, parts[name]))
    changes = sorted(
        (at, thread, part) for thread, own in threads.items() for at, part in _deepest(own)
    )
    changes += [(float("inf"), None, DISPATCH)]
    total: Counter[str] = Counter()
    now: dict[Any, str] = {}
    last = 0.0
    for at, thread, part in changes:
        seconds = sum(max(0.0, min(at, end) - max(last, begin)) for begin, end in windows)
        running = [one for one in now.values() if one != DISPATCH] or [DISPATCH]
        working = [one for one in running if one != REST] or running
        for one in working:
            total[one] += seconds / len(working)
        now[thread], last = part, at
    return total, len(windows)


def _deepest(spans: list[Span]) -> Iterator[tuple[float, str]]:
    """(when, part from then on) of one thread, whose spans lie within each other or apart.

    A span without a scope of its own, inside one that has one, belongs to that.
    """
    open_spans: list[tuple[float, str]] = []
    for begin, end, part in sorted(spans, key=lambda span: (span[0], -span[1])):
        while open_spans and open_spans[-1][0] <= begin:
            closed, _ = open_spans.pop()
            yield closed, open_spans[-1][1] if open_spans else DISPATCH
        outer = open_spans[-1][1] if open_spans else REST
        open_spans.append((end, outer if part == REST else part))
        yield begin, open_spans[-1][1]
    while open_spans:
        closed, _ = open_spans.pop()
        yield closed, open_spans[-1][1] if open_spans else DISPATCH
