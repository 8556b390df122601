"""Settings become runs: good ones come to their end, bad ones are refused by name."""

import json
import random
import re
from collections import Counter
from itertools import pairwise
from operator import sub
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from playground import breaks, in_browser, session, smallest, watched_run
from playground.breaks import BREAKS, System, system_of
from playground.invariants import TITLES, Fell, check_memory, check_outcome, check_plan, section
from playground.scenes import SCENES
from playground.scenes import TITLES as TITLES_OF_SCENES
from playground.settings import ADAPTERS, CHOICES, NUMBERS, REQUEST, SWITCHES, scenario_of
from playground.trace import moments
from playground.watched_run import WatchedRun
from playground.words import PROMPTS, Ways
from tests.meta.trees import ROOT

FEW = st.lists(st.sampled_from(("rain", "snow", ".")), min_size=1, max_size=12).map(" ".join)
REQUESTS = st.fixed_dictionaries(
    {"prompt": st.sampled_from(PROMPTS) | FEW},
    optional={
        **{name: st.integers(least, most) for name, (_, least, most) in REQUEST.items()},
        "says": FEW,
        "adapter": st.sampled_from(ADAPTERS),
    },
)
BACK_ONE_BY_ONE: dict[str, Any] = {
    "requests": [{"prompt": "Four score and seven years ago our"} for _ in range(4)],
    "watermark_percent": 12,
}
"""E is preempted, and its samples come back in two steps."""
BACK_ONE_BY_ONE["requests"][2]["max_tokens"] = 10
BACK_ONE_BY_ONE["requests"].append({"prompt": "rain", "n": 2})
SETTINGS = st.fixed_dictionaries(
    {"requests": st.lists(REQUESTS, min_size=1, max_size=6)},
    optional={
        **{name: st.integers(least, most) for name, (_, least, most) in NUMBERS.items()},
        **{name: st.sampled_from(known) for name, known in CHOICES.items()},
        **dict.fromkeys(SWITCHES, st.booleans()),
    },
)


@example(BACK_ONE_BY_ONE)
@given(SETTINGS)
def test_without_a_fault_no_invariant_falls_and_everybody_ends(settings: dict[str, Any]) -> None:
    found = session.run(settings)
    if "error" in found:
        known = "prefix_caching needs", "guesses need", "lookup_min must", "request "
        assert found["error"].startswith(known)
        return
    assert found["fell"] is None
    names = "ABCDEF"[: len(settings["requests"])]
    ended = found["trace"]["moments"][-1]["queues"]["finished"] if found["trace"]["moments"] else []
    assert sorted([*ended, *found["refused"]]) == list(names)


@pytest.mark.parametrize("devices", [1, 2, 4])
def test_nothing_that_is_planned_knows_how_many_devices_there_are(devices: int) -> None:
    alone = session.run({**SCENES["devices"], "devices": 1})
    found = session.run({**SCENES["devices"], "devices": devices})
    assert found["trace"].pop("devices") == devices and alone["trace"].pop("devices") == 1
    assert found == alone


def test_every_scene_has_a_title() -> None:
    assert set(TITLES_OF_SCENES) == set(SCENES)
    assert len(set(TITLES_OF_SCENES.values())) == len(SCENES)


def test_an_adapter_needs_a_slot_and_shares_no_block_with_another() -> None:
    found = session.run({"requests": [{"prompt": "To be or", "adapter": "verse"}]})
    assert found["refused"]["A"].startswith("request 'A': adapters = 1, the limit is 0")
    says = " ".join(one["says"] for one in session.run(SCENES["adapters"])["trace"]["moments"])
    assert "Its adapter pirate is brought to slot 1." in says
    assert "Its adapter pirate lies in slot 1, which A uses: nothing is brought." in says
    assert "are no hit: their keys are others." in says
    assert "waits: its adapter french has no slot." in says


