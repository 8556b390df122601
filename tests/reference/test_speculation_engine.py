"""I53: the reference's engine with a drafter, against itself without one. Whatever is guessed, the
same tokens, log-probabilities and ends, in fewer steps if the guesses are good."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, note
from hypothesis import strategies as st

from reference.engine import ReferenceEngine
from reference.kv_cache import KVCache
from reference.sampling_options import NO_TOKEN
from reference.sequence import SequenceGroup
from reference.speculation import ngram_drafts
from tests.reference.test_engine import (
    CROWDED,
    REQUEST,
    add,
    expected,
    new_engine,
    outputs,
    sampling_params,
)
from tests.support.guesses import (
    MAX_DRAFTS,
    Guesses,
    cacheable,
    drafting_settings,
    from_known,
    guesses,
)
from tests.support.invariants import blocks_for, check_blocks, check_quiescence
from tests.support.sometimes import saw
from tests.support.strategies import VOCABULARY, Request, Settings, requests

Drafter = Callable[[list[int]], Sequence[int]]
Workload = list[tuple[Request, Any, int]]
"""Requests in their order, each with its parameters and the steps after it."""


class Run:
    """An engine at work, looked at after each step."""

    def __init__(self, chosen: Settings, **more: Any) -> None:
        self.chosen, self.engine = chosen, new_engine(chosen, **more)
        self.groups: dict[str, SequenceGroup] = {}
        self.num_steps = 0
        self.seq_ids: set[int] = set()
        self.had: set[tuple[tuple[int, ...], str | None]] = set()

    def serve(self, workload: Workload) -> "Run":
        for index, (request, params, steps) in enumerate(workload):
            if add(self.engine, f"r{index}", request, params):
                self.groups[f"r{index}"] = self.engine.scheduler.groups[f"r{index}"]
            for _ in range(steps):
                self.step()
        while self.engine.has_unfinished_requests():
            self.step()
        check_quiescence(
            self.engine.block_manager, self.chosen.num_gpu_blocks, self.chosen.num_cpu_blocks
        )
        return self

    def step(self) -> None:
        self.num_steps += self.engine.has_unfinished_requests()
        self.engine.step()
        blocks, size = self.engine.block_manager, self.chosen.block_size
        for group in self.groups.values():
            for seq in group.seqs:
                self.seq_ids.add(seq.seq_id)
                self.had |= cacheable(seq.token_ids, group.cache_salt, size)
                assert not seq.drafts
        check_blocks(blocks, self.seq_ids, self.chosen.num_gpu_blocks, self.chosen.num_cpu_blocks)
        for group in self.engine.scheduler.running if self.chosen.scheduling == "unified" else ():
            for seq in group.unfinished:
                table = blocks.block_table(seq.seq_id)
                assert len(table) == blocks_for(seq.num_computed_tokens, size)
        for entry in blocks.prefix_cache.entries:
            assert (entry.prefix, entry.salt) in self.had, "what nobody has had is cached"

    def results(self) -> dict[str, Any]:
        """All that is noted of each request, arrays as lists."""
        return {
            name: (
                outputs(group),
                [seq.stop_reason for seq in group.seqs],
                [seq.distributions and np.array(seq.distributions).tolist() for seq in group.seqs],
                group.prompt_logprobs and np.array(group.prompt_logprobs[1:]).tolist(),
            )
            for name, group in self.groups.items()
        }

    def known(self) -> Callable[[list[int]], int]:
        """What followed in this run."""
        return from_known([seq.token_ids for group in self.groups.values() for seq in group.seqs])


def drafting(chosen: Settings, drafter: Drafter, max_draft_tokens: int) -> Run:
    return Run(chosen, drafter=drafter, max_draft_tokens=max_draft_tokens)


class Noting:
    """A logits processor that writes down which outputs it was asked about."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, ...]] = []

    def __call__(self, output: list[int], logits: np.ndarray) -> np.ndarray:
        self.asked.append(tuple(output))
        return logits + np.arange(VOCABULARY) * (len(output) % 3 - 1)


@st.composite
def options(draw: st.DrawFn) -> dict[str, Any]:
    """What makes a draw depend on the tokens before it, and what is noted of it."""
    return {
        "temperature": draw(st.sampled_from([0.0, 1.0, 0.5])),
        "seed": draw(st.integers(0, 3)),
        "repetition_penalty": draw(st.sampled_from([1.0, 1.5])),
        "frequency_penalty": draw(st.sampled_from([0.0, 0.5])),
        "presence_penalty": draw(st.sampled_from([0.0, -1.0])),
        "logit_bias": draw(st.sampled_from([None, {0: 2.0, 2: -1.0}])),
        "bad_words_token_ids": draw(st.sampled_from([None, [[0, 1]], [[1, 1, 0], [2, 2]]])),
        "logprobs": draw(st.sampled_from([None, 0])),
        "prompt_logprobs": draw(st.sampled_from([None, None, 0])),
    }


