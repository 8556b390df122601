"""A draft model with other tokens changes nothing, and what it guesses is often right.

The target is a tiny Llama. Its draft has a tokenizer of its own, and recites: it knows some texts,
by what its cache holds. Requests are preempted, and leave, while it guesses.
"""

from collections.abc import Iterable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from jax_engine.engine.startup.open_draft import DraftParts
from tests.properties.test_equal_bits import PLAIN
from tests.properties.test_speculation import (
    PLAINLY,
    check_blocks_are_free,
    suited_to_guesses,
    unified_settings,
)
from tests.support.builders import Pool, build_one
from tests.support.crowds import (
    any_found_generated,
    said,
    same_as_far,
    serve,
    serve_one_by_one,
)
from tests.support.draft_models import Watch, draft_config
from tests.support.engine_pair import MAX_LEN
from tests.support.engine_under_test import Request
from tests.support.engine_workloads import SCORED, suited, workloads
from tests.support.in_process import InProcess
from tests.support.other_words import draft_with_words, reciting
from tests.support.sometimes import saw
from tests.support.stub_runner import IN_ANY_STEP


def texts_of(outputs: Iterable[Any]) -> list[tuple[list[int], list[int]]]:
    """Prompts and what was said behind them."""
    return [
        (list(output.prompt_token_ids), list(one.token_ids))
        for output in outputs
        for one in output.outputs
    ]


@st.composite
def drafts(draw: st.DrawFn, texts: list[tuple[list[int], list[int]]]) -> DraftParts:
    """One that knows some of the texts, in a pool that may run out, and that may fail once."""
    known = [text for text in texts if draw(st.sampled_from([True, True, False]))]
    parts = draft_with_words(
        reciting(known),
        block_size=draw(st.sampled_from([1, 3, 16])),
        num_blocks=draw(st.sampled_from([9, 40, 400])),
        max_len=draw(st.sampled_from([MAX_LEN, MAX_LEN, 17])),
        budget=draw(st.sampled_from([64, 64, 5])),
    )
    runner: Any = parts.runner
    runner.fail_at = draw(st.sampled_from([None, None, None, *IN_ANY_STEP]))
    return parts


@given(
    data=st.data(),
    pool=st.sampled_from(list(PLAIN)),
    sampling=st.sampled_from(["greedy", "probabilistic"]),
    most=st.sampled_from([1, 3, 5, 9]),
    how=unified_settings(),
    workload=workloads(),
)
def test_i53_a_draft_model_with_other_tokens_changes_no_bit(
    data: st.DataObject,
    pool: Pool,
    sampling: str,
    most: int,
    how: dict[str, Any],
    workload: list[Request],
) -> None:
    """I53, of requests that leave as far as they came. I9: no blocks stay behind."""
    plain = [suited(one, pool, how) for one in workload]
    asked = [suited_to_guesses(i, one) for i, one in enumerate(plain)]
    alone = serve_one_by_one(PLAIN[pool], asked)
    # What a search, or the best of several, has when it is aborted need not be what it ends with
    may_leave = [
        one.request_id
        for one in asked
        if not (one.given["use_beam_search"] or one.given["best_of"])
    ] or ["none"]
    leaves = data.draw(st.dictionaries(st.sampled_from(may_leave), st.integers(1, 12), max_size=3))
    draft = data.draw(drafts(texts_of(alone.values())))
    config = draft_config(most, draft_sample_method=sampling)
    engine = build_one(pool, speculation=config, draft=draft, **how)
    watch = Watch(engine)
    together = serve(InProcess(engine), asked, leaves)
    generated = any_found_generated(together, asked)
    for name, output in together.items():
        if not (generated and output.num_cached_tokens):
            assert same_as_far(output, alone[name])
    stats = engine.stats()
    saw("a preemption beside other tokens", stats.num_recomputed + stats.num_swapped_out > 0)
    saw("an abort beside other tokens", any(_aborted(one) for one in together.values()))
    saw("right guesses in other tokens", sum(map(_accepted, together.values())))
    saw("guesses in other tokens", len(watch.guesses))
    check_blocks_are_free(engine)
    check_pool_is_free(watch)


def _aborted(output: Any) -> bool:
    return any(one.finish_reason == "abort" for one in output.outputs)


def _accepted(output: Any) -> int:
    return int(output.metrics.num_accepted_tokens)


def check_pool_is_free(watch: Watch) -> None:
    """I9: who has ended leaves no block in the draft's pool, once the speculator has told it."""
    drafter: Any = watch.drafter
    drafter.forget(set(watch.speculator._paces))
    assert not drafter._known and drafter._pool.num_free == drafter._pool.num_blocks


def test_right_guesses_in_other_tokens_save_steps() -> None:
    """A pair of letters is one token of the draft and two of the target's."""
    request = Request("0", [3, 4, 5], {"max_tokens": 13, "ignore_eos": True, "temperature": 0.0})
    alone = serve_one_by_one(SCORED, [request])
    draft = draft_with_words(
        reciting(texts_of(alone.values())), block_size=3, num_blocks=40, max_len=40, budget=64
    )
    engine = build_one(SCORED, speculation=draft_config(5), draft=draft, **PLAINLY)
    (again,) = serve(InProcess(engine), [request]).values()
    assert said(again) == said(alone["0"])
    assert engine.stats().num_steps <= 5