@pytest.mark.parametrize("name", SCENES)
def test_scenes_come_to_their_end(name: str) -> None:
    found = session.run(SCENES[name])
    assert found["fell"] is None and not found["refused"]
    assert len(found["trace"]["moments"]) > 10


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"gpu_blocks": 41}, "gpu_blocks must be a whole number from 1 to 40, got 41"),
        ({"gpu_blocks": True}, "gpu_blocks must be a whole number from 1 to 40, got True"),
        ({"scheduling": "lifo"}, "scheduling must be one of unified, sosp, sosp-mixed, got 'lifo'"),
        ({"prefix_caching": 1}, "prefix_caching must be true or false, got 1"),
        (
            {"prefix_caching": True, "scheduling": "sosp"},
            "prefix_caching needs scheduling 'unified', not 'sosp'",
        ),
        ({"blocks": 1}, "'blocks' is no setting; known are block_size"),
        ({"breaks": ["nothing"]}, "breaks: 'nothing' is none of no watermark"),
        ({"breaks": "no watermark"}, "breaks must be a list, got 'no watermark'"),
        ({"breaks": None}, "breaks must be a list, got None"),
        ({"breaks": [None]}, "breaks: None is none of no watermark"),
        ({"requests": []}, "requests must be a list of 1 to 6, got []"),
        ({"requests": ["To be"]}, "request A must be an object, got 'To be'"),
        ({"requests": [{"prompt": "a", "m": 1}]}, "request A: 'm' is no setting of a request"),
        (
            {"requests": [{"prompt": "a", "n": 5}]},
            "request A: n must be a whole number from 1 to 4",
        ),
        ({"requests": [{"prompt": " "}]}, "request A: prompt must be 1 to 40 words, got ' '"),
        (
            {"requests": [{"prompt": "a", "adapter": "latin"}]},
            "request A: adapter must be one of '', 'pirate', 'verse', 'french', got 'latin'",
        ),
        ({"requests": [{"prompt": 7}]}, "request A: prompt must be 1 to 40 words, got 7"),
    ],
)
def test_bad_settings_are_named(settings: dict[str, Any], message: str) -> None:
    assert session.run(settings)["error"].startswith(message)


def test_who_can_never_fit_is_refused_and_others_run() -> None:
    requests = [{"prompt": "To be or", "max_tokens": 24}, {"prompt": "To", "max_tokens": 2}]
    found = session.run({"requests": requests, "gpu_blocks": 3})
    assert found["refused"]["A"].startswith("request 'A': GPU blocks = 8, the limit is 3")
    assert found["trace"]["moments"][-1]["queues"]["finished"] == ["B"]


@pytest.mark.parametrize("name", breaks.BREAKS)
def test_each_fault_fells_an_invariant_and_nothing_in_its_example_can_go(name: str) -> None:
    example = session.faults()[name]["example"]
    found = session.run(example)
    assert found["fell"]["invariant"] in breaks.BREAKS[name].falls
    assert found["fell"]["title"] == TITLES[found["fell"]["invariant"]]
    kinds = [one["kind"] for one in found["trace"]["moments"]]
    assert kinds.count("fell") == 1 + (found["fell"]["then"] is not None)
    then = (found["fell"]["then"] or {}).get("invariant")
    assert then in (breaks.BREAKS[name].then or (None,))
    assert kinds[-1] == "fell" or found["fell"]["invariant"] in watched_run.GOES_ON
    assert smallest.reduced(example) == example
    assert session.run({**example, "breaks": []})["fell"] is None


OF_GUESSES = [name for name in BREAKS if "guesses" in BREAKS[name].needs]


@pytest.mark.parametrize("name", OF_GUESSES)
def test_a_fault_of_guesses_fells_its_own_invariants_and_none_without_guesses(name: str) -> None:
    chance, fell = random.Random(name), Counter[str]()
    for number in range(90):
        settings = smallest.drawn(chance, [name], 1 + number % 9)
        found = session.run(settings)
        if found["fell"] is not None:
            fell[found["fell"]["invariant"]] += 1
            then = (found["fell"]["then"] or {}).get("invariant")
            assert then is None or (name == "a rejected block hashed" and then in ("I13", "I25"))
        assert session.run({**settings, "guesses": 0})["fell"] is None
        assert session.run({**settings, "breaks": []})["fell"] is None
    assert set(fell) == set(BREAKS[name].falls) and fell.total() > 10


def test_a_later_request_hits_the_block_that_was_hashed_too_early() -> None:
    found = session.run(session.faults()["a rejected block hashed"]["example"])
    fell, then = found["fell"], found["fell"]["then"]
    guess = re.search(r"“(.+)” is no more than a guess of A", fell["says"])
    assert fell["invariant"] == "I29" and guess is not None
    assert then["invariant"] == "I13" and then["step"] > fell["step"]
    assert then["says"].endswith(f"where its text has “{guess[1]}”")
    assert "need no computing" in found["trace"]["moments"][-2]["says"]


def test_a_crowd_guesses_is_preempted_without_guesses_and_guesses_again() -> None:
    shown = session.run(SCENES["guesses-crowd"])["trace"]["moments"]
    drafts = {
        one["step"]: [len(seq.get("drafts", [])) for seq in one["seqs"]]
        for one in shown
        if one["kind"] == "plan"
    }
    (step,) = preempted({"trace": {"moments": shown}})
    assert drafts[2] == [3, 3] and drafts[step] == [0, 0]
    assert any(sum(counts) for later, counts in drafts.items() if later > step)
    chapter = (ROOT / "docs" / "tutorial" / "speculation.md").read_text("utf-8")
    assert f"In step {step} one of them is preempted" in chapter


