"""The engine on a tiny random Llama against the reference engine: the same outputs, always.

I22 aborts before the first step, between steps, while the outputs of a step are looked at, and by
deadline; I30 block sizes, I31 pool sizes, I32 arrivals, I33 preemption modes, I34 prefix caching
and what is said of it, I35 chunks and modes, I36 company, I37 n samples, I39 no cache at all, I51
counts; and steps planned ahead or not. Outputs are tokens, reasons, log-probabilities and times.
"""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jax_engine import SamplingParams
from tests.support.builders import Pool, build_pair, model_pair, oracle_for
from tests.support.engine_pair import MAX_LEN, naive_logits
from tests.support.engine_under_test import Request
from tests.support.engine_workloads import (
    BETWEEN,
    IN_OUTPUTS,
    PENALISED,
    POOLS,
    SCORED,
    WINDOWED,
    Abort,
    Service,
    aborts,
    scheduler_settings,
    suited,
    workloads,
)
from tests.support.in_numpy import InNumpy
from tests.support.in_process import InProcess, run
from tests.support.side_by_side import SideBySide


def run_both(pool: Pool, settings: dict[str, Any], workload: list[Request], plan=None):
    """Serves the workload by both engines, side by side, to the end; all comparisons are made."""
    engine, reference = build_pair(pool, **settings)
    transformer = oracle_for(pool)
    exact = not settings.get("async_scheduling", True)
    pair = SideBySide(InProcess(engine), InNumpy(reference), transformer, exact=exact)
    Service(pair, [suited(one, pool, settings) for one in workload], plan or {}).run()
    return pair


# A preempted beam search finds its prompt in the cache: all its beams have it as soon as it runs.
BEAMS: dict[str, Any] = {"use_beam_search": True, "temperature": 0.0, "max_tokens": 12}
FOUND_AGAIN = [
    Request(str(i), [3] * 9, BEAMS | {"n": n, "ignore_eos": True}, 0, 0.0)
    for i, n in enumerate([1, 1, 2, 1])
]
FEW_TOKENS: dict[str, Any] = {
    "prefix_caching": True, "async_scheduling": False, "max_num_batched_tokens": 4,
    "num_cpu_blocks": 0,
}  # fmt: skip


@given(pool=st.sampled_from(POOLS), settings=scheduler_settings(), workload=workloads())
@example(Pool(3, 17), FEW_TOKENS, FOUND_AGAIN)
def test_i30_to_i37_the_engine_gives_the_reference_s_outputs(pool, settings, workload) -> None:
    """I29-I37, I51: under any block size, pool, mode, chunk size, order, company and salts."""
    run_both(pool, settings, workload)


@st.composite
def timed_workloads(draw: st.DrawFn) -> list[Request]:
    """Some have a deadline, which falls between two steps or on one."""
    timeouts = st.sampled_from([None, None, None, 0.5, 2.0, 3.5, 8.0])
    return [replace(request, timeout=draw(timeouts)) for request in draw(workloads())]


CACHED: dict[str, Any] = {
    "scheduling": "unified", "max_num_batched_tokens": MAX_LEN, "prefix_caching": True,
    "num_cpu_blocks": 0,
}  # fmt: skip
SWAPPED = CACHED | {"preemption_mode": "swap", "num_cpu_blocks": 60}
LONG = [
    Request(
        str(i), [3 + i] * 9,
        {"temperature": 1.3 * (n > 1), "n": n, "max_tokens": 16, "ignore_eos": True, "seed": i},
        0, float(i),
    )
    for i, n in enumerate([1, 6, 1, 1])
]  # fmt: skip


@given(
    pool=st.sampled_from([PENALISED, SCORED, Pool(16, 6)]),  # they preempt each other in all
    settings=scheduler_settings(), workload=timed_workloads(), plan=aborts(),
)  # fmt: skip
@example(PENALISED, SWAPPED, LONG, {1: Abort(3, IN_OUTPUTS), 3: Abort(5, BETWEEN)})
@example(PENALISED, CACHED, LONG, dict.fromkeys(range(4), Abort(2, BETWEEN)))
def test_i22_aborts_at_any_moment_touch_nobody_else(pool, settings, workload, plan) -> None:
    """I9, I20, I22, I36: no leak, no hang, and others' outputs as without the aborts."""
    run_both(pool, settings, workload, plan)


FEW = Pool(3, 17)
CROWDED = [
    Request(
        str(i), [3 + i, 7, 11, 13 + i, 5, 9],
        {"temperature": float(n > 1), "n": n, "max_tokens": 16, "ignore_eos": True, "seed": i},
        0, float(i),
    )
    for i, n in enumerate([1, 2, 1, 1, 6])
]  # fmt: skip


