"""The engine around the core, on a runner without a device: each output is the oracle's, always.

Requests of every kind come and go; they are aborted, they run out of time, their ids come back at
once, and steps fail where a step can fail. I20, I22, I29 to I37, I51, I54.
"""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.builders import pair_without_device
from tests.support.engine_under_test import Request
from tests.support.engine_workloads import BETWEEN, Abort, Aborts, Failures, Service, aborts
from tests.support.in_numpy import InNumpy
from tests.support.in_process import InProcess
from tests.support.side_by_side import SideBySide
from tests.support.sometimes import SEEN
from tests.support.strategies import EOS, Settings, settings, token_ids
from tests.support.stub_runner import ALONE, IN_ANY_STEP, PLACES, WHERE_BLOCKS_MOVE
from tests.support.through_bytes import ThroughBytes

COLD = [0.0, 1e-6]  # both are greedy


@st.composite
def params(draw: st.DrawFn, max_model_len: int, long: bool) -> dict[str, Any]:
    """Arguments of `SamplingParams`; `long` ones never end before max_tokens."""
    kind = draw(st.sampled_from(["one", "samples", "best_of", "beams"]))
    n = 1 if kind == "one" else draw(st.integers(1 if kind != "samples" else 2, 4))
    beams = kind == "beams"
    half = max(1, max_model_len // 2)
    warm = [1.0] if kind == "best_of" else [1.0, 1.0, 2.0 if n > 1 else draw(st.sampled_from(COLD))]
    return {
        "n": n,
        "best_of": n + draw(st.integers(0, 3)) if kind == "best_of" else None,
        "use_beam_search": beams,
        "early_stopping": draw(st.sampled_from([False, True, "never"])) if beams else False,
        "temperature": draw(st.sampled_from(COLD if beams else warm)),
        "max_tokens": draw(st.sampled_from([half, max_model_len, *([] if long else [1, 2, 5])])),
        "min_tokens": draw(st.sampled_from([0, 0, 1])),
        "stop_token_ids": [] if long else draw(st.sampled_from([None, [], [1], [0, EOS]])),
        "ignore_eos": long or draw(st.integers(0, 5)) < 5,
        "seed": draw(st.none() | st.integers(-5, 5)),
        "logprobs": None if beams else draw(st.sampled_from([None, 0, 1, 2, 3])),
        "prompt_logprobs": draw(st.sampled_from([None, None, 0, 2])),
    }


@st.composite
def workloads(
    draw: st.DrawFn, max_model_len: int, crowded: bool, adapters: bool = False
) -> list[Request]:
    """Conversations, too: prompts that go on from others' ends, often under the same id.

    Args:
        crowded: Whether more come than fit, at once and to the full length.
    """
    requests: list[Request] = []
    for i in range(draw(st.integers(4 if crowded else 2, 8))):
        crowd = crowded and i < 5
        follows = i > 0 and not crowd
        after = draw(st.none() | st.integers(0, i - 1)) if follows else None
        reused = after is not None and draw(st.booleans())
        salts = [None, None, "a", "b"]
        if after is not None:
            salts += [requests[after].cache_salt] * 5
        prompt = draw(token_ids(1, max(1, max_model_len // 2)))
        requests.append(Request(
            requests[after].request_id if reused else f"r{i}",
            list(prompt),
            draw(params(max_model_len, crowd)),
            0 if crowd else draw(st.sampled_from([0, 0, 0, 1, 4])),
            float(draw(st.integers(0, 2))),
            draw(st.integers(0, 1)),
            cache_salt=draw(st.sampled_from(salts)),
            adapter=draw(st.none() | st.integers(0, 3)) if adapters else None,
            timeout=draw(st.sampled_from([None] * 6 + [0.5, 2.0, 3.5, 8.0])),
            after=after,
        ))  # fmt: skip
    return requests


def serve(
    chosen: Settings,
    workload: list[Request],
    plan: Aborts,
    failures: Failures,
    *,
    ahead: bool,
    through_bytes: bool = False,
    behind: int = 64,
    stages: int = 1,
) -> SideBySide:
    """Both engines, to the end, with all comparisons on the way."""
    wrap: Any = ThroughBytes if through_bytes else lambda runner: runner
    engine, reference = pair_without_device(
        chosen, ahead=ahead, behind=behind, wrap=wrap, stages=stages
    )
    exact = not ahead or chosen.scheduling != "unified"
    beside, runner = InNumpy(reference), engine.worker
    pair = SideBySide(InProcess(engine), beside, None, exact=exact, runner=runner)
    serve_all(pair, chosen, workload, plan, failures)
    return pair


def serve_all(
    pair: SideBySide, chosen: Settings, workload: list[Request], *plan_and_failures: Any
) -> None:
    if chosen.policy != "priority":
        workload = [replace(one, priority=0) for one in workload]
    longest = max(1, chosen.max_model_len - 2)
    Service(pair, workload, *plan_and_failures, longest_prompt=longest).run()


@st.composite
def cases(draw: st.DrawFn) -> tuple[Settings, list[Request], Aborts, Failures]:
    chosen = draw(settings(draw(st.sampled_from([None, "unified"]))))
    how = draw(st.sampled_from(["no failure", "failures", "failures where blocks move"]))
    moves = how == "failures where blocks move"
    if moves:
        chosen = replace(chosen, preemption_mode="swap", num_cpu_blocks=40)
    crowded = moves or draw(st.booleans())
    workload = draw(workloads(chosen.max_model_len, crowded, chosen.max_loras > 0))
    if chosen.scheduling == "unified" and draw(st.booleans()):
        chosen = replace(chosen, enable_prefix_caching=True)
    plan = draw(st.just({}) | aborts())
    places = st.sampled_from(WHERE_BLOCKS_MOVE if moves else PLACES)
    failures = st.dictionaries(st.integers(0, 12), places, min_size=1, max_size=3)
    return chosen, workload, plan, {} if how == "no failure" else draw(failures)


@given(
    case=cases(),
    ahead=st.booleans(),
    through_bytes=st.booleans(),
    behind=st.sampled_from([64, 2, 0]),
)
def test_i29_to_i37_outputs_counts_and_times_are_the_oracle_s(
    case: Any, ahead: bool, through_bytes: bool, behind: int
) -> None:
    """With every kind of request, deadlines, aborts, ids that come back, and steps that fail.

    In half of all cases each step and each result is sent through bytes.
    """
    serve(*case, ahead=ahead, through_bytes=through_bytes, behind=behind)


@given(case=cases())
def test_the_oracle_can_stand_in_the_engine_s_place(case: Any) -> None:
    """All that is asked of an engine here is asked through the protocol.

    And what the oracle's engine draws is what its chapter on outputs makes of it.
    """
    chosen, workload, plan, _ = case
    in_place, beside = (InNumpy(pair_without_device(chosen, ahead=False)[1]) for _ in range(2))
    serve_all(SideBySide(in_place, beside, None, exact=True), chosen, workload, plan)


ROOMY = Settings(3, 40, 8, 0.0, True, 8, 64, 40, "unified", "fcfs", None, True, 0)
ONE: dict[str, Any] = {"temperature": 0.0, "max_tokens": 2, "ignore_eos": True}
SCORED: dict[str, Any] = {
    "max_tokens": 6,
    "ignore_eos": True,
    "seed": 1,
    "logprobs": 2,
    "prompt_logprobs": 1,
}


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("length", [1, 2, 3, 4])
def test_i29_a_block_that_is_cached_at_the_end_of_its_sequence_has_its_salt(
    ahead: bool, length: int
) -> None:
    """The first block is full when the last token is drawn. Only the same salt finds it."""
    prompt = [0, 1, 0, 1][:length]
    talk = Request("a", prompt, ONE | {"max_tokens": 4 - length + 1}, 0, 0.0, cache_salt="x")
    follow = [
        Request(f"b{i}", [0, 0], ONE, 0, 0.0, cache_salt=salt, after=0)
        for i, salt in enumerate([None, "y", "x"])
    ]
    if length == 4:
        talk = replace(talk, given=ONE | {"max_tokens": 1})
    pair = serve(ROOMY, [talk, *follow], {}, {}, ahead=ahead)
    assert [one.output.num_cached_tokens for one in pair.served[1:]] == [0, 0, 3]


@pytest.mark.parametrize("ahead", [False, True])
def test_requests_without_a_seed_draw_different_tokens(ahead: bool) -> None:
    """And those of the oracle, whose engine has the same seed."""
    free = {"max_tokens": 20, "ignore_eos": True}
    pair = serve(ROOMY, [Request(str(i), [0], free, 0, 0.0) for i in range(3)], {}, {}, ahead=ahead)
    texts = {tuple(one.output.outputs[0].token_ids) for one in pair.served}
    assert len(texts) == 3


# The second of these must copy a block, and one is swapped out and in again.
CROWDED = replace(ROOMY, block_size=2, num_gpu_blocks=16, max_model_len=20, preemption_mode="swap")
CROWD = [
    Request(str(i), [0, 1, i], SCORED | {"n": 2 - i % 2, "seed": i, "max_tokens": 9}, 0, 0.0)
    for i in range(3)
]


@pytest.mark.parametrize("ahead", [False, True])
def test_a_sample_out_of_time_that_is_not_shown_loses_to_those_that_ended(ahead: bool) -> None:
    """Two of three samples run, the third begins when they have ended, and time is up."""
    chosen = Settings(8, 4, 40, 0.0, False, 2, 2, 8, "unified", "fcfs", "swap", True, 1, 0.1)
    given = {"n": 2, "best_of": 3, "max_tokens": 8, "ignore_eos": True, "seed": None}
    requests = [
        Request("best", [0, 0], given, 0, 0.0, timeout=8.0),
        *(Request(str(i), [0], ONE | {"max_tokens": 4}, 0, 0.0) for i in range(3)),
    ]
    (best, *_) = serve(chosen, requests, {}, {}, ahead=ahead).served
    assert best.cut_short and best.output.finished
    assert [one.finish_reason for one in best.output.outputs] == ["length"] * 2


LATER = 40  # when these have ended, or failed
FAILURES = [(place, when) for place in IN_ANY_STEP for when in range(4)]
FAILURES += [(place, 0) for place in WHERE_BLOCKS_MOVE if place != ALONE]


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize(("place", "when"), FAILURES)
def test_after_a_step_that_failed_nothing_is_left_of_it(ahead: bool, place: str, when: int) -> None:
    """Also while blocks move. The same requests later, under the same ids, get what they would."""
    requests = [replace(one, timeout=30.0 if i == 2 else None) for i, one in enumerate(CROWD)]
    later = [replace(one, step=LATER, arrival_time=float(LATER)) for one in CROWD]
    name = f"a step failed: {place}"
    before = SEEN[name]
    pair = serve(CROWDED, [*requests, *later], {}, {when: place}, ahead=ahead)
    assert SEEN[name] == before + 1
    lost = [one.lost for one in pair.served]
    assert any(lost[:3]) and not any(lost[3:])


def test_moves_without_a_launch_may_fail() -> None:
    """All others wait for their last token when one is swapped out: it is told of the failure."""
    chosen = replace(CROWDED, num_gpu_blocks=5, max_model_len=7)
    given = {"max_tokens": 4, "ignore_eos": True}
    requests = [Request(str(i), [i, i, i], given | {"seed": i}, 0, 0.0) for i in range(3)]
    later = [replace(one, step=LATER, arrival_time=float(LATER)) for one in requests]
    before = SEEN[f"a step failed: {ALONE}"]
    pair = serve(chosen, [*requests, *later], {}, {0: ALONE}, ahead=True)
    assert SEEN[f"a step failed: {ALONE}"] == before + 1
    assert [one.lost for one in pair.served] == [False, True, True, False, False, False]


@pytest.mark.parametrize("mode", ["recompute", "swap"])
@pytest.mark.parametrize("ahead", [False, True])
def test_what_must_happen_happens(ahead: bool, mode: str) -> None:
    """Whatever Hypothesis draws: what a run of these suites must have met is met here."""
    others = [SCORED | {"n": 9}, SCORED | {"best_of": 2, "stop_token_ids": [1]}]
    requests = [
        *CROWD,
        Request("parts", [0, 1, 1], others[0], LATER, float(LATER)),
        Request("best", [0, 1, 1], others[1] | {"prompt_logprobs": None}, LATER, float(LATER)),
    ]
    before = SEEN.copy()
    chosen = replace(CROWDED, preemption_mode=mode)
    serve(chosen, requests, {3: Abort(2, BETWEEN)}, {}, ahead=ahead)
    wanted = {
        f"preempted by {mode}", "copy-on-write", "cache hit", "runs in parts", "best_of", "aborted"
    } | ({"rebuild"} if mode == "recompute" else set())  # fmt: skip
    assert not {name for name in wanted if SEEN[name] == before[name]}


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("after", [1, 2, 4])
def test_an_abort_in_flight_moves_nobody_s_rows(first: int, after: int) -> None:
    """A step is on its way in which the aborted request has rows before or behind the others'."""
    requests = [Request(str(i), [0, 1, 1, i], SCORED, 0, 0.0) for i in range(3)]
    before = SEEN["abort in flight"]
    pair = serve(ROOMY, requests, {first: Abort(after, BETWEEN)}, {}, ahead=True)
    assert SEEN["abort in flight"] == before + 1
    reasons = [one.output.outputs[0].finish_reason for one in pair.served]
    assert reasons == ["abort" if i == first else "length" for i in range(3)]


def test_a_deadline_is_its_request_s_and_not_its_id_s() -> None:
    """Three requests have one id. Each ended before the next came."""
    long = {"temperature": 0.0, "max_tokens": 20, "ignore_eos": True}
    first = Request("a", [0], long, 0, 0.0, timeout=4.0)
    second, third = replace(first, timeout=None, after=0), replace(first, timeout=9.0, after=1)
    pair = serve(ROOMY, [first, second, third], {0: Abort(2, BETWEEN)}, {}, ahead=False)
    assert [len(one.output.outputs[0].token_ids) for one in pair.served] == [2, 20, 9]


@pytest.mark.parametrize("ahead", [False, True])
def test_samples_that_are_computed_again_share_their_prompt_again(ahead: bool) -> None:
    """A rebuild, which workloads that are drawn meet too rarely to count on (I33)."""
    few = replace(CROWDED, preemption_mode="recompute")
    crowd = [replace(one, given=one.given | {"n": 2}) for one in CROWD]
    before = SEEN["rebuild"]
    serve(few, crowd, {}, {}, ahead=ahead)
    assert SEEN["rebuild"] > before
