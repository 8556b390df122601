"""Measured times and rates come from results: what a page writes by hand is not measured.

docs/experiments.md is the exception: it keeps what was measured once. A section of docs/gpu.md has
estimates for hardware that nothing has run on.
"""

import re
from pathlib import Path

import pytest

from tests.meta.trees import ROOT

UNITS = "ms|µs|s|seconds?|minutes?|[MGT]B/s|[GT]FLOP/s|tokens/s"
WRITTEN = re.compile(rf"(?<![\w{{.,])\d[\d,.]*\s(?:{UNITS})(?![\w/])")
NOT_PROSE = re.compile(r"^```.*?^```$|\{\{.*?\}\}|`[^`\n]*`", re.MULTILINE | re.DOTALL)
ESTIMATES = re.compile(r"^### Expected, before any measurement\n.*?^## ", re.MULTILINE | re.DOTALL)
PAGES = [path for path in sorted((ROOT / "docs").rglob("*.md")) if path.name != "experiments.md"]

# By page, what it writes that is not measured.
KNOWN = {
    # Limits, and a line of a log.
    "conformance.md": "20 seconds",
    "serving.md": "30 seconds, 60 seconds, 10 seconds, 3 seconds, 512.4 tokens/s, 87.0 tokens/s",
    # What a roofline assumes; its result has the reasons.
    "gpu.md": "2 µs, 33 µs, 8 µs, 450 GB/s",
    "reader-tasks.md": "75 minutes",  # a task, as is the lesson of tutorial/teaching.md
    "vllm-examples.md": "300 s",
    "tutorial/exercises.md": "20 seconds",
    "tutorial/processes.md": "10 seconds, 12 seconds, 3 seconds",
    # The simulator's constants, data sheets', and what an example supposes.
    "tutorial/beside-orca.md": "0.17 ms, 0.3 ms, 0.66 µs, 39.5 ms, 35 ms, 7.9 ms",
    "tutorial/chunked-prefill.md": "10 ms, 1 ms, 30 ms, 68 ms, 43 ms, 18 ms",
    "tutorial/exam.md": (
        "2 seconds, 0.1 seconds, 0.05 seconds, 0.175 seconds, 0.11 seconds, 16.2 µs"
    ),
    "tutorial/kernel-ladder.md": "750 TFLOP/s, 3.0 TB/s",
    "tutorial/reproducing-the-paper.md": "1,555 GB/s, 20.9 ms, 0.17 ms, 0.66 µs, 0.3 ms",
    "tutorial/serving.md": "0.0 s, 0.5 s, 2.5 s, 0.1 s, 0.119 s",
    "tutorial/several-devices.md": "3,350 GB/s, 450 GB/s, 10 µs, 4.8 ms, 2.4 ms",
    "tutorial/swap-or-recompute.md": (
        "12 GB/s, 312 TFLOP/s, 12.8 ms, 17.5 ms, 5.17 ms, 0.167 ms, 10.8 ms, 20.7 ms, 42.7 ms"
    ),
    "tutorial/virtual-memory.md": "31.5 GB/s, 2,039 GB/s, 3,350 GB/s, 12 GB/s",
    "tutorial/teaching.md": "75 minutes",
    "tutorial/why-cache.md": "4.8 ms, 7.3 ms",
    "tutorial/why-memory.md": "1,555 GB/s",
}


def _written(page: Path) -> set[str]:
    text = ESTIMATES.sub("", page.read_text("utf-8"))
    return set(WRITTEN.findall(NOT_PROSE.sub("", text)))


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_a_page_writes_no_measured_time_by_hand(page: Path) -> None:
    known = KNOWN.get(page.relative_to(ROOT / "docs").as_posix(), "")
    assert _written(page) == set(known.split(", ") if known else ())