@pytest.mark.parametrize("name", ["copying", "new-words", "guesses-crowd"])
def test_the_words_of_a_scene_with_guesses_say_what_was_run(name: str) -> None:
    shown = session.run(SCENES[name])["trace"]["moments"]
    verified = 0
    for before, one in pairwise(shown):
        for seq in before["seqs"] if before["kind"] == "written" else ():
            if "drafts" not in seq:
                continue
            verified += 1
            (after,) = (later for later in one["seqs"] if later["name"] == seq["name"])
            new = after["words"][len(seq["words"]) :]
            right = sum(a == b for a, b in zip(seq["drafts"], new, strict=False))
            of = f"of {len(seq['drafts'])} guesses {right} "
            of = of if len(seq["drafts"]) > 1 else "its guess was "
            assert f"{seq['name']} draws “{' '.join(new)}”: {of}" in one["says"]
            back = [block for block in seq["table"] if block not in after["table"]]
            if after["status"] != "finished":
                told = re.search(r"[Bb]locks? ([\d, and]+) held nothing but", one["says"])
                assert [*map(int, re.findall(r"\d+", told[1] if told else ""))] == back
    assert verified >= 3


def preempted(found: dict[str, Any]) -> list[int]:
    """Steps in which somebody is thrown out."""
    return [
        one["step"]
        for before, one in pairwise(found["trace"]["moments"])
        if one["kind"] == "plan"
        and set(before["queues"]["running"]) - set(one["queues"]["running"])
    ]


def test_without_the_watermark_the_newcomer_is_preempted_at_once() -> None:
    example = session.faults()["no watermark"]["example"]
    found = session.run(example)
    assert found["fell"]["preempted"] == found["fell"]["step"] + 1 == preempted(found)[0]
    assert not preempted(session.run({**example, "breaks": []}))


KINDS = ("wrong text", "crash", "hang", "slower")


def outcome(settings: dict[str, Any]) -> tuple[set[str], int, tuple[int, int]]:
    """What a user gets of a run that nothing stops; how many ran; preemptions and steps."""
    run = WatchedRun(scenario_of(settings), system_of(settings["breaks"]))
    seen = set()

    def look(run: WatchedRun, output: Any = None) -> None:
        try:
            check_outcome(run) if output is None else check_memory(run, output)
        except Fell as fell:
            if fell.invariant in ("I13", "I53"):
                seen.add("wrong text")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(watched_run, "check_plan", lambda run, output: None)
        patch.setattr(watched_run, "check_memory", look)
        patch.setattr(watched_run, "check_outcome", look)
        try:
            list(moments(run))
        except (AssertionError, IndexError, RuntimeError, ValueError):
            return {*seen, "crash"}, len(run.groups), (0, 0)
    if run.scheduler.has_unfinished():
        seen.add("hang")
    return seen, len(run.groups), (sum(run.scheduler.num_preemptions.values()), run.step)


@pytest.mark.parametrize("name", BREAKS)
def test_users_see_what_the_fault_says(name: str) -> None:
    """In every tenth run at least of those in which anything is seen; the worst of it."""
    chance, count, runs = random.Random("users"), Counter[str](), 0
    drawn = [smallest.drawn(chance, [name], 1 + number % 9) for number in range(30)]
    for settings in (session.faults()[name]["example"], *drawn):
        kinds, number, costs = outcome(settings)
        sound, usual, least = outcome({**settings, "breaks": []})
        assert not sound
        if not kinds and number == usual and max(map(sub, costs, least)) > 0:
            kinds = {"slower"}
        count.update(kinds)
        runs += bool(kinds)
    usually = {kind for kind in KINDS if 10 * count[kind] >= max(runs, 1)}
    assert (usually - {"slower"} or usually) == {
        kind for kind in KINDS if kind in BREAKS[name].user.lower()
    }


def test_invariants_are_worded_as_in_the_docs_and_stand_where_links_go() -> None:
    page = (ROOT / "docs" / "correctness.md").read_text("utf-8")
    parts = {
        re.sub(r"\W+", "-", part.split("\n")[0].lower()): part for part in page.split("\n### ")[1:]
    }
    for name in TITLES:
        assert f"\n| {name} | " in parts[section(name)]
    for name in ("I6", "I20", "I25"):
        assert f"\n| {name} | {TITLES[name]}" in page
    manager = (ROOT / "docs" / "tutorial" / "block-manager.md").read_text("utf-8")
    assert f"\n| I6 | {TITLES['I6']}" in manager