@given(data=st.data(), chosen=drafting_settings(), guess=guesses(), max_draft_tokens=MAX_DRAFTS)
def test_guesses_change_nothing(
    data: st.DataObject, chosen: Settings, guess: Guesses, max_draft_tokens: int
) -> None:
    """Greedy and sampled, of several samples, beside beams, with penalties, stop tokens, least and
    most lengths, crowded or not, in a cache or without one: what each request gets is the same."""
    note(repr(chosen))
    workload: Workload = []
    notes: list[tuple[Noting, Noting]] = []
    for _ in range(data.draw(st.integers(1, 6))):
        request = data.draw(requests(chosen.max_model_len, beams=True))
        notes.append((Noting(), Noting()))
        params = sampling_params(request, **data.draw(options()))
        workload.append((request, params, data.draw(st.integers(0, 3))))

    def with_notes(which: int) -> Workload:
        return [
            (request, SimpleNamespace(**vars(params), logits_processors=[both[which]]), steps)
            for (request, params, steps), both in zip(workload, notes, strict=True)
        ]

    plain = Run(chosen).serve(with_notes(0))
    follows = plain.known()
    run = drafting(chosen, lambda tokens: guess(tokens, follows), max_draft_tokens)
    assert run.serve(with_notes(1)).results() == plain.results()
    for before, after in notes:
        assert sorted(before.asked) == sorted(after.asked)
    saw("fewer steps", run.num_steps < plain.num_steps)
    for mode, times in run.engine.scheduler.num_preemptions.items():
        saw(f"preempted by {mode}, with drafts", times)


pairs = st.tuples(st.integers(0, VOCABULARY - 1), st.integers(0, VOCABULARY - 1)).map(list)


@given(data=st.data(), chosen=drafting_settings(), guess=guesses())
def test_who_has_nothing_to_draw_has_drawn_the_same_before(
    data: st.DataObject, chosen: Settings, guess: Guesses
) -> None:
    """Most pairs of tokens are forbidden. (Requests for one sample: how far the others of a group
    get until one is stuck is a matter of steps.)"""
    workload: Workload = []
    for _ in range(data.draw(st.integers(1, 4))):
        request = replace(data.draw(requests(chosen.max_model_len)), n=1, best_of=None)
        words = data.draw(st.lists(pairs, min_size=3, max_size=7))
        params = sampling_params(request, bad_words_token_ids=words)
        workload.append((request, params, data.draw(st.integers(0, 3))))
    plain = Run(chosen).serve(workload)
    follows = plain.known()
    run = drafting(chosen, lambda tokens: guess(tokens, follows), 8)
    assert run.serve(workload).results() == plain.results()
    saw("stuck", any(group.seqs[0].finish_reason == "abort" for group in run.groups.values()))


ROOMY = replace(CROWDED, num_gpu_blocks=40)
ONE = replace(REQUEST, n=1)


def one_request(**more: Any) -> Workload:
    return [(ONE, sampling_params(ONE, **more), 0)]


@pytest.mark.parametrize(
    ("max_tokens", "count", "num_steps"),
    [(13, 3, 4), (14, 3, 5), (13, 12, 2), (13, 1, 7), (2, 3, 2), (1, 3, 1), (13, 0, 13)],
)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_good_guesses_save_steps(
    max_tokens: int, count: int, num_steps: int, temperature: float
) -> None:
    """The prompt's step gives one token, each other one 1 + count of them, or those left."""
    workload = one_request(max_tokens=max_tokens, temperature=temperature)
    plain = Run(ROOMY).serve(workload)
    assert plain.num_steps == max_tokens
    follows = plain.known()
    run = drafting(ROOMY, lambda tokens: Guesses(count, wrong=0)(tokens, follows), 16)
    assert run.serve(workload).results() == plain.results()
    assert run.num_steps == num_steps
    bad = drafting(ROOMY, lambda tokens: Guesses(count, wrong=10)(tokens, follows), 16)
    assert bad.serve(workload).results() == plain.results()
    assert bad.num_steps == max_tokens


