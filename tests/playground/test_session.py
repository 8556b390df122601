"""Settings become runs: good ones come to their end, bad ones are refused by name."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from playground import breaks, in_browser, session, smallest
from playground.breaks import System
from playground.invariants import TITLES, Fell, check_plan
from playground.scenes import SCENES
from playground.settings import CHOICES, NUMBERS, REQUEST, SWITCHES, scenario_of
from playground.watched_run import WatchedRun
from playground.words import PROMPTS, Ways

REQUESTS = st.fixed_dictionaries(
    {"prompt": st.sampled_from(PROMPTS)},
    optional={name: st.integers(least, most) for name, (_, least, most) in REQUEST.items()},
)
SETTINGS = st.fixed_dictionaries(
    {"requests": st.lists(REQUESTS, min_size=1, max_size=6)},
    optional={
        **{name: st.integers(least, most) for name, (_, least, most) in NUMBERS.items()},
        **{name: st.sampled_from(known) for name, known in CHOICES.items()},
        **dict.fromkeys(SWITCHES, st.booleans()),
    },
)


@given(SETTINGS)
def test_without_a_fault_no_invariant_falls_and_everybody_ends(settings: dict[str, Any]) -> None:
    found = session.run(settings)
    if "error" in found:
        assert found["error"].startswith("prefix_caching needs")
        return
    assert found["fell"] is None
    names = "ABCDEF"[: len(settings["requests"])]
    ended = found["trace"]["moments"][-1]["queues"]["finished"] if found["trace"]["moments"] else []
    assert sorted([*ended, *found["refused"]]) == list(names)


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
    assert found["trace"]["moments"][-1]["kind"] == "fell"
    assert smallest.reduced(example) == example
    assert session.run({**example, "breaks": []})["fell"] is None


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