def test_the_scheduler_s_chapter_shows_what_the_admission_rule_is_for() -> None:
    """docs/tutorial/scheduler.md, "Play with it"."""
    a, b, c = SCENES["crowd"]["requests"]
    asked = {**SCENES["crowd"], "requests": [a, b, {**c, "max_tokens": 24}]}
    for blocks, hangs in ((8, None), (7, False), (6, True)):
        held = session.run({**asked, "gpu_blocks": blocks})
        assert held["fell"] is None
        assert ("C" in held["refused"]) == (hangs is not None)
        if hangs is None:
            continue
        assert f"GPU blocks = 8, the limit is {blocks};" in held["refused"]["C"]
        found = session.run({**asked, "gpu_blocks": blocks, "breaks": ["no admission rule"]})
        assert (found["fell"] is not None) == hangs
    assert found["fell"]["invariant"] == "I20"


def test_a_reader_s_own_settings_are_made_smaller() -> None:
    own = {**SCENES["sharing"], "breaks": ["no copy on write"]}
    less = smallest.reduced(own)
    assert session.run(less)["fell"]["invariant"] == "I10"
    assert len(less["requests"][0]["prompt"].split()) < 7
    sound = {**SCENES["sharing"], "breaks": ["no watermark"]}
    assert smallest.reduced(sound) == sound


def test_an_example_is_found_again() -> None:
    found = smallest.smallest(["fork without counting"])
    assert found is not None and found["fell"]["invariant"] == "I1"


def test_an_error_of_a_broken_system_is_shown() -> None:
    """Two faults together may stumble where no invariant was looked at."""
    requests = [{"prompt": "To", "n": 2, "max_tokens": 1}]
    pool = {"gpu_blocks": 3, "block_size": 1}
    found = session.run({"requests": requests, **pool, "breaks": ["fork without counting"]})
    assert found["fell"]["invariant"] == "I7"
    assert found["fell"]["says"].startswith("BlockError: double free of gpu block 2")


def test_lists_that_contradict_themselves_are_found() -> None:
    """No fault of the page shows these."""
    run = WatchedRun(scenario_of({}), System())
    run.blocks.gpu.free_blocks.append(0)
    with pytest.raises(Fell, match="I2: GPU block 0 is held by 0 and 2 times free"):
        check_plan(run, run.output)
    run = WatchedRun(scenario_of({}), System())
    (group,) = run.arrivals(1)
    run.scheduler.swapped.append(group)
    with pytest.raises(Fell, match="I16: A is in 2 queues"):
        check_plan(run, run.output)


def test_blocks_that_are_lost_at_the_end_and_words_behind_it_are_found() -> None:
    """No fault of the page shows these."""
    run = WatchedRun(scenario_of({}), System())
    check_outcome(run)
    lost = run.blocks.gpu.free_blocks.pop()
    with pytest.raises(Fell, match=f"I9: nobody is left, and block {lost} of the GPU is not free"):
        check_outcome(run)
    run.blocks.gpu.free_blocks += [0, lost]
    with pytest.raises(Fell, match="I9: nobody is left, and block 0 of the GPU is free twice"):
        check_outcome(run)
    run = WatchedRun(scenario_of({"requests": [{"prompt": "a", "says": "b"}]}), System())
    (group,) = run.arrivals(1)
    (word,) = run.token_ids("b")
    group.leader.append(word)
    check_outcome(run)
    group.leader.append(group.leader.token_ids[0])
    with pytest.raises(Fell, match="I53: word 2 of A is “a”, and without guesses it ends before"):
        check_outcome(run)


def test_random_requests_are_those_of_their_seed() -> None:
    drawn = session.draw({"seed": 3, "count": 3})
    assert drawn == session.draw({"seed": 3, "count": 3}) != session.draw({"seed": 4, "count": 3})
    assert session.run({"requests": drawn, "gpu_blocks": 20})["fell"] is None


def test_any_word_has_followers() -> None:
    ways = Ways(0, "A")
    assert len(list(ways)) == len(ways)
    assert sum(ways["anything"].values()) == pytest.approx(1)


def test_code_of_cells() -> None:
    def ran(code: str) -> Any:
        return json.loads(in_browser.run_code(code))

    code = "from reference.blocks import BlockManager\nprint(BlockManager(4, 9).num_gpu_blocks)"
    assert ran(code) == {"printed": "9\n", "error": None}
    assert ran("print(1)\nx = 1 / 0") == {
        "printed": "1\n", "error": "ZeroDivisionError: division by zero (line 2)",
    }  # fmt: skip
    assert ran("x =")["error"].startswith("SyntaxError: invalid syntax")
    assert ran("raise SystemExit(3)")["error"] == "SystemExit: 3 (line 1)"


def test_a_word_that_is_not_there_is_not_quoted() -> None:
    example = session.faults()["free before fork"]["example"]
    assert "finds no word at position 0, in block" in session.run(example)["fell"]["says"]
