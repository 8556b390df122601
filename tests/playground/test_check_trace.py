"""Any engine's trace: the oracle's pass, and what is changed is refused by its invariant."""

import copy
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from playground import check_trace
from playground.check_trace import SCHEMA, check
from playground.own_trace import own_trace
from playground.scenes import SCENES
from playground.schema import KNOWN, problems
from playground.settings import SettingError
from playground.trace_checks import NEVER, SENTENCES, section
from tests.meta.trees import ROOT
from tests.playground.test_session import BACK_ONE_BY_ONE, SETTINGS
from tests.support.patience import HANG_S

TRACES = ROOT / "examples" / "traces"
ALL = {name: own_trace(settings) for name, settings in SCENES.items()}
type Trace = dict[str, Any]


def fell(trace: Trace) -> dict[str, int]:
    """What fell, and in which step."""
    found = check(trace)
    assert "error" not in found, found
    return {one["invariant"]: one["step"] for one in found["fell"]}


# --- what holds ------------------------------------------------------------------------------


@example(BACK_ONE_BY_ONE)
@given(SETTINGS)
def test_traces_of_the_oracle_pass(settings: dict[str, Any]) -> None:
    try:
        trace = own_trace(settings)
    except SettingError:
        return
    jsonschema.validate(trace, json.loads(SCHEMA.read_text("utf-8")))
    assert fell(json.loads(json.dumps(trace))) == {}


def test_between_them_the_scenes_show_all_that_a_trace_can() -> None:
    checked = {name for trace in ALL.values() for name in check(trace)["checked"]}
    assert checked == set(SENTENCES) - set(NEVER)


def test_the_sentences_are_those_of_the_page() -> None:
    page = (ROOT / "docs" / "correctness.md").read_text("utf-8")
    invariants = page[page.index("## Invariants") : page.index("### What exercised them")]
    rows = dict(re.findall(r"^\| (I\d+) \| (.+) \|$", invariants, re.MULTILINE))
    for name, sentence in SENTENCES.items():
        assert sentence == rows[name]
        before = page[: page.index(f"| {name} | {sentence}")]
        heading = re.findall(r"^### (.+)$", before, re.MULTILINE)[-1]
        assert section(name) == re.sub(r"[^a-z]+", "-", heading.lower())


# --- what falls ------------------------------------------------------------------------------


def counts_one_more(trace: Trace, at: int) -> None:
    trace["steps"][at]["refs"][held(trace, at)] += 1


def held(trace: Trace, at: int) -> int:
    """A block that somebody holds in this step."""
    return int(next(iter(trace["steps"][at]["tables"].values()))[-1])


def frees_a_held_block(trace: Trace, at: int) -> None:
    trace["steps"][at]["free"].append(held(trace, at))


def loses_a_free_block(trace: Trace, at: int) -> None:
    trace["steps"][at]["free"].pop()


def counts_one_more_on_the_cpu(trace: Trace, at: int) -> None:
    trace["steps"][at]["cpu_refs"][-1] += 1


def frees_a_held_cpu_block(trace: Trace, at: int) -> None:
    trace["steps"][at]["cpu_free"].append(next(iter(trace["steps"][at]["cpu_tables"].values()))[0])


def loses_a_free_cpu_block(trace: Trace, at: int) -> None:
    trace["steps"][at]["cpu_free"].pop()


def has_a_block_twice(trace: Trace, at: int) -> None:
    table = next(table for table in trace["steps"][at]["tables"].values() if len(table) > 1)
    table[0] = table[1]


def shares_by_mistake(trace: Trace, at: int) -> None:
    """Two requests, one block."""
    one, other = list(trace["steps"][at]["tables"].values())[:2]
    other[-1] = one[-1]


def keeps_the_table_of_who_waits(trace: Trace, at: int) -> None:
    queues = trace["steps"][at]["queues"]
    queues["waiting"].append(queues["running"].pop())


def takes_one_block_more(trace: Trace, at: int) -> None:
    step = trace["steps"][at]
    next(iter(step["tables"].values())).append(step["free"][0])


