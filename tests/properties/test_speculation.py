"""Guesses change nothing: tokens and log-probabilities are the bits of a plain run.

Each request of a workload runs alone and without guesses, and then with all others and with
guesses: right ones, wrong ones, both by chance, and such as no drafter should make. Some requests
say themselves what they expect (`prediction`), right or wrong.
"""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_engine import LLMEngine
from tests.properties.test_equal_bits import PLAIN
from tests.support.builders import Pool, build_one
from tests.support.crowds import any_found_generated, said, serve, serve_one_by_one
from tests.support.drafters import Guess, mistaken, perfect, speculation, unruly
from tests.support.engine_pair import MAX_LEN
from tests.support.engine_under_test import Request
from tests.support.engine_workloads import SCORED, scheduler_settings, suited, workloads
from tests.support.in_process import InProcess
from tests.support.sometimes import saw
from tests.support.tiny_llama import VOCAB


@st.composite
def unified_settings(draw: st.DrawFn) -> dict[str, Any]:
    found = draw(scheduler_settings().filter(lambda one: one["scheduling"] == "unified"))
    return found | {"max_draft_tokens": draw(st.sampled_from([1, 4, 32, 32]))}


@st.composite
def guesses(draw: st.DrawFn, texts: list[list[int]]) -> tuple[str, Guess]:
    """A kind of drafter, and one of it that knows how these texts go on."""
    right, seed = perfect(texts), draw(st.integers(0, 99))
    kinds: dict[str, Guess] = {
        "right": right,
        "mostly right": mistaken(right, seed, VOCAB, 0.2),
        "half right": mistaken(right, seed, VOCAB, 0.5),
        "wrong": mistaken(lambda tokens: [], seed, VOCAB, 0.0),
        "unruly": unruly(right, seed, VOCAB),
    }
    kind = draw(st.sampled_from(list(kinds)))
    return kind, kinds[kind]


PREDICTED = ("right", "wrong", "longer", "begun otherwise", "another's")


@st.composite
def predictions(draw: st.DrawFn, said: list[int], texts: list[list[int]]) -> tuple[str, list[int]]:
    """What a request expects that says this, and what is right or wrong about it; often nothing."""
    kind = draw(st.sampled_from(["none", *PREDICTED]))
    others = draw(st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=9))
    kinds = {
        "none": [],
        "right": said,
        "wrong": others,
        "longer": [*said, *others],
        "begun otherwise": [*others, *said[draw(st.sampled_from([0, 1, 2])) :]],
        "another's": draw(st.sampled_from(texts)),
    }
    return kind, kinds[kind]


def suited_to_guesses(i: int, one: Request) -> Request:
    """Each request has a seed of its own, and a beam search is asked for without guesses."""
    given = one.given | {"seed": i}
    if given["use_beam_search"]:
        given["num_speculative_tokens"] = 0
    return replace(one, request_id=str(i), after=None, given=given)


@given(
    data=st.data(),
    pool=st.sampled_from(list(PLAIN)),
    how=unified_settings(),
    workload=workloads(),
)
def test_i53_guesses_change_no_bit(
    data: st.DataObject, pool: Pool, how: dict[str, Any], workload: list[Request]
) -> None:
    """I53: also where sequences fork, are preempted, or end within their guesses."""
    plain = [suited(one, pool, how) for one in workload]
    requests = [suited_to_guesses(i, one) for i, one in enumerate(plain)]
    alone = serve_one_by_one(PLAIN[pool], requests)
    texts = [
        [*output.prompt_token_ids, *one.token_ids]
        for output in alone.values()
        for one in output.outputs
    ]
    for i, one in enumerate(requests):
        if one.request_id in alone:
            first = list(alone[one.request_id].outputs[0].token_ids)
            what, prediction = data.draw(predictions(first, texts))
            requests[i] = replace(one, prediction=prediction)
            saw(f"predictions: {what}")
    kind, guess = data.draw(guesses(texts))
    config = speculation(guess, most=data.draw(st.sampled_from([1, 3, 5])))
    engine = build_one(pool, speculation=config, **how)
    together = serve(InProcess(engine), requests)
    check(alone, together, requests)
    predicted = [one.metrics.num_accepted_prediction_tokens for one in together.values()]
    saw("right guesses out of a prediction", sum(predicted))
    stats = engine.stats()
    saw("a preemption among guesses", stats.num_recomputed + stats.num_swapped_out > 0)
    saw(f"guesses that are {kind}")
    check_blocks_are_free(engine)


def check(alone: dict[str, Any], together: dict[str, Any], requests: list[Request]) -> None:
    """All that is served is what was served alone; left out is what I52 leaves out."""
    generated = any_found_generated(together, requests)
    for name, output in together.items():
        if not (generated and output.num_cached_tokens):
            assert said(alone[name]) == said(output)


def check_blocks_are_free(engine: LLMEngine) -> None:
    """I9: nothing is left behind."""
    blocks = engine.scheduler.block_manager
    assert blocks.num_free_gpu_blocks == blocks.num_gpu_blocks and not blocks.tables
    assert blocks.num_free_cpu_blocks == blocks.num_cpu_blocks


PLAINLY: dict[str, Any] = {
    "num_cpu_blocks": 0, "prefix_caching": True, "max_num_batched_tokens": MAX_LEN,
}  # fmt: skip


@pytest.mark.parametrize(
    ("before", "cut", "behind", "steps"),
    [
        ([], 0, [], 4),
        ([], 0, [7] * 40, 4),
        ([9, 9, 9], 0, [], 5),
        ([9, 9], 2, [9], 7),
        ([9], 13, [], 13),
    ],
)
def test_a_prediction_that_is_right_saves_steps(
    before: list[int], cut: int, behind: list[int], steps: int
) -> None:
    """Also one that is longer than the output, and one that begins otherwise."""
    asked = {"max_tokens": 13, "ignore_eos": True, "temperature": 0.0}
    request = Request("0", [3, 4, 5], asked, 0, 0.0)
    (output,) = serve_one_by_one(SCORED, [request]).values()
    text = output.outputs[0].token_ids
    engine = build_one(SCORED, speculation=speculation(lambda tokens: [], most=3), **PLAINLY)
    expecting = replace(request, prediction=[*before, *text[cut:], *behind])
    (again,) = serve(InProcess(engine), [expecting]).values()
    assert said(again) == said(output)
    assert engine.stats().num_steps == steps


def test_right_guesses_save_steps() -> None:
    """The first of 13 tokens comes with the prompt; k guesses make k + 1 tokens a step."""
    asked = {"max_tokens": 13, "ignore_eos": True, "temperature": 0.0}
    request = Request("0", [3, 4, 5], asked, 0, 0.0)
    (output,) = serve_one_by_one(SCORED, [request]).values()
    text = [*request.prompt, *output.outputs[0].token_ids]
    found = {}
    for most in (1, 3, 5):
        config = speculation(perfect([text]), most=most)
        engine = build_one(SCORED, speculation=config, **PLAINLY)
        (again,) = serve(InProcess(engine), [request]).values()
        assert said(again) == said(output)
        found[most] = engine.stats().num_steps
    assert found == {1: 7, 3: 4, 5: 3}
