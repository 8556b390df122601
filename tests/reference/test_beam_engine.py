"""Beam search in the reference's engine: a search without blocks, a search of everything (I38)."""

from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, note
from hypothesis import settings as run_with
from hypothesis import strategies as st

from reference.engine import ReferenceEngine
from reference.sampling import log_softmax
from reference.sequence import SequenceGroup
from tests.reference.test_engine import (
    CROWDED,
    REQUEST,
    add,
    expected,
    new_cache,
    new_engine,
    outputs,
    sampling_params,
)
from tests.support.beam_oracle import Ended, search_without_cache
from tests.support.invariants import check_blocks, check_quiescence
from tests.support.reading_model import ReadingModel, hidden_after, logits_after
from tests.support.strategies import EOS, Request, Settings, requests, settings

COSTS = SimpleNamespace(seconds_per_block=1.0, seconds_per_token=1.0)


def beam_params(request: Request, width: int, **more: Any) -> Any:
    fields = {
        "use_beam_search": True, "n": width, "best_of": None, "length_penalty": 1.0,
        "early_stopping": False,
    }  # fmt: skip
    return SimpleNamespace(**(vars(request.params) | fields | more))


def hypotheses(group: SequenceGroup) -> list[Ended]:
    return [
        (seq.output_token_ids, seq.cumulative_logprob, str(seq.finish_reason), seq.stop_reason)  # type: ignore[misc]
        for seq in group.best
    ]


@st.composite
def beam_requests(draw: st.DrawFn, max_model_len: int) -> tuple[Request, Any]:
    request = draw(requests(max_model_len))
    width = draw(st.integers(1, 5))
    params = beam_params(
        request,
        width,
        best_of=draw(st.sampled_from([None, None, width + 1])),
        ignore_eos=draw(st.booleans()),
        length_penalty=draw(st.sampled_from([0.0, 1.0, -0.5, 2.0])),
        early_stopping=draw(st.sampled_from([False, True, "never"])),
        temperature=draw(st.sampled_from([0.0, 0.5])),
        repetition_penalty=draw(st.sampled_from([1.0, 1.2])),
    )
    return request, params


def check_memory(engine: ReferenceEngine, chosen: Settings) -> None:
    """I1 to I5; who has finished holds nothing."""
    groups = engine.scheduler.groups.values()
    seq_ids = [seq.seq_id for group in groups for seq in group.seqs]
    blocks = engine.block_manager
    check_blocks(blocks, seq_ids, chosen.num_gpu_blocks, chosen.num_cpu_blocks)


def finish(engine: ReferenceEngine, chosen: Settings) -> list[SequenceGroup]:
    """Step to the end, looking at the memory all the way, and behind (I9)."""
    finished = []
    while engine.has_unfinished_requests():
        finished += engine.step()
        check_memory(engine, chosen)
    check_quiescence(engine.block_manager, chosen.num_gpu_blocks, chosen.num_cpu_blocks)
    return finished


@given(data=st.data(), chosen=settings(), mode=st.sampled_from([None, "swap", "recompute", "auto"]))
def test_hypotheses_equal_those_of_a_search_without_a_cache(
    data: st.DataObject, chosen: Settings, mode: str | None
) -> None:
    """I30 to I36 for beams, in company of beams and of samples, with aborts among them."""
    chosen = replace(chosen, preemption_mode=mode)
    note(repr(chosen))
    engine = new_engine(chosen, preemption_costs=COSTS)
    beams: dict[str, tuple[Request, Any]] = {}
    samples: dict[str, tuple[Request, Any]] = {}
    finished: list[SequenceGroup] = []
    for index in range(data.draw(st.integers(1, 6))):
        name, workload = f"r{index}", beams
        request, params = data.draw(beam_requests(chosen.max_model_len))
        if data.draw(st.integers(0, 3)) == 0:
            params, workload = sampling_params(request), samples
        if add(engine, name, request, params):
            workload[name] = request, params
        for _ in range(data.draw(st.integers(0, 3))):
            finished += engine.step()
            check_memory(engine, chosen)
        if data.draw(st.integers(0, 9)) == 0 and engine.abort_request(name):
            beams.pop(name, None)
            samples.pop(name, None)
            check_memory(engine, chosen)
    finished += finish(engine, chosen)
    assert sorted(group.request_id for group in finished) == sorted([*beams, *samples])
    for group in finished:
        if group.beam_search:
            request, params = beams[group.request_id]
            limit = chosen.max_model_len
            wanted = search_without_cache(request.prompt, params, limit, logits_after)
            assert hypotheses(group) == wanted
        else:
            assert outputs(group) == expected(*samples[group.request_id], chosen.max_model_len)


