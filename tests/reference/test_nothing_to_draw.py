"""Requests whose constraints may leave no token: aborted, in company of others that go on."""

from dataclasses import replace
from typing import Any

from hypothesis import event, given
from hypothesis import strategies as st

from reference.sampling_options import NO_TOKEN
from reference.sequence import SequenceGroup
from tests.reference.test_beam_engine import beam_params, finish, hypotheses
from tests.reference.test_engine import (
    CROWDED,
    REQUEST,
    add,
    expected,
    new_engine,
    outputs,
    sampling_params,
)
from tests.support.beam_oracle import search_without_cache
from tests.support.reading_model import logits_after
from tests.support.strategies import VOCABULARY, Request, Settings, requests, settings

pairs = st.tuples(st.integers(0, VOCABULARY - 1), st.integers(0, VOCABULARY - 1)).map(list)


@st.composite
def strict_requests(draw: st.DrawFn, max_model_len: int) -> tuple[Request, Any]:
    """Most pairs of the three tokens are forbidden: after some tokens none may come."""
    request = draw(requests(max_model_len))
    bad_words = draw(st.lists(pairs, min_size=4, max_size=8))
    if draw(st.booleans()):
        early = draw(st.sampled_from([False, True, "never"]))
        width = draw(st.integers(1, 3))
        params = beam_params(request, width, bad_words_token_ids=bad_words, early_stopping=early)
    else:
        params = sampling_params(request, bad_words_token_ids=bad_words)
    return request, params


@given(data=st.data(), chosen=settings())
def test_who_has_nothing_to_draw_is_aborted_and_others_go_on(
    data: st.DataObject, chosen: Settings
) -> None:
    """What each has by then is what it has alone; nothing is left of it (I9)."""
    engine = new_engine(chosen)
    workload: dict[str, tuple[Request, Any]] = {}
    finished: list[SequenceGroup] = []
    for index in range(data.draw(st.integers(1, 5))):
        request, params = data.draw(strict_requests(chosen.max_model_len))
        if add(engine, f"r{index}", request, params):
            workload[f"r{index}"] = request, params
        for _ in range(data.draw(st.integers(0, 3))):
            finished += engine.step()
    finished += finish(engine, chosen)
    assert sorted(group.request_id for group in finished) == sorted(workload)
    for group in finished:
        request, params = workload[group.request_id]
        if group.beam_search:
            limit = chosen.max_model_len
            assert hypotheses(group) == search_without_cache(
                request.prompt, params, limit, logits_after
            )
        else:
            check_samples(group, expected(request, params, chosen.max_model_len))


def check_samples(group: SequenceGroup, wanted: list[tuple[list[int], list[float], str]]) -> None:
    """The first sample that is stuck ends all samples that have not ended."""
    stuck = any(reason == "abort" for _, _, reason in wanted)
    event("stuck" if stuck else "not stuck")
    assert stuck == any(seq.finish_reason == "abort" for seq in group.seqs)
    for found, (tokens, logprobs, reason) in zip(outputs(group), wanted, strict=False):
        if found[2] == "abort":
            assert found[:2] == (tokens[: len(found[0])], logprobs[: len(found[1])])
            assert len(found[0]) == len(found[1])
        else:
            assert found == (tokens, logprobs, reason)
    assert {seq.stop_reason for seq in group.seqs if seq.finish_reason == "abort"} <= {NO_TOKEN}
    if stuck and len(group.seqs) == 1:
        assert outputs(group) == wanted[:1]


def test_the_first_token_of_several_samples_may_be_missing() -> None:
    """Then the request never forks."""
    engine = new_engine(CROWDED)
    nothing = {"allowed_token_ids": [1], "bad_words_token_ids": [[1]]}
    assert add(engine, "samples", REQUEST, sampling_params(REQUEST, **nothing))
    assert add(engine, "beams", REQUEST, beam_params(REQUEST, 2, **nothing))
    assert add(engine, "free", REQUEST, sampling_params(REQUEST))
    groups = {group.request_id: group for group in finish(engine, CROWDED)}
    for name in ("samples", "beams"):
        [seq] = groups[name].seqs
        assert (seq.output_token_ids, seq.finish_reason, seq.stop_reason) == ([], "abort", NO_TOKEN)
    assert outputs(groups["free"]) == expected(REQUEST, sampling_params(REQUEST), 24)


def test_two_samples_that_are_stuck_in_one_step_are_one_abort() -> None:
    """Both draw a 1 and may draw nothing after it; the request ends once, and is told of once."""
    engine = new_engine(CROWDED)
    nothing_next = {"allowed_token_ids": [1], "bad_words_token_ids": [[1, 1]]}
    assert add(engine, "samples", REQUEST, sampling_params(REQUEST, **nothing_next))
    [group] = finish(engine, CROWDED)
    assert [(seq.output_token_ids, seq.finish_reason, seq.stop_reason) for seq in group.seqs] == [
        ([1], "abort", NO_TOKEN)
    ] * 2
    assert not engine.has_unfinished_requests()


def test_a_beam_dies_while_another_lives_and_hypotheses_are_enough() -> None:
    """After token 0 nothing may come, after token 1 the 1, twice; and, with ends, what has ended
    is what there is."""
    engine = new_engine(CROWDED)
    words = [[0, 0], [0, 1], [0, 2], [1, 0], [1, 2]]
    one_way = beam_params(REQUEST, 2, bad_words_token_ids=[*words, [2]], max_tokens=6)
    none = beam_params(REQUEST, 2, bad_words_token_ids=[*words, [1, 1], [2]], max_tokens=6)
    ended = beam_params(
        replace(REQUEST, ignore_eos=False), 3, bad_words_token_ids=[*words, [1, 1]], max_tokens=6
    )
    for name, params in (("one way", one_way), ("none", none), ("ended", ended)):
        assert add(engine, name, REQUEST, params)
    found = {group.request_id: hypotheses(group) for group in finish(engine, CROWDED)}
    assert [(tokens, reason) for tokens, _, reason, _ in found["one way"]] == [([1] * 6, "length")]
    assert sorted((tokens, *why) for tokens, _, *why in found["none"]) == [
        ([0], "abort", NO_TOKEN),
        ([1], "abort", NO_TOKEN),
    ]
    assert [(tokens, *why) for tokens, _, *why in found["ended"]] == [([2], "stop", None)]