def is_in_two_queues(trace: Trace, at: int) -> None:
    queues = trace["steps"][at]["queues"]
    queues["waiting"].append(queues["running"][0])


def computes_too_much(trace: Trace, at: int) -> None:
    trace["max_num_batched_tokens"] = 1


def says_it_is_over(trace: Trace, at: int) -> None:
    """A starved request: the trace ends before it does."""
    trace["steps"] = trace["steps"][: at + 1]
    trace.pop("end", None)


def does_nothing(trace: Trace, at: int) -> None:
    step = trace["steps"][at]
    step.update(scheduled=[], preempted=[], swap_in=[], drawn={}, finished=[])


def ends_with_a_leak(trace: Trace, at: int) -> None:
    trace["end"]["free"].pop()


def loses_a_copy(trace: Trace, at: int) -> None:
    trace["steps"][at]["copies"] = []


def copies_to_nobody(trace: Trace, at: int) -> None:
    trace["steps"][at]["copies"][0][1] = trace["steps"][at]["free"][0]


def loses_a_swap(trace: Trace, at: int) -> None:
    trace["steps"][at]["swap_out"] = trace["steps"][at]["swap_out"][1:]


def swaps_crosswise(trace: Trace, at: int) -> None:
    [table] = trace["steps"][at]["cpu_tables"].values()
    table[0], table[1] = table[1], table[0]


def swaps_both_ways(trace: Trace, at: int) -> None:
    trace["steps"][at]["swap_in"] = [[0, held(trace, at)]]


def forgets_a_token(trace: Trace, at: int) -> None:
    """A request that comes back from a preemption has lost a token."""
    step = trace["steps"][at]
    back = step["queues"]["running"][-1]
    for entry in step["scheduled"]:
        if entry["request"] == back:
            entry["known"] -= 1


def writes_into_a_shared_block(trace: Trace, at: int) -> None:
    """The first of two samples has no copy of its own."""
    step = trace["steps"][at]
    old, new = step["copies"].pop(0)
    for table in step["tables"].values():
        table[:] = [old if block == new else block for block in table]


def preempts_the_first(trace: Trace, at: int) -> None:
    """A and B change places in the step before."""
    trace["steps"][at - 1]["queues"]["running"].reverse()


def overtakes(trace: Trace, at: int) -> None:
    """C is admitted before A, which has come with it."""
    step = trace["steps"][at]
    step["arrived"] = ["A", "B"]
    step["queues"] = {"waiting": ["A"], "running": ["B"], "swapped": []}


def first(name: str) -> Callable[[Trace], int]:
    """The first step in which a field is not empty."""
    return lambda trace: next(i for i, step in enumerate(trace["steps"]) if step[name])


def back(trace: Trace) -> int:
    """Where a request that was preempted by recompute is computed again."""
    gone: set[str] = set()
    for at, step in enumerate(trace["steps"]):
        if gone & {entry["request"] for entry in step["scheduled"]}:
            return at
        gone |= set(step["preempted"])
    raise AssertionError("nobody comes back")


def middle(trace: Trace) -> int:
    return len(trace["steps"]) // 3


def at_first(trace: Trace) -> int:
    return 0


CASES = [
    ("I1", "crowd", middle, counts_one_more),
    ("I2", "crowd", middle, frees_a_held_block),
    ("I2", "crowd", at_first, loses_a_free_block),
    ("I3", "crowd", at_first, loses_a_free_block),
    ("I1", "preemption", first("swap_out"), counts_one_more_on_the_cpu),
    ("I2", "preemption", first("swap_out"), frees_a_held_cpu_block),
    ("I3", "preemption", at_first, loses_a_free_cpu_block),
    ("I4", "crowd", middle, has_a_block_twice),
    ("I5", "crowd", middle, keeps_the_table_of_who_waits),
    ("I6", "blocks", at_first, takes_one_block_more),
    ("I9", "crowd", middle, ends_with_a_leak),
    ("I10", "crowd", at_first, shares_by_mistake),
    ("I10", "sharing", first("copies"), writes_into_a_shared_block),
    ("I11", "sharing", first("copies"), copies_to_nobody),
    ("I13", "sharing", first("copies"), loses_a_copy),
    ("I13", "preemption", first("swap_out"), loses_a_swap),
    ("I14", "preemption", first("swap_out"), swaps_crosswise),
    ("I15", "preemption", first("swap_out"), swaps_both_ways),
    ("I16", "crowd", middle, is_in_two_queues),
    ("I17", "crowd", at_first, overtakes),
    ("I17", "preemption", first("swap_out"), preempts_the_first),
    ("I18", "crowd", middle, computes_too_much),
    ("I19", "crowd", back, forgets_a_token),
    ("I20", "crowd", middle, does_nothing),
    ("I20", "crowd", middle, says_it_is_over),
]


