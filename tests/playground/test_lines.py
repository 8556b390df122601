"""The code that lights up: the lines are those that ran, the values those that they saw."""

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from playground import lines, session, statements
from playground.breaks import BREAKS
from playground.decisions import RULES
from playground.lines import lit, replaced
from playground.scenes import SCENES
from playground.statements import all_functions, function_of
from tests.playground.test_session import SETTINGS

LARGEST: dict[str, Any] = {
    "requests": [
        {"prompt": " ".join(f"w{i % 7}" for i in range(40)), "max_tokens": 24, "n": 4}
        for _ in range(6)
    ],
    "gpu_blocks": 40, "cpu_blocks": 40, "preemption": "swap", "prefix_caching": True,
}  # fmt: skip


def kinds(settings: dict[str, Any]) -> list[str]:
    return [one["kind"] for one in session.run(settings)["trace"]["moments"]]


def function(found: dict[str, Any], event: dict[str, Any]) -> dict[str, Any]:
    known: dict[str, Any] = found["functions"][found["calls"][event["call"]]["function"]]
    return known


def text(found: dict[str, Any], event: dict[str, Any]) -> str:
    """The lines of an event's statement, in one."""
    one = function(found, event)
    first, last = one["statements"][event["statement"]]
    return " ".join(line.strip() for number, line in one["lines"] if first <= number <= last)


@contextmanager
def watched() -> Iterator[Counter[tuple[str, str, int]]]:
    """Lines that run, as `sys.monitoring` counts them: by file, function and first line.

    Only from the functions on in which a step enters the oracle, as `lines` has it.
    """
    seen: Counter[tuple[str, str, int]] = Counter()
    depth = 0
    tool, events = sys.monitoring.COVERAGE_ID, sys.monitoring.events

    def enters(code: CodeType) -> bool:
        known = function_of(code)
        return known is not None and code.co_name in lines.ROOTS.get(known.file, ())

    def start(code: CodeType, _: int) -> None:
        nonlocal depth
        depth += enters(code)

    def end(code: CodeType, *_: Any) -> None:
        nonlocal depth
        depth -= enters(code)

    def line(code: CodeType, number: int) -> None:
        known = function_of(code)
        if depth > 0 and known is not None:
            place = known.at(number)
            if place is not None:
                seen[known.file, known.name, known.statements[place].first] += 1

    sys.monitoring.use_tool_id(tool, "lines")
    for event, callback in (
        (events.PY_START, start),
        (events.PY_RETURN, end),
        (events.PY_UNWIND, end),
        (events.LINE, line),
    ):
        sys.monitoring.register_callback(tool, event, callback)
    sys.monitoring.set_events(
        tool, events.PY_START | events.PY_RETURN | events.PY_UNWIND | events.LINE
    )
    try:
        yield seen
    finally:
        sys.monitoring.set_events(tool, 0)
        sys.monitoring.free_tool_id(tool)


def by_moment(settings: dict[str, Any]) -> list[set[tuple[str, str, int]]]:
    """The statements that ran before each moment, counted by `sys.monitoring`."""
    seen, found = session.seen(session.watched(settings)), []
    for _ in kinds(settings):
        with watched() as counts:
            next(seen)
        found.append(set(counts))
    return found


def lit_statements(found: dict[str, Any]) -> Counter[tuple[str, str, int]]:
    return Counter(
        (one["file"], one["name"], one["statements"][event["statement"]][0])
        for event in found["events"]
        for one in (function(found, event),)
    )


@pytest.mark.parametrize("name", ["crowd", "preemption", "beams", "guesses-crowd", "prefixes"])
def test_the_lines_that_are_lit_are_those_that_ran(name: str) -> None:
    for index, ran in enumerate(by_moment(dict(SCENES[name]))):
        found = lit({"settings": SCENES[name], "index": index})
        assert set(lit_statements(found)) == ran, index
        assert not found["cut"]


