"""A draft model's cache holds what the sequence says, after any history; and it changes nothing.

The target and its draft are stubs whose logits tell what their caches hold. The draft has the
target's own model, so each of its guesses must be what the request gets: a slot that went stale
by a preemption, a fork, a copy, a reset or a failure makes one wrong.
"""

from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_engine import InvalidRequestError, LLMEngine, SamplingParams
from tests.properties.test_equal_bits import PLAIN
from tests.properties.test_speculation import (
    check,
    check_blocks_are_free,
    suited_to_guesses,
    unified_settings,
)
from tests.support.builders import Pool, build_one, pair_without_device, stub_draft
from tests.support.crowds import serve, serve_one_by_one
from tests.support.draft_models import OtherModel, Watch, draft_config
from tests.support.engine_under_test import Request
from tests.support.engine_workloads import suited, workloads
from tests.support.in_process import InProcess
from tests.support.sometimes import saw
from tests.support.strategies import Settings, settings
from tests.support.stub_runner import IN_ANY_STEP


@dataclass(frozen=True)
class Asked:
    """A request, and the steps before which it comes and is aborted."""

    prompt: tuple[int, ...]
    given: dict[str, Any]
    step: int
    abort: int | None


@st.composite
def requests(draw: st.DrawFn, longest: int) -> list[Asked]:
    """Prompts that share beginnings; one sample and several, greedy and drawn."""
    stem = draw(st.lists(st.integers(0, 1), min_size=24, max_size=24))
    found = []
    for seed in range(draw(st.integers(2, 7))):
        tail = draw(st.lists(st.integers(0, 2), min_size=1, max_size=3))
        prompt = (*stem[: draw(st.integers(0, longest // 2))], *tail)
        params = {
            "n": draw(st.sampled_from([1, 1, 2, 3])),
            "temperature": draw(st.sampled_from([0.0, 1.3])),
            "max_tokens": draw(st.sampled_from([longest, longest, 12, 3])),
            "ignore_eos": draw(st.integers(0, 3)) > 0,
            "seed": seed,
        }
        abort = draw(st.none() | st.none() | st.integers(1, 16))
        found.append(Asked(prompt, params, draw(st.sampled_from([0, 0, 0, 1, 4])), abort))
    return found


def run(
    engine: LLMEngine,
    asked: list[Asked],
    resets: set[int],
    failures: dict[int, str],
    watch: Any,
    texts: list[list[int]],
) -> dict[str, Any]:
    """The last output of each request that is accepted."""
    found: dict[str, Any] = {}
    step, last = 0, max(one.step for one in asked)
    while step <= last or engine.has_unfinished_requests():
        for i, one in enumerate(asked):
            if one.step == step:
                try:
                    engine.add_request(str(i), [*one.prompt], SamplingParams(**one.given))
                except InvalidRequestError:
                    continue
        gone = [
            str(i)
            for i, one in enumerate(asked)
            if one.abort is not None and one.step + one.abort == step
        ]
        outputs = engine.abort_request(gone)
        if step in resets:
            engine.reset_prefix_cache(reset_running_requests=True)
        if step in failures:
            watch.runner.fail_at = failures[step]
        found |= {one.request_id: one for one in [*outputs, *engine.step()]}
        watch.check_slots(texts)
        step += 1
    return found


def texts_of(settings: Settings, asked: list[Asked]) -> dict[str, list[list[int]]]:
    """What each sample of each request says if it runs to its end, alone and without guesses."""
    engine, _ = pair_without_device(replace(settings, num_gpu_blocks=200), ahead=False)
    found: dict[str, Any] = {}
    for i, one in enumerate(asked):
        try:
            engine.add_request(str(i), [*one.prompt], SamplingParams(**one.given))
        except InvalidRequestError:
            continue
        while engine.has_unfinished_requests():
            found |= {output.request_id: output for output in engine.step()}
    return {
        name: [[*output.prompt_token_ids, *one.token_ids] for one in output.outputs]
        for name, output in found.items()
    }


@given(
    data=st.data(),
    engine_settings=settings("unified"),
    ahead=st.booleans(),
    most=st.sampled_from([1, 3, 5, 9]),
    how=st.sampled_from(["greedy", "probabilistic"]),
    own=st.booleans(),
    accepts=st.booleans(),
    budget=st.sampled_from([64, 64, 5]),
    resets=st.sets(st.integers(1, 12), max_size=2),
    failures=st.dictionaries(st.integers(0, 12), st.sampled_from(IN_ANY_STEP), max_size=2),
)
def test_i53_no_guess_is_made_from_what_is_stale(
    data: st.DataObject,
    engine_settings: Settings,
    ahead: bool,
    most: int,
    how: str,
    own: bool,
    accepts: bool,
    budget: int,
    resets: set[int],
    failures: dict[int, str],
) -> None:
    """I53 with a draft model; with the target's own, each guess is what a sample gets there."""
    asked = data.draw(requests(engine_settings.max_model_len))
    longest = data.draw(st.sampled_from([None, None, engine_settings.max_model_len // 2 + 1]))
    sizes = {"max_len": longest, "budget": budget}
    shown = (asked, most, how, own, accepts, sizes, resets, failures)
    check_no_guess_is_stale(engine_settings, ahead, *shown)


def test_nobody_takes_guesses_behind_an_end_among_right_guesses() -> None:
    """Request 0 ends with a right guess; the draft model has guessed behind a token after it."""
    few_blocks = Settings(
        block_size=2,
        num_gpu_blocks=4,
        num_cpu_blocks=0,
        watermark=0.0,
        enable_prefix_caching=False,
        max_num_seqs=6,
        max_num_batched_tokens=3,
        max_model_len=6,
        scheduling="unified",
        policy="fcfs",
        preemption_mode=None,
        enable_chunked_prefill=True,
        long_prefill_token_threshold=0,
    )
    given = {"n": 1, "max_tokens": 6}
    ends = Asked((1,), given | {"temperature": 1.3, "ignore_eos": False, "seed": 0}, 0, None)
    goes_on = Asked((0,), given | {"temperature": 0.0, "ignore_eos": True, "seed": 1}, 0, None)
    shown = ([ends, goes_on], 1, "greedy", False, True, {"max_len": None, "budget": 64}, set(), {})
    check_no_guess_is_stale(few_blocks, True, *shown)


def check_no_guess_is_stale(
    engine_settings: Settings,
    ahead: bool,
    asked: list[Asked],
    most: int,
    how: str,
    own: bool,
    accepts: bool,
    sizes: dict[str, Any],
    resets: set[int],
    failures: dict[int, str],
) -> None:
    """Serves the requests with a watch over the draft model's guesses and slots."""
    config = draft_config(most, draft_sample_method=how)
    model = None if own else OtherModel()
    draft = stub_draft(engine_settings, config, model=model, accepts=accepts, **sizes)
    engine, _ = pair_without_device(engine_settings, ahead=ahead, speculation=config, draft=draft)
    watch = Watch(engine)
    texts = texts_of(engine_settings, asked)
    every = [text for several in texts.values() for text in several]
    found = run(engine, asked, resets, failures, watch, every)
    for name, output in found.items():
        for one in output.outputs:
            text = texts[name][one.index]
            told = [*output.prompt_token_ids, *one.token_ids]
            assert told == (text if one.finish_reason != "abort" else text[: len(told)])
    if how == "greedy":
        watch.check_greedy(0.0 if own else 1.0)
    elif own:
        watch.check_drawn(every)
    assert all(count <= max(sizes["budget"], 32) for count in watch.computed)
    stats = engine.stats()
    saw("a preemption beside a draft model", stats.num_recomputed + stats.num_swapped_out > 0)
    saw("a draft model that guesses", bool(watch.guesses))
    saw("guesses behind a step that is not read", watch.num_read > 0)
    check_blocks_are_free(engine)


@pytest.mark.slow
@given(
    data=st.data(),
    pool=st.sampled_from(list(PLAIN)),
    which=st.sampled_from(["itself", "other"]),
    sampling=st.sampled_from(["greedy", "probabilistic"]),
    accepts=st.booleans(),
    how=unified_settings(),
    workload=workloads(),
)
def test_i53_a_draft_model_changes_no_bit(
    data: st.DataObject,
    pool: Pool,
    which: str,
    sampling: str,
    accepts: bool,
    how: dict[str, Any],
    workload: list[Request],
) -> None:
    """I53, with real models: log-probabilities, too."""
    plain = [suited(one, pool, how) for one in workload]
    asked = [suited_to_guesses(i, one) for i, one in enumerate(plain)]
    alone = serve_one_by_one(PLAIN[pool], asked)
    config = draft_config(data.draw(st.sampled_from([1, 3, 5])), draft_sample_method=sampling)
    drafting = replace(pool, draft=which, accepts_guesses=accepts)
    engine = build_one(drafting, speculation=config, **how)
    together = serve(InProcess(engine), asked)
    check(alone, together, asked)
    check_blocks_are_free(engine)