@pytest.mark.parametrize(("name", "scene", "where", "change"), CASES)
def test_a_fault_in_a_trace_falls_by_its_name(
    name: str, scene: str, where: Callable[[Trace], int], change: Callable[[Trace, int], None]
) -> None:
    trace = copy.deepcopy(ALL[scene])
    at = where(trace)
    change(trace, at)
    found = fell(trace)
    last = name == "I9" or change is says_it_is_over
    step = 1 if change is computes_too_much else len(trace["steps"]) if last else at + 1
    assert found.get(name) == step, found
    assert min(found.values()) == step  # nothing fell before


def test_every_invariant_that_can_fall_has_a_fault() -> None:
    """I12 has one of its own below."""
    assert {name for name, *_ in CASES} | {"I12"} == set(SENTENCES) - set(NEVER)


def test_i12_siblings_share_what_they_have_in_common() -> None:
    def both(at: int) -> list[dict[str, Any]]:
        return [{"seq": name, "start": at, "tokens": 1} for name in ("A", "A2")]

    steps = [
        {
            "arrived": ["A"],
            "scheduled": [{"seq": "A", "start": 0, "tokens": 3}],
            "tables": {"A": [0, 1]},
            "forked": {"A2": "A"},
            "drawn": {"A": [4], "A2": [5]},
        },
        {
            "scheduled": both(3),
            "tables": {"A": [0, 1], "A2": [0, 2]},
            "copies": [[1, 2]],
            "drawn": {"A": [6], "A2": [7]},
        },
        {"scheduled": both(4), "tables": {"A": [0, 1, 2], "A2": [0, 1, 3]}},
    ]
    trace: Trace = {
        "engine": {"name": "by hand", "version": "1"},
        "block_size": 2,
        "num_gpu_blocks": 4,
        "requests": [{"id": "A", "prompt": [1, 2, 3]}],
        "steps": steps,
    }
    assert fell(trace)["I12"] == 3


def one_block(queues: dict[str, list[str]], holder: str) -> dict[str, int]:
    """What falls where somebody holds a block and nothing is computed."""
    step = {"arrived": ["B"], "scheduled": [], "tables": {holder: [0]}, "queues": queues}
    return fell(
        {
            "engine": {"name": "by hand", "version": "1"},
            "block_size": 2,
            "num_gpu_blocks": 2,
            "requests": [{"id": "B", "prompt": [1, 2]}],
            "steps": [step],
        }
    )


def test_a_request_that_was_never_scheduled_may_hold_blocks_while_it_runs() -> None:
    """A step that computes nothing is a fault; the table of a running request is none."""
    running: dict[str, list[str]] = {"waiting": [], "running": ["B"]}
    assert one_block(running, "B") == {"I20": 1}
    assert "I5" in one_block({"waiting": ["B"], "running": []}, "B")
    assert "I5" in one_block(running, "B2")


def test_a_table_of_nobody_is_named_by_what_never_happened() -> None:
    trace = copy.deepcopy(ALL["crowd"])
    trace["steps"][0]["tables"]["nobody"] = [trace["steps"][0]["free"][0]]
    [i5] = [one for one in check(trace)["fell"] if one["invariant"] == "I5"]
    assert i5["says"] == "nobody has a table, and was never scheduled, forked or started"