def test_what_repeats_is_guessed_without_a_model() -> None:
    """A model that says 0 1 2 3 4 0 1 ...: after one round all is known. Drafts of 4, then 2."""
    model: Any = SimpleNamespace(
        forward=lambda token_ids, *rest: token_ids[:, None].astype(float),
        compute_logits=lambda hidden: -abs(np.arange(5.0) - (hidden + 1) % 5),
    )
    cache = KVCache(num_layers=1, num_blocks=16, num_kv_heads=1, block_size=4, head_dim=1)
    engine = ReferenceEngine(
        model, cache, max_num_seqs=4, max_num_batched_tokens=16, max_model_len=32,
        max_draft_tokens=4, drafter=lambda token_ids: ngram_drafts(token_ids, 4, 1, 2),
    )  # fmt: skip
    engine.add_request("r", [0, 1, 2, 3, 4, 0], sampling_params(ONE, max_tokens=9, temperature=0.0))
    assert [len(engine.step()) for _ in range(3)] == [0, 0, 1]


@pytest.mark.parametrize("preemption_mode", ["swap", "recompute"])
@pytest.mark.parametrize("caching", [False, True])
@pytest.mark.parametrize("wrong", [0, 3])
def test_a_crowd_that_drafts_preempts_and_it_does_not_show(
    preemption_mode: Any, caching: bool, wrong: int
) -> None:
    """Six requests for two samples, in a pool for two requests."""
    chosen = replace(
        CROWDED, preemption_mode=preemption_mode, enable_prefix_caching=caching, num_gpu_blocks=18
    )
    request = replace(REQUEST, max_tokens=10)
    workload: Workload = [
        (replace(request, prompt=(*REQUEST.prompt, i % 3, i % 2)), sampling_params(request), 0)
        for i in range(6)
    ]
    follows = Run(ROOMY).serve(workload).known()
    run = drafting(chosen, lambda tokens: Guesses(4, wrong)(tokens, follows), 16).serve(workload)
    assert run.engine.scheduler.num_preemptions[preemption_mode] > 0  # type: ignore[index]
    for name, group in run.groups.items():
        one, params, _ = workload[int(name.removeprefix("r"))]
        assert outputs(group) == expected(one, params, chosen.max_model_len)


@pytest.mark.parametrize("min_tokens", [1, 2, 5])
def test_an_end_in_the_middle_of_a_draft_is_the_end(min_tokens: int) -> None:
    """The model says 1 as soon as it may, and ends. No token is drawn after that, though the drafts
    go on."""
    asked = Noting()
    more: dict[str, Any] = {"allowed_token_ids": [0, 1], "max_tokens": 9, "logit_bias": {1: 99.0}}
    more |= {"stop_token_ids": [1], "min_tokens": min_tokens, "logits_processors": [asked]}
    workload = one_request(**more)
    plain = Run(ROOMY).serve(workload)
    follows = plain.known()
    before, asked.asked = asked.asked, []
    run = drafting(ROOMY, lambda tokens: Guesses(6, 0)(tokens, follows), 16).serve(workload)
    assert run.results() == plain.results() and run.num_steps == 2
    assert asked.asked == before
    [group] = run.groups.values()
    assert group.seqs[0].output_token_ids == [0] * min_tokens + [1]
    assert group.seqs[0].finish_reason == "stop"


@pytest.mark.parametrize(("word", "output"), [([1, 1], [1]), ([1, 1, 1], [1, 1])])
def test_who_is_stuck_behind_a_draft_is_aborted_there(word: list[int], output: list[int]) -> None:
    """Nothing but a 1 may come, and not so many of them: the first draw beside drafts has no token,
    or the second one, which the next step finds out."""
    workload = one_request(allowed_token_ids=[1], bad_words_token_ids=[word])
    run = drafting(ROOMY, lambda tokens: [1, 1, 1], 16).serve(workload)
    [group] = run.groups.values()
    seq = group.seqs[0]
    assert (seq.output_token_ids, seq.finish_reason, seq.stop_reason) == (output, "abort", NO_TOKEN)
    assert len(seq.logprobs) == len(output)
    assert run.results() == Run(ROOMY).serve(workload).results()


def test_a_drafter_is_asked_of_those_alone_who_can_use_its_guesses() -> None:
    """It is not asked behind a prompt, where a sequence is computed again, or for beams."""
    asked: list[list[int]] = []

    def drafter(token_ids: list[int]) -> list[int]:
        asked.append(list(token_ids))
        token_ids.clear()  # it is its own
        return []

    chosen = replace(ROOMY, max_num_batched_tokens=3)
    run = drafting(chosen, drafter, 8)
    beams = sampling_params(ONE, use_beam_search=True, max_tokens=3)
    workload = [*one_request(max_tokens=3), (ONE, beams, 0)]
    run.serve(workload)
    token_ids = run.groups["r0"].seqs[0].token_ids
    assert asked == [token_ids[:6], token_ids[:7]]
    assert run.results() == Run(chosen).serve(workload).results()