def test_a_loop_is_counted_as_often_as_it_ran() -> None:
    """Three requests of which two are admitted: the head of the loop runs three times."""
    prompts = ("a b c", "a b c", "a b c d e f g h")
    settings = {
        "requests": [{"prompt": prompt, "max_tokens": 1} for prompt in prompts],
        "gpu_blocks": 3,
        "watermark_percent": 0,
    }
    found = lit({"settings": settings, "index": kinds(settings).index("plan")})
    counts = Counter(
        text(found, event)
        for event in found["events"]
        if function(found, event)["name"] == "_admit_waiting"
    )
    assert counts["while state.waiting and _budget_left(state, output) > 0:"] == 3
    assert counts["state.start(group, output)"] == 2
    assert counts["return"] == 1
    [waits] = [one for one in found["decisions"] if one["says"] == "C waits"]
    decided = found["events"][waits["decided"]]
    assert decided["reads"]["fits"] == "False" and decided["reads"]["group"] == "C"


def test_a_long_statement_is_one_line_of_the_story() -> None:
    """`need = sum(...)` spans lines that Python enters again and again."""
    found = lit({"settings": SCENES["preemption"], "index": 5})
    runs = Counter(
        event["call"] for event in found["events"] if text(found, event).startswith("need = sum(")
    )
    assert set(runs.values()) == {2}  # A, then B


def test_values_are_what_the_line_read_and_set() -> None:
    index = kinds(dict(SCENES["preemption"])).index("moved") - 1
    found = lit({"settings": SCENES["preemption"], "index": index})
    [preempted] = [d for d in found["decisions"] if d["says"].startswith("B is preempted")]
    assert preempted["says"] == "B is preempted: no block is free for A"
    event = found["events"][preempted["decided"]]
    assert text(found, event) == "while need > state.blocks.num_free_gpu_blocks:"
    assert event["reads"] == {"need": "1", "state.blocks.num_free_gpu_blocks": "0"}
    sets = {
        name: value
        for one in found["events"]
        if one["call"] == event["call"]
        for name, value in one["sets"].items()
    }
    assert sets["need"] == "1" and sets["chunks"] == "[(A, 1)]" and sets["position"] == "1"
    again = [
        one["reads"]["state.blocks.num_free_gpu_blocks"]
        for one in found["events"]
        if one["call"] == event["call"] and text(found, one).startswith("while need >")
    ]
    assert again == ["0", "3"]  # B's blocks are free


def test_each_moment_of_a_step_has_its_own_functions() -> None:
    there = kinds(dict(SCENES["preemption"]))
    at = there.index("moved")
    assert there[at - 1 : at + 3] == ["plan", "moved", "written", "drawn"]
    names = [
        {one["name"] for one in lit({"settings": SCENES["preemption"], "index": i})["functions"]}
        for i in range(at - 1, at + 3)
    ]
    assert {"Scheduler.schedule", "SchedulerState.preempt", "BlockManager.swap_out"} <= names[0]
    assert names[1] == {"WordMemory.begin_step", "_move"}
    assert names[2] == {"Run.write", "ScheduledSequence.token_ids"}
    assert "Scheduler.update" in names[3] and not names[3] & names[0] - {"SchedulerState.attach"}


def test_every_rule_of_a_decision_is_a_statement_of_the_oracle() -> None:
    for rule in RULES:
        [one] = [known for known in all_functions() if known.name == rule.function]
        for start in (rule.happened, rule.decided):
            found = [
                s
                for s in one.statements
                if (s.text == start if start == "return" else s.text.startswith(start))
            ]
            assert len(found) == 1, (rule, start)


@pytest.mark.slow
def test_decisions_of_all_kinds_are_found() -> None:
    """Each rule is seen in one of these, and says it with names."""
    sosp = {**SCENES["preemption"], "scheduling": "sosp"}
    recompute = {**SCENES["crowd"], "gpu_blocks": 6, "scheduling": "sosp-mixed"}
    forgets = {**session.faults()["cache remembers overwritten blocks"]["example"], "breaks": []}
    seen: set[str] = set()
    for settings in (*SCENES.values(), sosp, recompute, forgets):
        for index in range(len(kinds(dict(settings)))):
            found = lit({"settings": settings, "index": index})
            for one in found["decisions"]:
                happened = found["events"][one["happened"]]
                assert "?" not in one["says"] and one["decided"] < one["happened"]
                assert happened["call"] == found["events"][one["decided"]]["call"]
                name = function(found, happened)["name"]
                start = text(found, happened).replace('"', "'")[:8]
                seen |= {
                    f"{rule.function} {rule.happened}"
                    for rule in RULES
                    if rule.function == name and rule.happened.startswith(start)
                }
    assert {f"{rule.function} {rule.happened}" for rule in RULES} - seen == set()