def test_leaks_at_the_end_are_checked_only_where_the_last_free_list_is_told() -> None:
    trace = copy.deepcopy(ALL["crowd"])
    del trace["end"]["free"]
    assert "I9" in check(trace)["not_checked"]


@given(st.sampled_from(sorted(ALL)), st.data())
def test_a_count_that_is_off_is_found_wherever_it_is(scene: str, data: st.DataObject) -> None:
    trace = copy.deepcopy(ALL[scene])
    at = data.draw(st.integers(0, len(trace["steps"]) - 1))
    block = data.draw(st.integers(0, trace["num_gpu_blocks"] - 1))
    by = data.draw(st.sampled_from((1, 2)))
    trace["steps"][at]["refs"][block] += by
    found = check(trace)["fell"]
    assert (found[0]["invariant"], found[0]["step"]) == ("I1", at + 1)
    assert f"block {block} counts" in found[0]["says"]


@given(st.sampled_from(sorted(ALL)), st.data())
def test_an_entry_of_a_table_that_is_another_is_found(scene: str, data: st.DataObject) -> None:
    """Whatever block it names: counts, free list or content disagree."""
    trace = copy.deepcopy(ALL[scene])
    at = data.draw(st.integers(0, len(trace["steps"]) - 1))
    tables = trace["steps"][at]["tables"]
    assume(tables)
    table = tables[data.draw(st.sampled_from(sorted(tables)))]
    logical = data.draw(st.integers(0, len(table) - 1))
    block = data.draw(st.integers(0, trace["num_gpu_blocks"] - 1))
    assume(block != table[logical])
    table[logical] = block
    found = fell(trace)
    assert min(found.values()) == at + 1 and {"I1", "I4"} & set(found)


@given(st.sampled_from(sorted(ALL)), st.data())
def test_a_trace_without_a_field_says_what_it_cannot_show(scene: str, data: st.DataObject) -> None:
    trace = copy.deepcopy(ALL[scene])
    field = data.draw(st.sampled_from(("refs", "free", "queues")))
    for step in trace["steps"]:
        del step[field]
    found = check(trace)
    words = {"refs": "reference counts", "free": "free list", "queues": "queues"}[field]
    lacking = {"refs": {"I1"}, "free": {"I2", "I3"}, "queues": {"I5", "I16", "I17"}}[field]
    assert found["fell"] == []
    for name in lacking:
        assert found["not_checked"][name] == f"no {words} in the trace"
    assert not lacking & set(found["checked"])


# --- the format ------------------------------------------------------------------------------


def test_the_validator_of_the_page_knows_all_words_of_the_schema() -> None:
    def words(schema: Any) -> set[str]:
        found = set(schema)
        for name in ("properties", "$defs"):
            for one in schema.get(name, {}).values():
                found |= words(one)
        for name in ("items", "additionalProperties"):
            if isinstance(schema.get(name), dict):
                found |= words(schema[name])
        return found

    schema = json.loads(SCHEMA.read_text("utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    assert words(schema) <= KNOWN


VALUES: Any = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 5000) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=4,
)


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [at]
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, one in items:
        found += places(one, (*at, key))
    return found


@given(st.sampled_from(("sharing", "preemption", "copying")), st.data())
def test_the_validator_of_the_page_agrees_with_jsonschema(scene: str, data: st.DataObject) -> None:
    trace = copy.deepcopy({**ALL[scene], "steps": ALL[scene]["steps"][:2]})
    schema = json.loads(SCHEMA.read_text("utf-8"))
    for _ in range(data.draw(st.integers(0, 3))):
        *above, last = data.draw(st.sampled_from([p for p in places(trace) if p]))
        inside: Any = trace
        for key in above:
            inside = inside[key]
        what = data.draw(st.sampled_from(("drop", "replace", "add")))
        if what == "drop":
            del inside[last]
        elif what == "replace":
            inside[last] = data.draw(VALUES)
        elif isinstance(inside, dict):
            inside[data.draw(st.text(max_size=3))] = data.draw(VALUES)
    valid = jsonschema.Draft202012Validator(schema).is_valid(trace)
    assert (not list(problems(trace, schema))) == valid


