"""Traces of the reference engine: each moment must be a state that the invariants allow."""

import json
import runpy
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import playground.trace
from playground.trace import as_json, main, record
from playground.trace_scenarios import SCENARIOS, Guessing, Scenario, TracedRequest
from tests.reference.test_without_numpy import without_numpy

TRACES = {name: record(scenario) for name, scenario in SCENARIOS.items()}
MOMENTS = [
    pytest.param(trace, moment, id=f"{name}-{index}")
    for name, trace in TRACES.items()
    for index, moment in enumerate(trace["moments"])
]
DOCS = Path(__file__).resolve().parents[2] / "docs" / "traces"


@pytest.mark.parametrize(("trace", "moment"), MOMENTS)
def test_counts_are_what_the_tables_say(trace: dict[str, Any], moment: dict[str, Any]) -> None:
    """I1 and I2, on both devices."""
    for device in ("gpu", "cpu"):
        held = Counter(b for s in moment["seqs"] if s["device"] == device for b in s["table"])
        refs = [block["refs"] for block in moment[device]]
        assert refs == [held[block] for block in range(len(refs))]
    assert sorted(moment["free"]) == [b for b, x in enumerate(moment["gpu"]) if x["refs"] == 0]


@pytest.mark.parametrize(("trace", "moment"), MOMENTS)
def test_memory_holds_the_computed_words(trace: dict[str, Any], moment: dict[str, Any]) -> None:
    """I13, except while blocks that were promised have not been moved yet."""
    if moment["kind"] == "plan" and moment["moves"]:
        return
    size = trace["block_size"]
    for seq in moment["seqs"]:
        for position in range(seq["computed"] if seq["table"] else 0):
            block = moment[seq["device"]][seq["table"][position // size]]
            assert block["holds"][position % size] == seq["words"][position]


@pytest.mark.parametrize(("trace", "moment"), MOMENTS)
def test_each_request_is_in_one_queue(trace: dict[str, Any], moment: dict[str, Any]) -> None:
    """I16; and something is said."""
    queued = Counter(name for queue in moment["queues"].values() for name in queue)
    assert queued == Counter(s for s in {seq["request"] for seq in moment["seqs"]})
    assert moment["says"].endswith(".")


@pytest.mark.parametrize("name", [name for name in SCENARIOS if name != "hang"])
def test_all_requests_end_and_give_everything_back(name: str) -> None:
    last = TRACES[name]["moments"][-1]
    assert sorted(last["queues"]["finished"]) == sorted(TRACES[name]["requests"])
    assert all(block["refs"] == 0 for block in last["gpu"] + last["cpu"])


def test_the_requests_say_what_the_scenario_has_them_say() -> None:
    for name in set(SCENARIOS) - {"beam-search"}:
        scenario, last = SCENARIOS[name], TRACES[name]["moments"][-1]
        said = {
            seq["name"]: " ".join(seq["words"][seq["prompt"] :])
            for seq in last["seqs"]
            if seq["status"] == "finished"
        }
        outputs = {request.name: request.outputs for request in scenario.requests}
        for who, words in said.items():
            assert words == outputs[who[0]][int(who[1:] or 1) - 1]


def moments(name: str, kind: str, **what: Any) -> list[dict[str, Any]]:
    found = [moment for moment in TRACES[name]["moments"] if moment["kind"] == kind]
    return [m for m in found if all(m[key] == value for key, value in what.items())]


def test_each_scenario_shows_what_it_is_named_for() -> None:
    copies = [move for m in moments("copy-on-write", "moved") for move in m["moves"]]
    assert copies == [{"kind": "copy", "from": 1, "to": 3}]  # Figure 8
    [tables] = [[s["table"] for s in m["seqs"]] for m in moments("two-requests", "plan", step=3)]
    assert tables == [[7, 1, 3], [5, 2]]  # Figure 7
    swaps = [{m["kind"] for m in moment["moves"]} for moment in moments("preemption-swap", "moved")]
    assert swaps == [{"out"}, {"in"}]
    assert any("again" in m["says"] for m in moments("preemption-recompute", "plan", step=11))
    chunks = [seq["now"] for m in moments("chunked-prefill", "plan") for seq in m["seqs"][1:]]
    assert chunks[:3] == [[0, 7], [7, 14], [14, 18]]
    hits = [m["says"] for m in moments("prefix-hit", "plan") if "need no computing" in m["says"]]
    assert len(hits) == 2 and "A holds them" in hits[0] and "nobody holds them" in hits[1]
    stuck = [m for m in moments("hang", "plan") if m["queues"]["running"] == []]
    assert len(stuck) == 2 and stuck[0]["queues"]["waiting"] == ["B", "C"]


def test_a_beam_search_forks_falls_behind_and_ends() -> None:
    names = [[s["name"] for s in m["seqs"]] for m in moments("beam-search", "drawn")]
    assert names[:3] == [["A2", "A3", "A1"], ["A4", "A1", "A2"], ["A4", "A1", "A2"]]
    assert names[-1] == ["A#1", "A#2", "A#3"]
    first = moments("beam-search", "drawn")[1]
    assert "A4 is a fork. A3 fell behind" in first["says"]
    assert first["gpu"][11]["refs"] == 3  # "The cat sat on" is shared by all of them to the end
    best = moments("beam-search", "drawn")[-1]["seqs"][0]
    assert best["words"][5:] == ["mat", "and", "slept", "."]


def test_all_writes_each_scenario_and_the_docs_have_them(tmp_path: Path) -> None:
    """After a change: `python -m playground.trace --all docs/traces`."""
    main(["--all", str(tmp_path / "new")])
    written = {path.name: path.read_text("utf-8") for path in (tmp_path / "new").iterdir()}
    assert sorted(written) == sorted(f"{name}.json" for name in SCENARIOS)
    assert written == {path.name: path.read_text("utf-8") for path in DOCS.iterdir()}
    assert all(len(text.encode()) < 80_000 for text in written.values())


def test_one_scenario_goes_to_the_screen_or_to_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    main(["hang"])
    text = as_json(TRACES["hang"])
    assert capsys.readouterr().out == text and json.loads(text) == TRACES["hang"]
    monkeypatch.setattr("sys.argv", ["trace", "hang", "--output", str(tmp_path / "hang.json")])
    runpy.run_path(playground.trace.__file__, run_name="__main__")
    assert (tmp_path / "hang.json").read_text("utf-8") == text


def test_an_unknown_scenario_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["flood"])
    assert "invalid choice: 'flood'" in capsys.readouterr().err


def test_who_arrives_when_nobody_runs_is_waited_for() -> None:
    requests = (
        TracedRequest("A", "To be or", ("not .",)),
        TracedRequest("B", "To be or", ("not .",), step=7),
    )
    trace = record(Scenario("gap", "A gap", "", requests))
    assert [one["step"] for one in trace["moments"] if one["kind"] == "arrive"] == [1, 7]
    assert trace["moments"][-1]["queues"]["finished"] == ["A", "B"]


def test_who_hangs_alone_has_nobody_behind() -> None:
    requests = (TracedRequest("A", "To be or not to be", ("that .",)),)
    settings = {"admission_rule": False}
    scenario = Scenario("alone", "", "", requests, 1, settings=settings, most_steps=2)
    assert record(scenario)["moments"][1]["says"] == (
        "A, at the head of the queue, needs 2 blocks, and the whole pool has 1 block: it can never "
        "be admitted. Nothing is computed in this step, nor in any after it."
    )


def plans(requests: tuple[TracedRequest, ...], **what: Any) -> list[str]:
    trace = record(Scenario("own", "", "", requests, **what))
    return [one["says"] for one in trace["moments"] if one["kind"] in ("arrive", "plan")]


def test_who_waits_for_the_watermark_is_told_so() -> None:
    long = "once upon a time there was a king who had a"  # 11 words, 3 blocks
    requests = (TracedRequest("A", "To be or not to", ("be .",)), TracedRequest("B", long, (".",)))
    _, first, *_ = plans(requests, num_gpu_blocks=5, watermark=0.2)
    assert first.endswith(
        "B waits: it needs 3 blocks, and 3 are free, of which 1 must stay free (the watermark)."
    )


def test_who_waits_for_the_budget_is_told_so() -> None:
    requests = (TracedRequest("A", "To be", (".",)), TracedRequest("B", "once upon", (".",)))
    _, first, *_ = plans(requests, settings={"max_num_batched_tokens": 2})
    assert first.endswith("B waits: the step's 2 tokens are spent on others.")


def test_samples_that_cannot_run_at_once_say_why() -> None:
    requests = (TracedRequest("A", "To be or not", ("to be that .",) * 3),)
    first, *_ = plans(requests, num_gpu_blocks=6)
    assert first == (
        "A arrives with a prompt of 4 tokens, and waits. It asks for 3 samples. All at once may "
        "come to hold 4 blocks, and 3 blocks must be to spare: more than the 6 that there are. So "
        "they run 2 at a time: no more can be promised to end."
    )
    first, *_ = plans(requests, num_gpu_blocks=7)
    assert first.endswith("It asks for 3 samples.")


def test_a_single_block_is_dropped() -> None:
    requests = (
        TracedRequest("A", "To be or", ("not to .",)),
        TracedRequest("B", "To", ("be that .",)),
    )
    said = plans(requests, num_gpu_blocks=2, settings={"admission_rule": False})
    assert any("gives way: block 0 is dropped. Its 3 tokens" in one for one in said)


def guessed(requests: tuple[TracedRequest, ...], num_drafts: int = 3, **more: Any) -> list[str]:
    """What is said of a step with guesses."""
    settings = {"max_draft_tokens": 8} | more.pop("settings", {})
    scenario = Scenario(
        "guesses", "", "", requests, settings=settings, guessing=Guessing(num_drafts), **more
    )
    trace = record(scenario)
    assert trace["moments"][-1]["queues"]["finished"] == [one.name for one in requests]
    return [one["says"] for one in trace["moments"]]


def test_guesses_are_right_up_to_the_first_wrong_one() -> None:
    shown = TRACES["guesses"]["moments"]
    written = [one for one in shown if one["kind"] == "written"]
    drafts = [
        (one["step"], one["seqs"][0]["drafts"]) for one in written if "drafts" in one["seqs"][0]
    ]
    assert drafts[:3] == [
        (2, ["mat", "so", "the"]), (3, ["sat", "on", "the"]), (6, ["rug", "and", "the"]),
    ]  # fmt: skip
    texts = [one["says"] for one in shown]
    assert (
        "A draws “cat”: of 3 guesses 0 were right, “mat” was wrong, and what was drawn behind it "
        "is dropped. Block 2 held nothing but wrong guesses, and is given back."
    ) in texts
    assert (
        "A draws “sat on the rug”: of 3 guesses 3 were right. The prefix cache knows block 2 now."
    ) in texts
    seq = next(one for one in written if one["step"] == 2)["seqs"][0]
    assert (seq["now"], seq["computed"], len(seq["words"])) == ([7, 11], 8, 8)
    hits = [text for text in texts if "Its first 12 tokens are those of blocks 0, 1 and 2" in text]
    assert len(hits) == 1  # the third block was filled by right guesses


def test_one_guess_is_right_or_not() -> None:
    said = guessed((TracedRequest("A", "a b a", ("b a c .",)),), 1)
    assert said[4] == (
        "A ends in “a b”, which stood at position 0 before. So what came behind it is guessed: "
        "“a”. It takes block 7 for that."
    )
    assert "A draws “a c”: its guess was right." in said
    said = guessed((TracedRequest("A", "a b a", ("b c c .",)),), 1)
    wrong = "A draws “c”: its guess was not right, and what was drawn behind it is dropped."
    assert any(text.startswith(wrong) for text in said)
    assert "The model runs, and writes the keys and values of A's “b” and 1 guess" in "".join(said)


def test_guesses_without_room_and_behind_the_end() -> None:
    said = guessed((TracedRequest("A", "a b . c a b", (". c a b",)),), 5)
    assert said[-1].startswith("A draws “.”.")  # the first draw ends it, and nothing is guessed
    said = guessed((TracedRequest("A", "x a b . c x", ("a b . c a",)),), 5)
    assert "guessed: “b . c”, and there is no room for 2 more." in said[4]
    assert said[-1].startswith(
        "A draws “b .”: of 3 guesses 2 were right, and what was drawn behind the end is dropped. "
        "A has ended"
    )


def test_two_samples_guess_and_several_blocks_are_given_back() -> None:
    two = (TracedRequest("A", "a b c a", ("b c a .", "c c c c")),)
    said = guessed(two, 3, num_gpu_blocks=12, block_size=1, settings={"max_num_batched_tokens": 9})
    (wrong,) = [text for text in said if "A2 draws “" in text and "given back" in text][:1]
    assert "held nothing but wrong guesses, and are given back" in wrong


def test_slots_say_who_uses_which_adapter() -> None:
    shown = TRACES["adapters"]["moments"]
    assert all(len(one["slots"]) == 2 for one in shown)
    for one in shown:
        running = {seq["request"]: seq.get("adapter") for seq in one["seqs"]}
        for slot in one["slots"]:
            wanted = [who for who in one["queues"]["running"] if running[who] == slot["adapter"]]
            assert slot["users"] == (wanted if slot["adapter"] else [])
        held = {slot["adapter"] for slot in one["slots"]}
        assert {running[who] for who in one["queues"]["running"]} <= held | {None}
    lay = [tuple(slot["adapter"] for slot in one["slots"]) for one in shown]
    assert list(dict.fromkeys(lay)) == [
        ("", ""), ("pirate", ""), ("pirate", "verse"), ("french", "verse"), ("french", "pirate"),
    ]  # fmt: skip
    assert not any("slots" in one for one in TRACES["prefix-hit"]["moments"])


def test_a_prefix_is_found_under_its_adapter_alone() -> None:
    plans = {one["step"]: one["says"] for one in moments("adapters", "plan")}
    assert (
        "The same words in block 0 (pirate) and block 2 (verse) are no hit: their keys are others. "
        "D is admitted"
    ) in plans[5]
    assert "E is admitted. Its first 4 tokens are those of block 2; B holds them" in plans[6]
    assert "Its adapter verse lies in slot 2, which B uses: nothing is brought." in plans[6]
    assert "Its first 4 tokens are those of block 0; nobody holds them" in plans[9]  # F
    assert plans[9].endswith("Its adapter pirate takes slot 2 from verse, which nobody uses.")


def test_who_waits_for_a_slot_is_told_so() -> None:
    plans = {one["step"]: one["says"] for one in moments("adapters", "plan")}
    assert plans[3] == (
        "C waits: its adapter french has no slot. In use: pirate (A) and verse (B). D waits behind "
        "C: nobody overtakes."
    )
    assert plans[7].endswith("In use: french (C) and verse (B and E).")
    drawn = {one["step"]: one["says"] for one in moments("adapters", "drawn")}
    assert drawn[4].endswith("Nobody uses pirate now. It stays in slot 1 until the slot is wanted.")
    assert "Nobody uses verse" not in drawn[7]  # B has ended, and E goes on


def one_slot(*requests: TracedRequest, **more: Any) -> list[str]:
    return plans(requests, settings={"max_loras": 1} | more.pop("settings", {}), **more)


def test_an_adapter_that_stayed_is_there_for_who_comes_later() -> None:
    said = one_slot(
        TracedRequest("A", "To be", (".",), adapter="verse"),
        TracedRequest("B", "or not", (".",), step=2, adapter="verse"),
    )
    assert said[1].endswith("Its adapter verse is brought to slot 1.")
    assert said[3].endswith("Its adapter verse lies in slot 1: nothing is brought.")


def test_several_wait_behind_who_waits_for_a_slot() -> None:
    said = one_slot(
        TracedRequest("A", "To be or not", ("to be .",), adapter="verse"),
        TracedRequest("B", "To be or not", ("to .",), 2, adapter="code"),
        TracedRequest("C", "To be or not", ("to .",), 2),
        TracedRequest("D", "To be or not to", ("be .",), 2),
        enable_prefix_caching=True,
    )
    assert said[3].endswith("In use: verse (A). C and D wait behind B: nobody overtakes.")


def test_words_that_were_computed_without_an_adapter_are_no_hit_with_one() -> None:
    said = one_slot(
        TracedRequest("A", "To be or not to", ("be .",)),
        TracedRequest("B", "To be or not to", ("be .",), 2, adapter="verse"),
        enable_prefix_caching=True,
    )
    assert "The same words in block 0 (no adapter) are no hit" in said[3]


def test_a_request_that_was_swapped_out_comes_back_to_its_adapter() -> None:
    said = one_slot(
        TracedRequest("A", "To be or not to", ("be that is the question .",), adapter="verse"),
        TracedRequest("B", "It was the best of", ("times it was the worst .",), adapter="verse"),
        num_gpu_blocks=5,
        num_cpu_blocks=4,
        settings={"preemption_mode": "swap"},
    )
    assert any("There is room again. B comes back" in one and "slot 1" in one for one in said)


def test_a_block_of_the_same_adapter_that_is_no_hit_is_not_another_adapter_s() -> None:
    """One token must be left to compute, so a prompt of one block finds nothing."""
    said = one_slot(
        TracedRequest("A", "To be or not", ("to be .",), adapter="verse"),
        TracedRequest("B", "To be or not", ("to be .",), 2, adapter="verse"),
        enable_prefix_caching=True,
    )
    assert "B is admitted: its 4 tokens" in said[3] and "no hit" not in said[3]


def test_a_trace_is_the_recorded_one() -> None:
    """It has a preemption, a swap in, and copied blocks: what the replay page shows."""
    script = "from playground.trace import main\n"
    for name in ("preemption-swap", "copy-on-write", "beam-search"):
        recorded = (DOCS / f"{name}.json").read_text("utf-8")
        assert without_numpy(f"{script}main(['{name}'])") == recorded
