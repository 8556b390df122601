"""The glossary: its names are in vLLM's source and in this code; its links lead to sections."""

import json
import re
from functools import cache
from pathlib import Path

import pytest

from tests.golden import make_vllm_names
from tests.meta.trees import ROOT
from tests.support.glossary import PAGE, Term, identifiers, terms

TERMS = terms()
ASKED = (
    "block, block table, slot mapping, KV cache, prefill, decode, chunked prefill, preemption, "
    "recompute, swap, watermark, sequence group, beam, prefix caching, num_scheduled_tokens, "
    "num_computed_tokens, executor, worker, model runner, TTFT, TPOT, ITL, goodput, "
    "speculative decoding, draft, LoRA slot, tensor parallel, pipeline parallel, data parallel, "
    "batch invariance"
)
HEADING = re.compile(r"^#+ +(.+?)(?: +\{#([\w-]+)\})?$", re.MULTILINE)
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


@cache
def here() -> frozenset[str]:
    """All that reference/ and jax_engine/ define."""
    files = [path for name in ("reference", "jax_engine") for path in (ROOT / name).rglob("*.py")]
    return frozenset(name for path in files for name in identifiers(path.read_text("utf-8")))


@cache
def own_metrics() -> frozenset[str]:
    """By the names that a server gives them."""
    from tests.docs.test_names_in_pages import metrics

    return frozenset(name if ":" in name else f"vllm:{name}" for name in metrics())


def anchors(page: Path) -> set[str]:
    """As MkDocs makes them of headings."""
    found = HEADING.findall(FENCED.sub("", page.read_text("utf-8")))
    slugs = (re.sub(r"[^\w\s-]", "", title).strip().lower() for title, _ in found)
    return {re.sub(r"[-\s]+", "-", slug) for slug in slugs} | {given for _, given in found}


def test_the_words_are_there() -> None:
    names = [one.term for one in TERMS]
    assert len(names) == len(set(names)) >= 60
    assert set(ASKED.split(", ")) <= set(names)
    rows = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| ")]
    heads = sum(line.startswith("| term |") for line in rows)
    assert len(TERMS) == len(rows) - heads


@pytest.mark.parametrize("one", TERMS, ids=lambda one: one.term)
@pytest.mark.slow
def test_a_term_is_one_sentence_with_names_that_are_there(one: Term) -> None:
    assert re.fullmatch(r"[A-Z][^.]*(?:\.\w[^.]*)*\.", one.meaning)
    theirs = json.loads(make_vllm_names.NAMES.read_text("utf-8"))
    metrics = {name for name in one.vllm if name.startswith("vllm:")}
    assert {name.removeprefix("vllm:") for name in metrics} <= set(theirs["0.33.0"]["metrics"])
    assert set(one.vllm) - metrics <= set(theirs["0.33.0"]["defined"])
    assert set(one.old) <= set(theirs["0.2.0"]["defined"])
    ours = {name for name in one.here if ":" in name}
    assert ours <= own_metrics()
    assert set(one.here) - ours <= here()


@pytest.mark.parametrize("one", TERMS, ids=lambda one: one.term)
def test_the_link_leads_to_a_section(one: Term) -> None:
    path, _, anchor = one.link.partition("#")
    page = (PAGE.parent / path).resolve()
    assert anchor in anchors(page)


def test_the_makers_of_names_find_what_is_defined() -> None:
    files = {"vllm/a.py": "class A:\n    size: int = 1", "vllm/b.py": "def size(given): ..."}
    found = make_vllm_names.defined(files, {"A", "size", "given", "none"})
    assert found == {"A": "vllm/a.py", "size": "vllm/a.py", "given": "vllm/b.py"}
