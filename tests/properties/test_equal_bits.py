"""A request's tokens and log-probabilities are the same bits alone and in any company.

Each request of a workload runs alone, in large blocks and in one chunk, and then with all others
under drawn settings: chunks, blocks, pools that preempt, schedulers, steps planned ahead.
"""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.builders import Pool, build_one
from tests.support.crowds import (
    LONGEST_OUTPUT,
    Guest,
    any_found_generated,
    compare,
    crowd,
    said,
    serve,
    serve_one_by_one,
)
from tests.support.engine_pair import MAX_LEN
from tests.support.engine_under_test import Request
from tests.support.engine_workloads import (
    PENALISED,
    SCORED,
    scheduler_settings,
    suited,
    workloads,
)
from tests.support.in_process import InProcess
from tests.support.sometimes import saw

# The blocks in which a request runs alone, for those that the workload runs in.
LARGE = Pool(16, 24)  # enough for whatever the others accept
CODES, EIGHT_BITS = Pool(3, 17, cache_dtype="int8"), Pool(3, 17, weights="w8a8")
PLAIN = {PENALISED: LARGE, SCORED: LARGE, CODES: CODES, EIGHT_BITS: EIGHT_BITS}


# The first generates the two tokens with which the last's prompt goes on. The last finds them in
# the cache as decodes left them, though the second's prompt has the first of them too.
SAMPLED: dict[str, Any] = {"temperature": 1.3, "n": 1, "use_beam_search": False, "max_tokens": 5}
BEAMS: dict[str, Any] = {"temperature": 0.0, "use_beam_search": True, "max_tokens": 1}
GENERATED_FIRST = [
    Request("0", [10, 3, 5], SAMPLED),
    Request("1", [10, 3, 5, 7], BEAMS | {"n": 1}, arrival_time=1.0),
    Request("2", [10], BEAMS | {"n": 1}),
    Request("3", [10], BEAMS | {"n": 1}),
    Request("4", [10, 3, 5, 7, 3], BEAMS | {"n": 2}),
]
AT_ONCE: dict[str, Any] = {
    "scheduling": "unified", "enable_chunked_prefill": False, "prefix_caching": True,
    "async_scheduling": False, "max_num_batched_tokens": MAX_LEN, "num_cpu_blocks": 0,
}  # fmt: skip


@example(pool=SCORED, how=AT_ONCE, workload=GENERATED_FIRST)
@given(
    pool=st.sampled_from(list(PLAIN)),
    how=scheduler_settings(),
    workload=workloads(),
)
def test_i52_the_same_bits_alone_and_in_company(
    pool: Pool, how: dict[str, Any], workload: list[Request]
) -> None:
    """I52: also of what is computed again after a preemption."""
    plain = [suited(one, pool, how) for one in workload]
    requests = [
        replace(one, request_id=str(i), after=None, given=one.given | {"seed": i})
        for i, one in enumerate(plain)
    ]
    engine = build_one(pool, **how)
    together = serve(InProcess(engine), requests)
    stats = engine.stats()
    saw("a preemption beside others", stats.num_recomputed + stats.num_swapped_out > 0)
    generated = any_found_generated(together, requests)
    for request in requests:
        output = together.get(request.request_id)
        if output is None or (generated and output.num_cached_tokens):
            continue  # refused; or the one exception: a hit on what another request generated
        alone = serve_one_by_one(PLAIN[pool], [request])
        assert said(alone[request.request_id]) == said(output)


# Small enough to preempt, but for the second.
CROWDED = [
    Pool(3, 100, max_seqs=64),
    Pool(4, 2100, max_seqs=256),
    Pool(1, 200, max_seqs=16, cache_dtype="int8"),
    Pool(3, 50, max_seqs=16, weights="w8a8"),
    Pool(8, 20, max_seqs=16, weights="gptq"),
    Pool(2, 70, max_seqs=16, family="gemma3"),
    Pool(3, 100, max_seqs=64, family="gpt_oss"),
    Pool(5, 30, max_seqs=16, family="deepseek_v2"),
    Pool(3, 50, max_seqs=16, family="qwen2_moe", dtype="bfloat16"),
    Pool(3, 450, max_seqs=16, family="llama", max_len=400),
]


@st.composite
def crowds(draw: st.DrawFn) -> tuple[Pool, dict[str, Any], list[Guest]]:
    """Where it is served, by which settings, and who comes."""
    pool, how = draw(st.sampled_from(CROWDED)), draw(scheduler_settings())
    whole = max(pool.max_len, pool.max_seqs)
    steps = [16, 61, 256] if how["enable_chunked_prefill"] else [whole]
    how["max_num_batched_tokens"] = min(draw(st.sampled_from(steps)), whole)
    size = draw(st.sampled_from([2, 9, 33, 80, 256]))
    guests = crowd(
        draw(st.integers(0, 2**32)), min(size, 4 * pool.max_seqs), pool.max_len - LONGEST_OUTPUT
    )
    return pool, how, guests


@settings(max_examples=max(1, settings.default.max_examples // 5))
@given(crowds())
def test_i52_the_same_bits_in_a_crowd(drawn: tuple[Pool, dict[str, Any], list[Guest]]) -> None:
    """I52: several hundred requests, some of which leave; also windows, experts and latents."""
    pool, how, guests = drawn
    compared, engine = compare(pool, guests, **how)
    stats = engine.stats()
    saw("crowds")
    saw("requests of crowds compared", len(compared))
    saw("a preemption in a crowd", stats.num_recomputed + stats.num_swapped_out > 0)


@pytest.mark.parametrize("block_size", [1, 2, 3])
@pytest.mark.slow
def test_i52_what_another_prefilled_is_not_what_a_preempted_request_had_generated(
    block_size: int,
) -> None:
    """Preempted, it finds the tokens that it had generated in the cache: as another's prompt."""
    plain: dict[str, Any] = {
        "temperature": 0.0, "n": 1, "use_beam_search": False, "ignore_eos": True, "logprobs": 2,
    }  # fmt: skip
    prompt = [10, 3, 5, 7, 12]
    late = Request("late", prompt, plain | {"max_tokens": 20}, step=1, arrival_time=1.0)
    pool = Pool(block_size, 1 + -(-42 // block_size))
    alone = serve_one_by_one(LARGE, [late])["late"]
    generated = list(alone.outputs[0].token_ids)
    first = Request("first", [*prompt, *generated[:13], 4], plain | {"max_tokens": 14})
    engine = build_one(pool, **AT_ONCE, preemption_mode="recompute")
    together = serve(InProcess(engine), [first, late])
    assert engine.stats().num_recomputed and together["late"].num_cached_tokens
    assert said(together["late"]) == said(alone)
