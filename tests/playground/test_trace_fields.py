"""The page's table of fields: each field of the schema has a row, and its last column is true."""

import copy
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from playground.check_trace import check
from playground.own_trace import own_trace
from playground.scenes import SCENES
from scripts.trace_fields import WITHOUT, fields, trace_fields
from tests.meta.trees import ROOT

ALL = {name: own_trace(settings) for name, settings in SCENES.items()}
ALL |= {
    path.stem: json.loads(path.read_text("utf-8"))
    for path in sorted((ROOT / "examples" / "traces").glob("*.json"))
    if path.stem != "nano-vllm-fork-tight"  # something falls there
}
CHECKED = {name: set(check(trace)["checked"]) for name, trace in ALL.items()}
NUMBER = re.compile(r"\bI\d+\b")
PARTLY = {
    "watermark_blocks": {"I18"},
    "max_num_seqs": {"I18"},
    "max_num_batched_tokens": {"I18"},
    "policy": {"I17"},
    "complete": {"I20"},
    "end.cpu_free": {"I9"},
    "steps.arrived": {"I20"},
    "steps.preempted": {"I17"},
    "steps.swap_in": {"I14", "I15"},
    "steps.swap_out": {"I14", "I15"},
    "steps.cpu_tables": {"I5", "I6", "I13", "I14"},
    "steps.cpu_refs": {"I1"},
    "steps.cpu_free": {"I2", "I3"},
    "steps.started": {"I5"},
}
"""Invariants that see less without a field, and are checked all the same."""
type Trace = dict[str, Any]


def boxes(value: Any, path: list[str]) -> Iterator[dict[str, Any]]:
    """The objects that have the field at the end of a path."""
    if isinstance(value, list):
        for one in value:
            yield from boxes(one, path)
    elif len(path) == 1:
        yield value
    elif path[0] in value:
        yield from boxes(value[path[0]], path[1:])


def without(trace: Trace, path: str) -> Trace:
    found = copy.deepcopy(trace)
    for box in boxes(found, path.split(".")):
        box.pop(path.split(".")[-1], None)
    return found


def test_each_field_is_described_and_has_a_row() -> None:
    rows = re.findall(r"^\| `([\w.]+)` \| (.+) \| (.+) \|$", trace_fields(), re.MULTILINE)
    assert [path for path, *_ in rows] == [one.path for one in fields()]
    assert all(says and lacking for _, says, lacking in rows)
    assert {one.path for one in fields() if not one.required} == set(WITHOUT)
    assert "{{ trace_fields }}" in (ROOT / "docs/tutorial/your-trace.md").read_text("utf-8")


@pytest.mark.parametrize("path", [one.path for one in fields() if one.required])
def test_a_trace_without_a_required_field_is_none(path: str) -> None:
    assert "lacks" in check(without(ALL["preemption"], path))["error"]


@pytest.mark.parametrize("path", WITHOUT)
def test_without_a_field_what_the_table_names_is_not_checked_or_falls(path: str) -> None:
    changed = set(PARTLY.get(path, ()))
    for name, trace in ALL.items():
        found = check(without(trace, path))
        if "error" in found:
            assert path in ("num_cpu_blocks", "steps.scheduled.request")
        else:
            changed |= CHECKED[name] - set(found["checked"])
            changed |= {one["invariant"] for one in found["fell"]}
    assert changed == set(NUMBER.findall(WITHOUT[path]))


def fell(trace: Trace) -> set[str]:
    return {one["invariant"] for one in check(trace)["fell"]}


LIMITS = {"watermark_blocks": 9, "max_num_seqs": 1, "max_num_batched_tokens": 1}


@pytest.mark.parametrize(("limit", "value"), LIMITS.items())
def test_each_limit_is_held_and_forgotten_with_its_field(limit: str, value: int) -> None:
    trace = {**ALL["crowd"], limit: value}
    assert "I18" in fell(trace) and "I18" not in fell(without(trace, limit))


def test_another_policy_lets_the_order_be() -> None:
    assert "I17" in check(without(ALL["crowd"], "policy"))["checked"]
    assert "I17" in check({**ALL["crowd"], "policy": "priority"})["not_checked"]


def test_a_cpu_s_lists_are_checked_where_they_are_told() -> None:
    trace = copy.deepcopy(ALL["preemption"])
    step = next(step for step in trace["steps"] if step["swap_out"])
    step["cpu_refs"][-1] += 1
    trace["end"]["cpu_free"].pop()
    assert {"I1", "I9"} <= fell(trace)
    assert "I1" not in fell(without(without(trace, "steps.cpu_refs"), "steps.cpu_free"))
    assert "I9" not in fell(without(trace, "end.cpu_free"))