@given(VALUES)
def test_whatever_is_pasted_is_answered(value: Any) -> None:
    assert check(value)["error"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"tables": {"0": [99]}}, "steps[0].tables.0: block 99 is beyond the pool of 9"),
        ({"arrived": ["Z"]}, "steps[0].arrived: 'Z' is none of the requests"),
        (
            {"scheduled": [{"seq": "7", "request": "Z", "start": 0, "tokens": 1}]},
            "steps[0].scheduled: '7' belongs to none",
        ),
        ({"refs": [0] * 8}, "steps[0].refs has 8 counts, and the pool 9 blocks"),
        ({"copies": [[1, 20]]}, "steps[0].copies: [1, 20] names a block beyond"),
        ({"copies": [[1]]}, "steps[0].copies[0] has 1 items, and 2 are asked for"),
        ({"extra": 1}, "steps[0].extra is not known"),
        ({"free": [-1]}, "steps[0].free[0] is -1, and at least 0 is allowed"),
    ],
)
def test_what_fits_nowhere_is_named(change: dict[str, Any], says: str) -> None:
    trace = copy.deepcopy(ALL["blocks"])
    trace["steps"][0].update(change)
    assert check(trace)["error"].startswith(says)


# --- the command line and the examples -------------------------------------------------------


def test_the_command_names_what_fell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad, none = (tmp_path / name for name in ("good.json", "bad.json", "none.json"))
    good.write_text(json.dumps(ALL["crowd"]), encoding="utf-8")
    broken = copy.deepcopy(ALL["crowd"])
    counts_one_more(broken, 4)
    bad.write_text(json.dumps(broken), encoding="utf-8")
    none.write_text("[", encoding="utf-8")
    assert check_trace.main([str(good)]) == 0
    assert "held: I1, I2, I3" in capsys.readouterr().out
    assert check_trace.main([str(bad)]) == 1
    assert "I1 fell in step 5: block" in capsys.readouterr().out
    assert check_trace.main([str(none)]) == 2 and check_trace.main(["absent.json"]) == 2
    assert "cannot be read as JSON" in capsys.readouterr().err
    none.write_text("{}", encoding="utf-8")
    assert check_trace.main([str(none)]) == 2
    assert "the trace lacks 'engine'" in capsys.readouterr().err


@pytest.mark.parametrize("broken", [False, True])
def test_a_reader_that_stops_reading_sees_the_verdict_and_no_traceback(
    tmp_path: Path, broken: bool
) -> None:
    trace = copy.deepcopy(ALL["crowd"])
    if broken:
        counts_one_more(trace, 4)
    file = tmp_path / "trace.json"
    file.write_text(json.dumps(trace), encoding="utf-8")
    reads, writes = os.pipe()
    os.close(reads)
    command = [sys.executable, "-S", "-m", "playground.check_trace", str(file)]  # no package
    ran = subprocess.run(
        command, cwd=ROOT, stdout=writes, stderr=subprocess.PIPE, timeout=HANG_S, check=False
    )
    os.close(writes)
    assert (ran.stderr, ran.returncode) == (b"", int(broken))


def test_the_command_explains_its_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        check_trace.main(["--help"])
    said = capsys.readouterr().out
    assert all(f"{code}: " in said for code in (0, 1, 2))


def test_the_example_of_the_page_is_seen_with_its_fields_alone(tmp_path: Path) -> None:
    """Two requests share a block, one holder is forgotten, and then nobody can see it."""
    page = (ROOT / "docs" / "tutorial" / "your-trace.md").read_text("utf-8")
    page = page[page.index("## Two requests") : page.index("## Every field")]
    cells: dict[str, Any] = {"check": check, "report": check_trace.report}
    for cell in re.findall(r"^```python\n(.+?)^```$", page, re.MULTILINE | re.DOTALL):
        exec(cell, cells)
    assert fell(cells["shared"]) == {} and {"I1", "I2"} <= set(check(cells["shared"])["checked"])
    assert fell(cells["forgotten"]) == {"I1": 2, "I2": 3}
    wrong_hit = copy.deepcopy(cells["shared"])
    wrong_hit["requests"][1]["prompt"][0] += 1
    assert fell(wrong_hit)["I13"] == 2
    for name, code in (("shared", 0), ("forgotten", 1), ("blind", 0)):
        file = tmp_path / "trace.json"
        file.write_text(json.dumps(cells[name]), encoding="utf-8")
        assert check_trace.main([str(file)]) == code
    assert {"I1", "I2", "I3"} <= set(check(cells["blind"])["not_checked"])


