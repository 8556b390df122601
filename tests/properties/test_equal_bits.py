"""A request's tokens and log-probabilities are the same bits alone and in any company.

Each request of a workload runs alone, in large blocks and in one chunk, and then with all others
under drawn settings: chunks, blocks, pools that preempt, schedulers, steps planned ahead.
"""

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from jax_engine import RequestOutput
from tests.support.builders import MAX_LEN, Pool, build_pair
from tests.support.engine_under_test import EngineUnderTest, Request
from tests.support.engine_workloads import (
    PENALISED,
    SCORED,
    scheduler_settings,
    suited,
    workloads,
)
from tests.support.in_process import InProcess
from tests.support.sometimes import saw

ALONE: dict[str, Any] = {
    "scheduling": "unified", "prefix_caching": False, "max_num_batched_tokens": MAX_LEN,
    "num_cpu_blocks": 0,
}  # fmt: skip
# The blocks in which a request runs alone, for those that the workload runs in.
LARGE = Pool(16, 24)  # enough for whatever the others accept
CODES, EIGHT_BITS = Pool(3, 17, cache_dtype="int8"), Pool(3, 17, weights="w8a8")
PLAIN = {PENALISED: LARGE, SCORED: LARGE, CODES: CODES, EIGHT_BITS: EIGHT_BITS}


@given(
    pool=st.sampled_from(list(PLAIN)),
    settings=scheduler_settings(),
    workload=workloads(),
)
def test_i52_the_same_bits_alone_and_in_company(
    pool: Pool, settings: dict[str, Any], workload: list[Request]
) -> None:
    """I52: also of what is computed again after a preemption."""
    plain = [suited(one, pool, settings) for one in workload]
    requests = [
        replace(one, request_id=str(i), after=None, given=one.given | {"seed": i})
        for i, one in enumerate(plain)
    ]
    engine, _ = build_pair(pool, **settings)
    together = serve(InProcess(engine), requests)
    stats = engine.stats()
    saw("a preemption beside others", stats.num_recomputed + stats.num_swapped_out > 0)
    generated = {name for name, output in together.items() if found_generated(output, requests)}
    for request in requests:
        output = together.get(request.request_id)
        if output is None or (generated and output.num_cached_tokens):
            continue  # refused; or the one exception: a hit on what another request generated
        alone, _ = build_pair(PLAIN[pool], **ALONE)
        assert said(serve(InProcess(alone), [request])[request.request_id]) == said(output)


def serve(engine: EngineUnderTest, requests: list[Request]) -> dict[str, RequestOutput]:
    """The last output of each request that is not refused, by its id."""
    outputs: dict[str, RequestOutput] = {}
    waiting, now = list(requests), 0
    engine.clock = lambda: float(now)
    while waiting or engine.is_busy():
        for request in [one for one in waiting if one.step <= now]:
            waiting.remove(request)
            try:
                engine.add(request)
            except ValueError:
                continue
        outputs |= {one.request_id: one for one in engine.step() if one.finished}
        now += 1
    return outputs


def found_generated(output: RequestOutput, requests: list[Request]) -> bool:
    """Whether the cache held more of its prompt than any other prompt has."""
    prompt, shared = list(output.prompt_token_ids), 0
    for other in requests:
        if other.request_id != output.request_id:
            pairs = enumerate(zip(prompt, other.prompt, strict=False))
            same = next((i for i, (a, b) in pairs if a != b), min(len(prompt), len(other.prompt)))
            shared = max(shared, same)
    return (output.num_cached_tokens or 0) > shared


def said(output: RequestOutput) -> tuple[Any, ...]:
    """All that a request gets, with all digits."""
    samples = [
        (one.index, one.token_ids, one.finish_reason, one.cumulative_logprob, words(one.logprobs))
        for one in output.outputs
    ]
    return samples, words(output.prompt_logprobs)


def words(logprobs: Any) -> Any:
    """Log-probabilities as plain numbers: the order of equal ones does not count."""
    if logprobs is None:
        return None
    return [
        None if one is None else sorted((token, (p.logprob, p.rank)) for token, p in one.items())
        for one in logprobs
    ]
