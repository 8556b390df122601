"""`thinking_token_budget`: the engine's outputs are those of the oracle's rule."""

from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from jax_engine.engine.requests.masks import ConstraintBuilder
from jax_engine.engine.requests.thinking_budget import MarkerTokens, ThinkingBudget
from reference.thinking import Thinking
from tests.properties.test_engine_against_reference import run_both
from tests.support.builders import Pool, model_pair
from tests.support.engine_pair import MAX_LEN, same_or_rounding
from tests.support.engine_under_test import Limits, Request

POOLS = [Pool(3, 17), Pool(16, 6)]  # small enough to preempt
WORDS = [5, 9, 11]  # few, so that markers come by chance
words = st.lists(st.sampled_from(WORDS), max_size=12)
sequences = st.lists(st.sampled_from(WORDS), min_size=1, max_size=3).map(tuple)


@st.composite
def marker_tokens(draw: st.DrawFn) -> MarkerTokens:
    ends = draw(st.lists(sequences, min_size=1, max_size=2))
    close = (*draw(words)[:2], *ends[0])
    begins = draw(st.lists(sequences, min_size=1, max_size=2))
    return MarkerTokens(tuple(begins), (*ends, close), close, draw(st.booleans()))


def rule_of(markers: MarkerTokens, budget: int) -> Thinking:
    return Thinking(
        budget=budget,
        begins=markers.begins,
        ends=markers.ends,
        close=markers.close,
        inside=markers.inside,
    )


@given(
    markers=marker_tokens(), budget=st.integers(0, 6), prompt=words, output=words,
    known=st.integers(0, 12),
)  # fmt: skip
def test_one_rule_read_twice(
    markers: MarkerTokens, budget: int, prompt: list[int], output: list[int], known: int
) -> None:
    """From any number of known tokens with the rest as guesses, and after any history."""
    engine = ThinkingBudget.of(markers, budget, prompt, None)
    for count in range(min(known, len(output)) + 1):
        wanted = rule_of(markers, budget).forced(prompt, output)
        assert engine.forced(0, [*prompt, *output[:count]], output[count:]) == wanted
    if wanted is not None:
        assert len(output) >= engine.num_free


@st.composite
def workloads(draw: st.DrawFn, markers: MarkerTokens) -> list[Request]:
    requests = []
    for i in range(draw(st.integers(1, 5))):
        budget = draw(st.sampled_from([0, 1, 2, 5]))
        kind = draw(st.sampled_from(["greedy", "sampled", "n", "free"]))
        own: dict[str, Any] = {
            "max_tokens": 12, "ignore_eos": draw(st.booleans()), "seed": i,
            "allowed_token_ids": draw(st.sampled_from([None, WORDS])),
            "logit_bias": {token: 5.0 for token in WORDS},
            "temperature": 0.0 if kind == "greedy" else 1.3, "n": 3 if kind == "n" else 1,
        }  # fmt: skip
        limits = None
        if kind != "free":
            own["thinking_token_budget"] = budget
            limits = Limits(thinking=rule_of(markers, budget))
        prompt = [*draw(words), 3 + i]
        step = draw(st.integers(0, 2))
        requests.append(Request(str(i), prompt, own, step, float(i), limits=limits))
    return requests


@pytest.mark.slow
@given(
    data=st.data(),
    pool=st.sampled_from(POOLS),
    markers=marker_tokens(),
    scheduling=st.sampled_from(["unified", "unified", "sosp", "sosp-mixed"]),
    async_scheduling=st.booleans(),
    mode=st.sampled_from([None, "recompute", "swap"]),
)
def test_the_engine_ends_reasoning_where_the_oracle_does(
    data, pool, markers, scheduling, async_scheduling, mode
) -> None:
    """Under preemption, forks, chunks, and steps planned ahead."""
    workload = data.draw(workloads(markers))
    settings = {
        "scheduling": scheduling, "enable_chunked_prefill": scheduling == "unified",
        "prefix_caching": scheduling == "unified", "async_scheduling": async_scheduling,
        "max_num_batched_tokens": MAX_LEN, "preemption_mode": mode, "num_cpu_blocks": 60,
    }  # fmt: skip
    with patch.object(ConstraintBuilder, "_marker_tokens", markers):
        pair = run_both(pool, settings, workload)
    _, transformer = model_pair(None)
    for served in pair.served:
        output, group = served.output, served.group
        assert len(output.outputs) == len(group.seqs)
        for one in output.outputs:
            event("compared" if one.token_ids else "nothing")
            same_or_rounding(transformer, group, one.index, one.token_ids)
