"""Names of this engine's functions, settings and metrics in pages that compare it with vLLM."""

import argparse
import ast
import inspect
import json
import re
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import pallas_kernels
from jax_engine import BeamSearchParams, SamplingParams
from jax_engine.commands import serve_flags
from jax_engine.config.engine_args import EngineArgs
from jax_engine.config.engine_config import EngineConfig
from jax_engine.config.speculative_config import SpeculativeConfig
from jax_engine.core.scheduler_state import LOG_EVERY
from jax_engine.engine.stats import (
    EngineStats,
    RequestRecorder,
    cache_config_info,
    lora_requests_info,
)
from jax_engine.kv_store.folder_store import StoreStats
from jax_engine.operations.device import Device
from jax_engine.serving import stat_loggers
from jax_engine.serving.api import server
from jax_engine.serving.api.sampling_fields import SamplingRequest
from tests.golden import make_vllm_names
from tests.meta.trees import ROOT

TUTORIAL = ROOT / "docs" / "tutorial"
BOX = "## In the paper, in vLLM, here\n"
NAME = re.compile(r"`([a-z][\w:]*)`")


@cache
def defined() -> frozenset[str]:
    """The functions, classes and methods of the engine, methods as `Class.method`."""
    found = set()
    for path in (ROOT / "jax_engine").rglob("*.py"):
        for node in ast.parse(path.read_text("utf-8")).body:
            found |= {name for name in names(node)}
    return frozenset(found)