def crowded(
    scheduling: str, mode: str, num_cpu_blocks: int = 60, *, pool: Pool = FEW, budget: int = MAX_LEN
) -> Any:
    """The engine's counters, once more requests than fit have ended as the oracle's."""
    settings = {
        "scheduling": scheduling,
        "enable_chunked_prefill": scheduling == "unified",
        "prefix_caching": False,
        "max_num_batched_tokens": budget,
        "preemption_mode": mode,
        "num_cpu_blocks": num_cpu_blocks,
    }
    pair = run_both(pool, settings, CROWDED)
    parts = pair.served[4].group
    assert parts.part_size < parts.num_samples == len(parts.seqs), "it takes turns with itself"
    for served in pair.served:
        assert len(served.output.outputs) == served.request.given["n"]
    return pair.engine.debug_state().stats


class InNumpyButWrong(InNumpy):
    """An engine whose outputs lack their last token."""

    def step(self) -> list[Any]:
        outputs = super().step()
        for output in outputs:
            output.outputs = [replace(one, token_ids=one.token_ids[:-1]) for one in output.outputs]
        return outputs


@pytest.mark.parametrize("adapter", [InNumpy, InNumpyButWrong])
def test_another_engine_stands_in_the_engine_s_place(adapter: type[InNumpy]) -> None:
    """As docs/conformance.md says, its steps need not be the reference's; its tokens must."""
    settings = CACHED | {"enable_chunked_prefill": True}
    (_, other), (_, reference) = build_pair(FEW, **settings), build_pair(FEW, **settings)
    pair = SideBySide(adapter(other), InNumpy(reference), oracle_for(FEW), exact=False)
    service = Service(pair, [suited(one, FEW, settings) for one in CROWDED], {})
    if adapter is InNumpy:
        service.run()
        assert len(pair.served) == len(CROWDED)
    else:
        with pytest.raises(AssertionError):
            service.run()


@pytest.mark.slow
def test_i31_i33_preemption_happens_in_each_mode_and_changes_nothing() -> None:
    """I31, I33: here preemption is known to occur (SEMANTICS: tests that never saturate prove
    nothing), by recompute, by swap, and by recompute because the swap space is full."""
    for scheduling in ("unified", "sosp", "sosp-mixed"):
        assert crowded(scheduling, "recompute").num_recomputed > 0
        assert crowded(scheduling, "swap").num_swapped_out > 0
        full = crowded(scheduling, "swap", 0)
        assert full.num_recomputed > 0
        assert full.num_swapped_out == 0


def test_i34_a_warm_prefix_cache_gives_the_same_tokens() -> None:
    """I34: the second time most of the prompt is cached, and nothing else differs."""
    engine, _ = build_pair(FEW, **CACHED)
    params = SamplingParams(temperature=0.0, max_tokens=8, ignore_eos=True)
    prompt = list(range(3, 20))
    engine.add_request("cold", prompt, params)
    cold = run(engine)[-1]
    engine.add_request("warm", prompt, params)
    warm = run(engine)[-1]
    assert cold.num_cached_tokens == 0
    assert warm.num_cached_tokens == 15  # 5 blocks of 3: one token at least is left to compute
    assert cold.outputs[0].token_ids == warm.outputs[0].token_ids


def test_i4_a_window_frees_no_block() -> None:
    """I4: it bounds what attention reads. No two positions share a block, and none is given back
    before its sequence ends: whoever begins alike finds those that have left the window, too.
    """
    engine, reference = build_pair(
        WINDOWED, prefix_caching=True, async_scheduling=False, num_cpu_blocks=0,
        max_num_batched_tokens=MAX_LEN,
    )  # fmt: skip
    _, transformer = model_pair(WINDOWED.sliding_window)
    pair = SideBySide(InProcess(engine), InNumpy(reference), transformer, exact=True)
    prompt, given = list(range(3, 20)), {"temperature": 0.0, "max_tokens": 20, "ignore_eos": True}
    first = pair.add(Request("first", prompt, given, 0, 0.0))
    assert first is not None and len(prompt) > 3 * (WINDOWED.sliding_window or 0)
    pair.step()
    while first.runs:
        assert first.output is not None
        num_computed = len(prompt) + len(first.output.outputs[0].token_ids) - 1
        assert engine.stats().num_used_blocks == -(-num_computed // WINDOWED.block_size)
        pair.step()
    again = pair.add(Request("again", prompt, given, 0, float(pair.now)))
    pair.finish()
    assert again is not None and again.output is not None
    assert again.output.num_cached_tokens == 16
    assert again.output.outputs[0].token_ids == first.output.outputs[0].token_ids


def test_i39_greedy_tokens_are_those_of_a_forward_pass_without_a_cache() -> None:
    """I39: every token is the argmax of a full recomputation over all tokens before it."""
    settings = {"prefix_caching": True, "max_num_batched_tokens": 9, "num_cpu_blocks": 0}
    for pool in POOLS:
        engine, _ = build_pair(pool, **settings)
        _, transformer = model_pair(pool.sliding_window)
        prompt = [5, 4, 3, 2, 1, 8, 9]
        params = SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True)
        engine.add_request("0", prompt, params)
        tokens = list(prompt)
        for token in run(engine)[-1].outputs[0].token_ids:
            logits = naive_logits(transformer, tokens)
            assert logits[token] > logits.max() - 1e-4
            tokens.append(token)