@pytest.mark.parametrize("scheduling", ["unified", "sosp", "sosp-mixed"])
@pytest.mark.parametrize("mode", ["swap", "recompute", "auto"])
def test_preemption_happens_and_does_not_show(scheduling: str, mode: str) -> None:
    """I31 and I33, with a crowd that cannot but preempt; unified, where a budget of 5 is not
    enough for the 6 beams of two requests."""
    chosen = replace(CROWDED, num_gpu_blocks=20, scheduling=scheduling, preemption_mode=mode)
    if scheduling == "unified":
        chosen = replace(chosen, max_num_batched_tokens=5)
    engine = new_engine(chosen, preemption_costs=COSTS)
    workload = {str(i): replace(REQUEST, prompt=(*REQUEST.prompt, i % 3)) for i in range(5)}
    for name, request in workload.items():
        assert add(engine, name, request, beam_params(request, 3, length_penalty=0.0))
    groups = finish(engine, chosen)
    assert len(groups) == 5 and sum(engine.scheduler.num_preemptions.values()) > 0
    if mode != "auto":
        assert engine.scheduler.num_preemptions[mode] > 0  # type: ignore[index]
    for group in groups:
        prompt = workload[group.request_id].prompt
        assert hypotheses(group) == search_without_cache(prompt, group.params, 24, logits_after)


@given(data=st.data(), chosen=settings())
def test_a_width_of_one_is_greedy(data: st.DataObject, chosen: Settings) -> None:
    """I38: the tokens and why they end. (Not with "never", which may look for something longer.)"""
    request = replace(data.draw(requests(chosen.max_model_len)), n=1, best_of=None)
    early_stopping = data.draw(st.booleans())
    engine = new_engine(chosen)
    params = beam_params(request, 1, early_stopping=early_stopping)
    assume(add(engine, "beam", request, params) and add(engine, "greedy", request, request.params))
    groups = {group.request_id: group for group in finish(engine, chosen)}
    [one], [two] = groups["beam"].seqs, groups["greedy"].seqs
    assert (one.token_ids, one.finish_reason) == (two.token_ids, two.finish_reason)
    assert one.stop_reason == two.stop_reason and not groups["beam"].forked


class FiveWords(ReadingModel):
    """The model that reads, with words 0 to 4; the word 2 is the end."""

    @staticmethod
    def logits_of(hidden: float) -> np.ndarray:
        return np.array([(hidden * (token + 3)) % 97 for token in range(5)]) / 97 * 4

    def compute_logits(self, hidden: np.ndarray) -> np.ndarray:
        return np.array([self.logits_of(float(row[0])) for row in hidden])


def everything(prompt: tuple[int, ...], longest: int) -> Iterator[tuple[list[int], float]]:
    """All outputs there can be, with their log-probabilities."""

    def grow(output: list[int], value: float) -> Iterator[tuple[list[int], float]]:
        if len(output) == longest or output[-1:] == [EOS]:
            yield output, value
            return
        logprobs = log_softmax(FiveWords.logits_of(hidden_after([*prompt, *output])))
        for token in range(5):
            yield from grow([*output, token], value + float(logprobs[token]))

    return grow([], 0.0)


@given(
    prompt=st.lists(st.integers(0, 4), min_size=1, max_size=4).map(tuple),
    width=st.sampled_from([20, 85]),
    penalty=st.sampled_from([0.0, 0.0, 1.0, 2.0, -0.5]),
)
def test_a_width_that_is_large_enough_finds_the_best_of_everything(
    prompt: tuple[int, ...], width: int, penalty: float
) -> None:
    """I38: outputs of 3 of 5 words. Before the third word there are at most 20 ways to go, 5 of
    them ends; so a width of 20 loses nothing before it has to, and 85 nothing at all."""
    penalty = penalty if width == 85 else 0.0
    chosen = replace(CROWDED, num_gpu_blocks=400, max_num_seqs=width, max_num_batched_tokens=400)
    limits = chosen.scheduler_arguments
    engine = ReferenceEngine(FiveWords(), new_cache(chosen), eos_token_ids={EOS}, **limits)
    request = replace(REQUEST, prompt=prompt, max_tokens=3, ignore_eos=False)
    params = beam_params(request, width, early_stopping="never", length_penalty=penalty)
    assert add(engine, "r", request, params)
    [group] = finish(engine, chosen)
    ranked = sorted(everything(prompt, 3), key=lambda way: -way[1] / len(way[0]) ** penalty)
    assert len(ranked) == 85
    found = [(seq.output_token_ids, seq.cumulative_logprob) for seq in group.seqs]
    scores = [value / len(output) ** penalty for output, value in ranked]
    assert [seq.score for seq in group.seqs] == scores[:width]
    assert all(way in ranked for way in found)
    assert [seq.index for seq in group.seqs] == list(range(width))


@run_with(suppress_health_check=[HealthCheck.filter_too_much])  # small pools refuse wide searches
@given(data=st.data(), chosen=settings(), steps=st.integers(0, 12))
def test_abort_frees_all_beams_at_any_point(
    data: st.DataObject, chosen: Settings, steps: int
) -> None:
    """I9 and I22."""
    engine = new_engine(chosen)
    request, params = data.draw(beam_requests(chosen.max_model_len))
    assume(add(engine, "r", request, params))
    group = engine.scheduler.groups["r"]
    for _ in range(steps):
        engine.step()
    unfinished = engine.has_unfinished_requests()
    assert engine.abort_request("r") == unfinished and not engine.abort_request("r")
    assert ({seq.finish_reason for seq in group.seqs} == {"abort"}) == unfinished
    check_quiescence(engine.block_manager, chosen.num_gpu_blocks, chosen.num_cpu_blocks)
