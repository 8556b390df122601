"""Prompts that are given as embeddings, beside prompts of tokens, in the engine and the oracle's.

The engine's outputs are the oracle's where the embeddings are no token's. Where they are those of
tokens, its outputs are those of these tokens, to the bit.
"""

from contextlib import suppress
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jax_engine import RequestTooLargeError
from jax_engine.core.prefix_cache import EmbedsSalt
from tests.support import some_embeds as embeds
from tests.support.builders import Pool, build_pair, model_pair, oracle_for
from tests.support.engine_under_test import Request
from tests.support.engine_workloads import (
    BETWEEN,
    IN_OUTPUTS,
    PENALISED,
    WINDOWED,
    Abort,
    Service,
    aborts,
    scheduler_settings,
    suited,
    workloads,
)
from tests.support.in_numpy import InNumpy
from tests.support.in_process import InProcess
from tests.support.side_by_side import SideBySide
from tests.support.sometimes import saw

POOLS = [PENALISED, Pool(16, 6), WINDOWED]
CACHED: dict[str, Any] = {
    "scheduling": "unified", "max_num_batched_tokens": 8, "prefix_caching": True,
    "num_cpu_blocks": 0, "async_scheduling": False,
}  # fmt: skip
SWAPPED = CACHED | {"preemption_mode": "swap", "num_cpu_blocks": 60}


@st.composite
def with_embeds(draw: st.DrawFn) -> list[Request]:
    """A workload, some of whose prompts are embeddings."""
    found = []
    for request in draw(workloads()):
        number = draw(st.sampled_from([None, 0, 0, 1, 2])) if request.after is None else None
        found.append(request if number is None else as_embeds(request, number))
    return found


def as_embeds(request: Request, number: int) -> Request:
    plain = {**request.given, "prompt_logprobs": None}
    return replace(request, prompt=[0] * len(request.prompt), embeds=number, given=plain)


def run(pool: Pool, settings: dict[str, Any], workload: list[Request], plan=None):
    """Serves a workload in the engine and the oracle's, side by side."""
    engine, reference = build_pair(pool, **settings)
    exact = not settings.get("async_scheduling", True)
    pair = SideBySide(InProcess(engine), InNumpy(reference), oracle_for(pool), exact=exact)
    Service(pair, [suited(one, pool, settings) for one in workload], plan or {}).run()
    for one in pair.served:
        hits = one.output is not None and one.output.num_cached_tokens > 0
        saw("embeddings in the cache", hits and one.request.embeds is not None)
    return pair


def request(number: int | None, count: int, name: str, **given: Any) -> Request:
    """One that comes when those before it have gone on for a while."""
    params = {"temperature": 0.0, "max_tokens": 12, "ignore_eos": True, "logprobs": 0} | given
    plain = Request(name, [0] * count, params, 5 * int(name), float(name))
    return plain if number is None else as_embeds(plain, number)


SAME = [request(0, 20, "0"), request(0, 22, "1"), request(1, 20, "2"), request(None, 20, "3")]
CROWD = [
    replace(request(i % 2, 17 + i, str(i), n=n, temperature=float(n > 1), seed=i), step=0)
    for i, n in enumerate([1, 2, 1, 1, 6])
]


@given(
    pool=st.sampled_from(POOLS), settings=scheduler_settings(), workload=with_embeds(),
    plan=aborts(),
)  # fmt: skip
@example(PENALISED, CACHED, SAME, {})
@example(PENALISED, SWAPPED, CROWD, {1: Abort(3, IN_OUTPUTS)})
@example(PENALISED, CACHED | {"async_scheduling": True}, CROWD, {3: Abort(2, BETWEEN)})
def test_the_engine_gives_the_reference_s_outputs(pool, settings, workload, plan) -> None:
    """Under any block size, pool, mode, chunk size, order, company, salts and aborts."""
    run(pool, settings, workload, plan)


def test_a_prefix_is_found_as_far_as_its_embeddings_are_the_same() -> None:
    """Three blocks of three positions are common to all; none is of zeros, the tokens' ids."""
    served = run(Pool(3, 40), CACHED, SAME).served
    assert [one.output.num_cached_tokens for one in served] == [0, 18, 9, 0]


def test_an_engine_that_takes_embeddings_for_their_zeros_is_found() -> None:
    """One whose prefix cache asks what token each position has."""

    def of_block(self: EmbedsSalt, start: int, end: int) -> None:
        return None

    with patch.object(EmbedsSalt, "of_block", of_block), pytest.raises(AssertionError):
        run(Pool(3, 40), CACHED, SAME)


def outputs(pool: Pool, settings: dict[str, Any], workload: list[Request]) -> dict[str, Any]:
    """What the engine alone gives to each request that it does not refuse."""
    engine, _ = build_pair(pool, **settings)
    served, found = InProcess(engine), {}
    for one in workload:
        with suppress(RequestTooLargeError):
            served.add(one)
    while served.is_busy():
        found |= {output.request_id: output for output in served.step()}
    return {
        name: [(one.token_ids, one.logprobs, one.cumulative_logprob) for one in output.outputs]
        for name, output in found.items()
    }


@given(
    pool=st.sampled_from(POOLS), settings=scheduler_settings(), workload=workloads(),
    which=st.sets(st.integers(0, 6), min_size=1),
)  # fmt: skip
def test_embeddings_of_tokens_are_these_tokens(pool, settings, workload, which) -> None:
    """Whichever of a workload's prompts are given so.

    Without a prefix cache, which would let other requests go on behind other blocks.
    """
    settings = settings | {"prefix_caching": False}
    plain = {"repetition_penalty": 1.0, "prompt_logprobs": None}
    workload = [
        replace(suited(one, pool, settings), request_id=str(i), after=None,
                given={**suited(one, pool, settings).given, **plain})
        for i, one in enumerate(workload)
    ]  # fmt: skip
    _, transformer = model_pair(pool.sliding_window)
    table = transformer.weights["model.embed_tokens.weight"]

    def of_tokens(self: Request) -> np.ndarray | None:
        return None if self.embeds is None else table[self.prompt]

    given_so = [replace(one, embeds=0) if i in which else one for i, one in enumerate(workload)]
    with patch.object(Request, "prompt_embeds", of_tokens):
        assert outputs(pool, settings, given_so) == outputs(pool, settings, workload)


def test_prompts_of_other_numbers_differ_behind_their_beginning() -> None:
    one, other = embeds.some_embeds(1, 12), embeds.some_embeds(2, 12)
    assert (one[: embeds.COMMON] == other[: embeds.COMMON]).all()
    assert (one[embeds.COMMON :] != other[embeds.COMMON :]).all()