def names(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        yield node.name
    if isinstance(node, ast.ClassDef):
        for one in node.body:
            if isinstance(one, ast.FunctionDef):
                yield f"{node.name}.{one.name}"


def last_column(page: str) -> list[str]:
    """What stands in code in the last cell of each row of the page's tables."""
    rows = re.findall(r"^\|.*\| (.*) \|$", (TUTORIAL / page).read_text("utf-8"), re.MULTILINE)
    return [name for row in rows for name in re.findall(r"`([\w.]+)`", row)]


def test_functions_of_the_walk_down_exist() -> None:
    found = set(last_column("from-generate-down.md"))
    assert len(found) > 15
    assert found - defined() == set()


def table_of_symptoms() -> list[list[str]]:
    """Symptom, cause, settings and metrics of each row."""
    page = (TUTORIAL / "symptoms.md").read_text("utf-8").partition("## The table")[2]
    lines = page.split("\n\n")[1].splitlines()
    rows = [line.strip("|").strip().split(" | ") for line in lines]
    assert all(len(row) == 4 for row in rows[2:])
    return rows[2:]


def settings() -> set[str]:
    """Settings of the engine, of a request and of speculation; and the server's flags."""
    parser = argparse.ArgumentParser(conflict_handler="resolve")
    serve_flags.add_arguments(parser)
    flags = {flag for action in parser._actions for flag in action.option_strings}
    classes = EngineArgs, SamplingParams, SpeculativeConfig
    return flags | {one.name for cls in classes for one in fields(cls)}


def metrics() -> set[str]:
    """Names that `LLM.get_metrics` and the server give, without their prefix."""
    ones: dict[str, Any] = {one.name: 1 for one in fields(EngineStats)}
    nothing = EngineStats(**ones | {"kv_cache_dir": StoreStats()})
    found = [
        *RequestRecorder(num_speculative_tokens=1).metrics(nothing, "model"),
        cache_config_info(EngineConfig(), num_gpu_blocks=1, max_model_len=1),
        lora_requests_info(1, [], 0.0),
    ]
    loggers = inspect.getsource(stat_loggers)
    ours = re.findall(r'"(num_\w+)"', loggers)
    return {
        *(one.name.removeprefix("vllm:") for one in found),
        *re.findall(r'"vllm:(\w+)"', loggers),
        *(f"jax_engine:{name}" for name in ours),
    }


def test_settings_and_metrics_of_the_symptoms_exist() -> None:
    rows = table_of_symptoms()
    assert len(rows) > 15
    named = {name for row in rows for name in re.findall(r"`(-{0,2}[a-z][a-z_-]+)`", row[2])}
    assert len(named) > 20 and named - settings() == set()
    watched = {name for row in rows for name in re.findall(r"`([a-z_]+)`", row[3])}
    assert len(watched) > 12 and watched - metrics() == {"finished_reason"}
    theirs = json.loads(make_vllm_names.NAMES.read_text("utf-8"))["0.33.0"]
    own = {name for row in rows for name in re.findall(r"`([a-z_-]+)` †", row[2])}
    assert named - set(theirs["settings"]) == own
    assert own == {"warmup", "--max-waiting", "cudagraph_mode", "batch_invariant"}
    assert watched - set(theirs["metrics"]) == {"finished_reason"}


def test_the_order_of_symptoms_has_the_settings_of_its_row() -> None:
    """What to try when requests are preempted, the first thing first."""
    page = (TUTORIAL / "symptoms.md").read_text("utf-8").partition("| in this order |")[2]
    tried = re.findall(r"^\| \d\. [^`|]*`(\w+)`", page.partition("\n\n")[0], re.MULTILINE)
    (row,) = (row for row in table_of_symptoms() if "preempted" in row[0])
    assert tried == NAME.findall(row[2]) and len(tried) == 4


def test_settings_of_old_vllm_are_what_the_new_one_lacks() -> None:
    """The table of using.md: all that went or moved, and what this engine takes in its place."""
    page = (
        (ROOT / "docs" / "using.md").read_text("utf-8").partition("### Settings of vLLM 0.2.0")[2]
    )
    rows = re.findall(r"^\| `(\w+)` \| (.*) \| (.*) \|$", page.partition("\n## ")[0], re.MULTILINE)
    names = json.loads(make_vllm_names.NAMES.read_text("utf-8"))
    old, new = set(names["0.2.0"]["settings"]), set(names["0.33.0"]["settings"])
    assert {name for name, _, _ in rows} == old - new | {"length_penalty"}
    for name, there, here in rows:
        moved = name == "length_penalty"  # to BeamSearchParams, which is in the same file
        assert there.startswith("Moved" if moved else "Gone") and (name in new) == moved
        assert set(NAME.findall(there)) <= new
        flags = set(re.findall(r"`(--[\w-]+)`", here))
        assert set(NAME.findall(here)) | flags <= settings()
        assert ("an error, too" in here) == (name not in settings() and not flags)
        assert ("in a request" in here) == (name in SamplingRequest.model_fields)
    kept = old - {name for name, _, _ in rows}
    assert kept <= settings() | {"model"} and BeamSearchParams(2, length_penalty=2.0)


def test_the_log_warns_of_the_preemptions_that_symptoms_names() -> None:
    page = (TUTORIAL / "symptoms.md").read_text("utf-8")
    (shown,) = re.findall(r"\(preemption (\d+)\)", page)
    assert int(shown) == LOG_EVERY + 1 and f"the {2 * LOG_EVERY + 1}st" in page


BOXES = [path for path in sorted(TUTORIAL.glob("*.md")) if BOX in path.read_text("utf-8")]


def rows_of_box(page: Path) -> dict[str, tuple[set[str], set[str]]]:
    """Settings and metrics of each row: the paper, vLLM 0.2.0, vLLM V1, here."""
    box = page.read_text("utf-8").partition(BOX)[2].partition("\n!!! ")[0]
    rows = re.findall(r"^\| ([^|]+) \| [^|]+ \| ([^|]+) \| ([^|]+) \|$", box, re.MULTILINE)
    return {
        who.partition(",")[0]: (set(NAME.findall(given)), set(NAME.findall(seen)))
        for who, given, seen in rows
    }


def test_each_mechanism_has_its_box() -> None:
    assert [path.stem for path in BOXES] == [
        "adapters",
        "attention",
        "beside-orca",
        "block-manager",
        "chunked-prefill",
        "equal-bits",
        "jax-engine",
        "kernel-ladder",
        "model-families",
        "prefix-caching",
        "processes",
        "quantised-weights",
        "radix-tree",
        "sampling",
        "scheduler",
        "serving",
        "several-devices",
        "sharing",
        "speculation",
        "swap-or-recompute",
        "vectorised-sampler",
        "virtual-memory",
        "why-cache",
        "why-memory",
    ]


@pytest.mark.parametrize("page", BOXES, ids=lambda path: path.stem)
def test_names_in_boxes_are_those_of_each_engine(page: Path) -> None:
    """vLLM's are what its own sources name: `tests/golden/make_vllm_names.py`."""
    rows = rows_of_box(page)
    assert list(rows) == ["paper", "vLLM 0.2.0", "vLLM V1", "here"]
    theirs = json.loads(make_vllm_names.NAMES.read_text("utf-8"))
    for who, version in (("vLLM 0.2.0", "0.2.0"), ("vLLM V1", "0.33.0")):
        given, seen = rows[who]
        assert given - set(theirs[version]["settings"]) == set()
        assert seen - set(theirs[version]["metrics"]) == set()
    given, seen = rows["here"]
    assert given - settings() == set() and seen - metrics() == set()


def test_a_server_without_an_engine_says_so_for_as_long_as_pages_say() -> None:
    assert server.LAST_WORDS_S == 3
    for page in (TUTORIAL / "processes.md", ROOT / "docs" / "serving.md"):
        assert "say so for 3 seconds" in page.read_text("utf-8").replace("says so", "say so")


def test_no_asynchronous_engine_has_the_blog_s_method() -> None:
    """processes.md and slides.md say so, and what there is in its place."""
    for version in json.loads(make_vllm_names.NAMES.read_text("utf-8")).values():
        methods = set(version["asynchronous"])
        assert "infer" not in methods and {"generate", "abort"} <= methods


def test_the_three_fused_kernels_are_operations_of_each_engine() -> None:
    """The table of kernel-ladder.md: a row for each, the last three columns name code."""
    page = (TUTORIAL / "kernel-ladder.md").read_text("utf-8").partition("## Three fused kernels")[2]
    rows = [line.strip("| ").split(" | ") for line in page.split("\n\n")[2].splitlines()[2:]]
    theirs = json.loads(make_vllm_names.NAMES.read_text("utf-8"))
    old, new, ours = ([NAME.findall(row[column]) for row in rows] for column in (3, 4, 5))
    assert [len(one) for one in (*old, *ours)] == [1] * 6
    assert {name for (name,) in old} < {*theirs["0.2.0"]["operations"]}
    assert new == [["reshape_and_cache_flash"], [], []]
    assert "reshape_and_cache_flash" in theirs["0.33.0"]["operations"]
    assert "copy_blocks" not in theirs["0.33.0"]["operations"]
    assert all(hasattr(pallas_kernels, name) for (name,) in ours)


def test_the_share_of_the_memory_is_each_engine_s() -> None:
    """In the box of why-memory.md, and in why-cache.md."""
    theirs = json.loads(make_vllm_names.NAMES.read_text("utf-8"))
    box = (TUTORIAL / "why-memory.md").read_text("utf-8").partition(BOX)[2]
    for who, share in (
        ("vLLM 0.2.0", theirs["0.2.0"]["gpu_memory_utilization"]),
        ("vLLM V1", theirs["0.33.0"]["gpu_memory_utilization"]),
        ("here", Device._field_defaults["memory_share"]),
    ):
        (row,) = (line for line in box.splitlines() if line.startswith(f"| {who} |"))
        assert re.search(rf"\b{share}\b", row), who
    page = (TUTORIAL / "why-cache.md").read_text("utf-8")
    assert f"vLLM V1 takes {100 * theirs['0.33.0']['gpu_memory_utilization']:.0f} %" in page
