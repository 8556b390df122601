"""The engine over an 8-bit KV cache against the reference engine over the same one.

I30 to I37 with keys and values as int8 or float8: they are quantised when they are written, and
whatever moves, shares or computes them again must not change them. The oracle takes the engine's
scales. Where a number lies between two codes, rounding may give another code than the oracle's, so
logits differ by more than they do over a cache of float32 (`TOLERANCES`).
"""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from jax_engine import SamplingParams
from tests.properties.test_engine_against_reference import crowded, run_both
from tests.support.builders import Pool, build_pair, model_pair, oracle_for
from tests.support.engine_pair import (
    MAX_LEN,
    TOLERANCES,
    cache_for,
    naive_logits,
    same_beams_or_rounding,
    tolerance_of,
    tolerance_of_sum,
)
from tests.support.engine_under_test import Request
from tests.support.engine_workloads import scheduler_settings, workloads
from tests.support.in_process import run

INT8 = Pool(3, 17, cache_dtype="int8")
FP8 = Pool(8, 9, sliding_window=5, cache_dtype="fp8")
POOLS = {"int8": INT8, "fp8": FP8}
DTYPES = {"int8": "int8", "fp8": "float8_e4m3fn"}
in_both = pytest.mark.parametrize("pool", POOLS.values(), ids=POOLS)


@in_both
@given(scheduler=scheduler_settings(), workload=workloads())
@settings(max_examples=min(8, settings.default.max_examples))
def test_i30_to_i37_over_an_8_bit_cache(
    pool: Pool, scheduler: dict[str, Any], workload: list[Request]
) -> None:
    """Any mode, chunks, order, company: prefixes are shared, beams and samples fork."""
    run_both(pool, scheduler, workload)


def test_a_sum_over_a_beam_is_off_by_no_more_than_its_terms() -> None:
    """Nine terms, each a little below its tolerance: their sum is not below that of one."""
    off = 0.9 * TOLERANCES["int8"]
    beam: dict[str, Any] = {"finish_reason": "length", "stop_reason": None}
    wanted = SimpleNamespace(
        output_token_ids=[3] * 9, logprobs=[-1.0] * 9, cumulative_logprob=-9.0, **beam
    )

    def matches(pool: Pool, total: float) -> bool:
        logprobs = [{3: SimpleNamespace(logprob=-1.0 - off)}] * 9
        found = SimpleNamespace(
            token_ids=[3] * 9, logprobs=logprobs, cumulative_logprob=total, **beam
        )
        group: Any = SimpleNamespace(best=[wanted])
        output: Any = SimpleNamespace(outputs=[found])
        return same_beams_or_rounding(oracle_for(pool), group, output)

    assert matches(INT8, -9 * (1 + off))
    for pool, total in ((INT8, -9.0), (Pool(3, 17), -9 * (1 + off))):
        with pytest.raises(AssertionError):
            matches(pool, total)


@pytest.mark.parametrize("mode", ["recompute", "swap"])
def test_i31_i33_preemption_changes_no_code(mode: str) -> None:
    """Swapping carries codes as they are, and recomputing makes the same ones."""
    stats = crowded("unified", mode, pool=INT8, budget=9)
    assert (stats.num_swapped_out if mode == "swap" else stats.num_recomputed) > 0


def greedy(pool: Pool, prompts: list[list[int]], **plan: Any) -> tuple[Any, list[Any]]:
    """The engine, and its outputs for prompts that come one behind the other."""
    given: dict[str, Any] = {"max_num_batched_tokens": MAX_LEN, "num_cpu_blocks": 0}
    engine, _ = build_pair(pool, prefix_caching=True, **given | plan)
    params = SamplingParams(temperature=0.0, max_tokens=8, ignore_eos=True, logprobs=0)
    outputs = []
    for i, prompt in enumerate(prompts):
        engine.add_request(str(i), prompt, params)
        outputs += [one for one in run(engine) if one.finished]
    return engine, outputs


@in_both
def test_i34_what_was_cached_is_what_would_be_computed(pool: Pool) -> None:
    prompt = list(range(3, 20))
    _, (cold, warm) = greedy(pool, [prompt, prompt])
    assert (cold.num_cached_tokens, warm.num_cached_tokens > 10) == (0, True)
    assert cold.outputs[0].token_ids == warm.outputs[0].token_ids
    sums = [one.outputs[0].cumulative_logprob for one in (cold, warm)]
    count = len(cold.outputs[0].token_ids)
    assert abs(sums[0] - sums[1]) < tolerance_of_sum(oracle_for(pool), count)


@in_both
def test_i39_greedy_tokens_are_the_oracle_s_over_the_same_cache(pool: Pool) -> None:
    """Up to the margin of the oracle's own logits; in chunks that cut blocks."""
    prompts = [[5, 4, 3, 2, 1, 8, 9], list(range(12, 30))]
    oracle = oracle_for(pool)
    outputs = greedy(pool, prompts, max_num_batched_tokens=5)[1]
    for prompt, output in zip(prompts, outputs, strict=True):
        tokens = list(prompt)
        for token in output.outputs[0].token_ids:
            logits = naive_logits(oracle, tokens)
            assert logits[token] > logits.max() - tolerance_of(oracle)
            tokens.append(token)


@in_both
def test_the_codes_in_the_cache_are_the_oracle_s(pool: Pool) -> None:
    """All but a few, which are a step away; none stands for what is not a number."""
    engine, _ = build_pair(
        pool, prefix_caching=False, max_num_batched_tokens=7, num_cpu_blocks=0,
    )  # fmt: skip
    tokens = [int(one) for one in np.random.default_rng(1).integers(3, 31, 20)]
    engine.add_request("0", tokens, SamplingParams(temperature=0.0, max_tokens=9, ignore_eos=True))
    for _ in range(4):
        engine.step()
    [group] = engine.scheduler.running
    table = engine.scheduler.block_manager.block_table(group.seqs[0].seq_id)
    array = np.asarray(engine.worker.kv_cache.array)
    assert array.dtype == engine.worker.kv_cache.host.dtype == DTYPES[pool.cache_dtype]
    assert array.nbytes == pool.num_blocks * 2 * 2 * 2 * pool.block_size * 8
    found = np.moveaxis(array[:, :, table], 2, 3).astype(np.float32)
    found = found.reshape(*found.shape[:3], -1, found.shape[-1])[..., : len(tokens), :]

    oracle = oracle_for(pool)
    cache = cache_for(oracle, num_blocks=1, block_size=len(tokens))
    places = np.arange(len(tokens))
    lens, starts = np.array([len(tokens)]), np.array([0, len(tokens)])
    oracle.forward(np.array(tokens), places, cache, np.array([[0]]), lens, starts, places)
    wanted = cache.gpu[:, :, 0]
    assert np.isfinite(found).all() and np.abs(found).max() > 1
    away = np.abs(found - wanted)
    assert (away > 0).mean() < 0.01
    step = 1 if pool is INT8 else 2.0**-3 * np.maximum(np.abs(wanted), 2.0**-6)
    assert (away <= step).all()


@in_both
def test_an_8_bit_cache_is_not_the_model_s(pool: Pool) -> None:
    """The tolerance is not so wide that the quantisation itself would pass."""
    _, plain = model_pair(pool.sliding_window)
    oracle, tokens = oracle_for(pool), list(range(3, 29))
    differences = np.abs(naive_logits(plain, tokens) - naive_logits(oracle, tokens))
    assert differences.max() > tolerance_of(oracle)