@pytest.mark.parametrize("name", BREAKS)
def test_a_fault_shows_its_own_line_and_the_rule_that_it_skips(name: str) -> None:
    example = session.faults()[name]["example"]
    there = kinds(example)
    found = [lit({"settings": example, "index": index}) for index in range(there.index("fell") + 1)]
    planted = {
        one["name"]: one.get("instead")
        for moment in found
        for one in moment["functions"]
        if one["file"] == statements.PLANTED
    }
    skipped = {one["name"] for one in planted.values() if one}
    assert skipped == SKIPS[name]
    if name == "no watermark":
        values = [e["reads"].get("blocks.watermark_blocks") for m in found for e in m["events"]]
        assert "0" in values and not {"1", "2"} & set(filter(None, values))
    elif name == "no admission rule":
        counts = sum((lit_texts(moment) for moment in found), Counter())
        assert counts["if self.config.admission_rule:"] > 0
        assert not [one for one in counts if one.startswith("group.part_size = check_admission")]
    else:
        assert planted


SKIPS: dict[str, set[str]] = {name: set() for name in BREAKS} | {
    "fork without counting": {"BlockManager.fork"},
    "no copy on write": {"BlockManager._copy_on_write"},
    "cache remembers overwritten blocks": {"BlockManager._take_gpu_block"},
    "a trim forgotten": {"BlockManager.trim"},
}
"""The functions in whose place a fault runs. Others run around one, or change a setting."""


def lit_texts(found: dict[str, Any]) -> Counter[str]:
    return Counter(text(found, event) for event in found["events"])


def test_what_a_fault_replaces_does_not_run() -> None:
    for name in BREAKS:
        example = session.faults()[name]["example"]
        rules = {one.name for one in replaced([name]).values()}
        for index in range(len(kinds(example))):
            ran = {one["name"] for one in lit({"settings": example, "index": index})["functions"]}
            assert not rules & ran


@given(SETTINGS, st.data())
def test_looking_at_the_lines_changes_nothing(
    settings: dict[str, Any], data: st.DataObject
) -> None:
    """The moments are those of a run that nobody traces, and what is found is JSON."""
    plain = session.run(settings)
    if "error" in plain:
        assert "error" in lit({"settings": settings, "index": 0})
        return
    moments = plain["trace"]["moments"]
    if not moments:
        return
    index = data.draw(st.integers(0, len(moments) - 1))
    found = lit({"settings": settings, "index": index})
    json.dumps(found)
    assert session.run(settings) == plain
    assert not found["cut"]
    for event in found["events"]:
        for value in (*event["reads"].values(), *event["sets"].values()):
            assert 0 < len(value) <= 70
            assert not re.search(r"object at 0x", value)


def test_what_is_kept_of_the_largest_scene_is_bounded() -> None:
    last = len(kinds(LARGEST)) - 1
    found = lit({"settings": LARGEST, "index": last // 2})
    assert len(found["events"]) <= lines.MOST
    assert len(json.dumps(found)) < 700_000


def test_more_than_is_kept_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "MOST", 20)
    found = lit({"settings": SCENES["crowd"], "index": 1})
    assert found["cut"] and len(found["events"]) == 20


def test_what_cannot_be_run_is_said() -> None:
    assert lit({"settings": {"gpu_blocks": 0}, "index": 0})["error"].startswith("gpu_blocks must")
    assert lit({"settings": SCENES["crowd"], "index": 999})["error"].startswith(
        "there is no moment"
    )


def test_functions_are_those_of_the_files() -> None:
    for one in all_functions():
        source = Path(one.file).read_text("utf-8").splitlines()
        for number, line in one.shown:
            assert source[number - 1] == line
        if one.name != "Run.__init__":  # which says what its attributes are
            assert '"""' not in "".join(line for _, line in one.shown)