EXAMPLES: dict[str, dict[str, int]] = {
    "nano-vllm-fork-roomy": {},
    "nano-vllm-fork-tight": {"I5": 4, "I16": 4},
    "oracle-preemption": {},
    "vllm-roomy": {},
    "vllm-tight": {},
}
"""What falls in each."""


@pytest.mark.parametrize("path", sorted(TRACES.glob("*.json")), ids=lambda path: path.stem)
def test_the_examples_are_traces_and_say_their_versions(path: Path) -> None:
    trace = json.loads(path.read_text("utf-8"))
    jsonschema.validate(trace, json.loads(SCHEMA.read_text("utf-8")))
    assert trace["engine"]["name"] and trace["engine"]["version"]
    assert fell(trace) == EXAMPLES[path.stem]


def test_the_traces_of_other_engines_show_what_they_are_there_for() -> None:
    """Cache hits where there is room, else preemption; and what a table of blocks can show."""
    for engine in ("vllm", "nano-vllm-fork"):
        roomy, tight = (
            json.loads((TRACES / f"{engine}-{name}.json").read_text("utf-8"))
            for name in ("roomy", "tight")
        )
        firsts: dict[str, int] = {}
        for step in roomy["steps"]:
            for entry in step["scheduled"]:
                firsts.setdefault(entry["seq"], entry["start"])
        assert max(firsts.values()) >= roomy["block_size"]
        assert any(step["preempted"] for step in tight["steps"])
    assert "I19" in check(json.loads((TRACES / "vllm-tight.json").read_text("utf-8")))["checked"]


def test_the_oracle_s_example_is_what_it_does_today() -> None:
    kept = json.loads((TRACES / "oracle-preemption.json").read_text("utf-8"))
    assert kept == json.loads(json.dumps(ALL["preemption"]))


# --- the map ---------------------------------------------------------------------------------


@pytest.mark.parametrize("scene", ["crowd", "preemption", "sharing", "copying", "beams"])
def test_the_map_shows_the_moments_that_the_oracle_s_own_has(scene: str) -> None:
    """Tables, counts, words in memory and queues of each plan are those of playground/trace.py."""
    from playground import session

    own = session.run(SCENES[scene])["trace"]["moments"]
    mapped = check(ALL[scene])["trace"]["moments"]
    for step in {one["step"] for one in own if one["kind"] == "plan"}:
        [a] = [one for one in own if (one["step"], one["kind"]) == (step, "plan")]
        [b] = [one for one in mapped if (one["step"], one["kind"]) == (step, "plan")]
        assert [one["refs"] for one in a["gpu"]] == [one["refs"] for one in b["gpu"]]
        held = [i for i, one in enumerate(a["gpu"]) if one["refs"]]
        assert [a["gpu"][i]["holds"] for i in held] == [b["gpu"][i]["holds"] for i in held]
        assert a["free"] == b["free"] and a["moves"] == b["moves"]
        for name in ("waiting", "running", "swapped"):
            assert a["queues"][name] == b["queues"][name]
        tables = [one["table"] for one in a["seqs"] if one["table"]]
        assert sorted(tables) == sorted(one["table"] for one in b["seqs"] if one["table"])


def test_a_fall_is_a_moment_of_the_map() -> None:
    trace = copy.deepcopy(ALL["crowd"])
    counts_one_more(trace, 4)
    [one] = [m for m in check(trace)["trace"]["moments"] if m["kind"] == "fell"]
    assert one["step"] == 5 and one["says"].startswith("I1 falls: block")
