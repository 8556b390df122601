"""The words of the field lead to the page that answers: its tags say which words are its own."""

import importlib.util
import re
from pathlib import Path

import pytest

from tests.meta.trees import ROOT
from tests.support import site_search

DOCS = ROOT / "docs"
SEARCHES = {
    "compute-bound": "tutorial/why-cache",
    "memory-bound": "tutorial/why-cache",
    "roofline": "tutorial/why-cache",
    "fragmentation": "tutorial/why-memory",
    "MLA": "tutorial/why-memory",
    "Equation 4": "tutorial/attention",
    "online softmax": "tutorial/attention",
    "block table": "tutorial/block-manager",
    "continuous batching": "tutorial/scheduler",
    "iteration-level scheduling": "tutorial/scheduler",
    "watermark": "tutorial/scheduler",
    "your block manager": "conformance",
    "your scheduler": "conformance",
    "buddy allocator": "tutorial/beside-orca",
    "preemption": "tutorial/swap-or-recompute",
    "copy-on-write": "tutorial/sharing",
    "beam search": "tutorial/sharing",
    "prefix caching": "tutorial/prefix-caching",
    "RadixAttention": "tutorial/radix-tree",
    "chunked prefill": "tutorial/chunked-prefill",
    "max_num_batched_tokens": "tutorial/symptoms",
    "determinism": "tutorial/equal-bits",
    "speculative decoding": "tutorial/speculation",
    "LoRA": "tutorial/adapters",
    "AWQ": "tutorial/quantised-weights",
    "tensor parallel": "tutorial/several-devices",
    "pipeline parallel": "tutorial/several-devices",
    "time to first token": "tutorial/serving",
    "normalised latency": "tutorial/reproducing-the-paper",
    "executor": "tutorial/system",
    "BlockSpec": "tutorial/pallas-line-by-line",
    "num_stages": "tutorial/triton-line-by-line",
    "number of stages": "tutorial/mosaic-line-by-line",
    "TMA": "tutorial/mosaic-line-by-line",
    "warp specialisation": "tutorial/mosaic-line-by-line",
    "kernel puzzles": "tutorial/kernel-puzzles",
    "split-K": "tutorial/kernel-ladder",
    "AMD": "platforms",
    "OpenAI API": "serving",
    "structured outputs": "using",
    "gpu_memory_utilization": "using",
    "CUDA graphs": "gpu",
    "exam questions": "tutorial/exam",
    "homework": "tutorial/teaching",
    "lecture": "tutorial/slides",
}


@pytest.mark.slow
@pytest.mark.skipif(not site_search.NODE, reason="Node is not installed")
@pytest.mark.skipif(importlib.util.find_spec("mkdocs") is None, reason="MkDocs is not installed")
def test_the_first_page_found_answers() -> None:
    found = site_search.search(list(SEARCHES))
    first = {query: pages[0][0].partition("/#")[0].rstrip("/") for query, pages in found.items()}
    assert first == SEARCHES


TITLE = re.compile(r"^# (.+)$", re.MULTILINE)
NEXT = re.compile(r"^Next: .*?\[([^\]]+)\]\(([^)#]+\.md)\)", re.MULTILINE | re.DOTALL)
NAMES = {
    path: title
    for title, path in re.findall(
        r"^ +- (.+?): +(\S+\.md)$", (ROOT / "mkdocs.yml").read_text("utf-8"), re.MULTILINE
    )
    if not path.endswith("index.md")
}


def test_a_page_has_one_name() -> None:
    """In the navigation, as its heading, and in the link at the end of the page before it."""
    assert {path: TITLE.findall((DOCS / path).read_text("utf-8"))[0] for path in NAMES} == NAMES
    for page in sorted((DOCS / "tutorial").glob("*.md")):
        for text, target in NEXT.findall(page.read_text("utf-8")):
            path = Path(page.parent / target).resolve().relative_to(DOCS).as_posix()
            named = NAMES[path].lower().removeprefix("the ")
            assert text.replace("\n", " ").lower().removeprefix("the ") == named, page
