"""The engine on a tiny random Llama against the reference engine: the same tokens, always.

I30 block sizes, I31 pool sizes, I32 arrivals, I33 preemption modes, I34 prefix caching, I35
chunks and modes, I36 company, I37 n samples, I39 no cache at all, I51 order and counts; and steps
planned ahead or not.
"""

from dataclasses import replace
from typing import Any

from hypothesis import event, given
from hypothesis import strategies as st

from jax_engine import RequestOutput, SamplingParams
from tests.support.engine_pair import (
    MAX_LEN,
    Pool,
    Request,
    build_pair,
    model_pair,
    naive_logits,
    same_beams_or_rounding,
    same_or_rounding,
    submit,
)
from tests.support.tiny_llama import VOCAB

# Each entry costs a set of compiled steps. All but the last are small enough to preempt.
PENALISED = Pool(3, 17)
POOLS = [PENALISED, Pool(1, 48), Pool(16, 6), Pool(8, 9, sliding_window=5), Pool(128, 5)]

# Of samples and of beams: more than MAX_SEQS samples take turns, more beams would be refused.
COUNTS = {False: [1, 2, 3, 6], True: [1, 2, 3]}


@st.composite
def scheduler_settings(draw) -> dict[str, Any]:
    scheduling = draw(st.sampled_from(["unified", "unified", "sosp", "sosp-mixed"]))
    unified = scheduling == "unified"
    chunked = unified and draw(st.booleans())
    return {
        "scheduling": scheduling,
        "enable_chunked_prefill": chunked,
        "prefix_caching": unified and draw(st.booleans()),
        "async_scheduling": draw(st.booleans()),
        "max_num_batched_tokens": draw(st.sampled_from([4, 9, MAX_LEN])) if chunked else MAX_LEN,
        "long_prefill_token_threshold": draw(st.sampled_from([0, 3])) if chunked else 0,
        "preemption_mode": draw(st.sampled_from([None, "recompute", "swap"])),
        "num_cpu_blocks": draw(st.sampled_from([0, 6, 60])),
        "policy": draw(st.sampled_from(["fcfs", "priority"])),
    }


@st.composite
def workloads(draw) -> list[Request]:
    """Prompts that share beginnings, greedy and sampled, one sample and several."""
    stem = draw(st.lists(st.integers(3, VOCAB - 1), min_size=20, max_size=20))
    requests = []
    for i in range(draw(st.integers(2, 7))):  # mostly at once: the pools must run out
        prompt = stem[: draw(st.integers(1, 20))]
        prompt += draw(st.lists(st.integers(0, VOCAB - 1), max_size=6))
        beams = draw(st.integers(0, 2)) == 0
        greedy = beams or draw(st.booleans())
        n = 1 if greedy and not beams else draw(st.sampled_from(COUNTS[beams]))
        params = SamplingParams(
            temperature=0.0 if greedy else 1.3,
            n=n,
            best_of=None if greedy else draw(st.sampled_from([None, None, n + 1])),
            use_beam_search=beams,
            length_penalty=draw(st.sampled_from([1.0, 0.0, 2.0, -0.5])) if beams else 1.0,
            early_stopping=draw(st.sampled_from([False, True, "never"])) if beams else False,
            top_k=0 if greedy else draw(st.sampled_from([0, 5])),
            repetition_penalty=draw(st.sampled_from([1.0, 1.2])),
            max_tokens=draw(st.sampled_from([1, 5, 12, 16])),
            min_tokens=draw(st.integers(0, 1)),
            ignore_eos=draw(st.booleans()),
            seed=draw(st.integers(0, 5)),
        )
        step = draw(st.sampled_from([0, 0, 0, 1, 4]))
        arrival = draw(st.sampled_from([0.0, 1.0, 2.0]))
        requests.append(Request(str(i), prompt, params, step, arrival, draw(st.integers(0, 1))))
    return requests


def run_both(pool: Pool, settings: dict[str, Any], workload: list[Request]):
    """Steps both engines side by side; returns the outputs and the groups, by request id."""
    engine, reference = build_pair(pool, **settings)
    workload = [_suited(request, pool, settings) for request in workload]
    outputs, groups = {}, {}
    step = 0
    while step <= 6 or engine.has_unfinished_requests() or reference.has_unfinished_requests():
        for request in (one for one in workload if one.step == step):
            submit(engine, reference, request)
        groups |= {group.request_id: group for group in reference.step()}
        outputs |= {output.request_id: output for output in engine.step() if output.finished}
        step += 1
        assert step < 2000, "a request hangs"
    stats = engine.stats()
    assert stats.num_used_blocks == stats.num_running == stats.num_waiting == 0  # I9, I51
    return outputs, groups, stats


def _suited(request: Request, pool: Pool, settings: dict[str, Any]) -> Request:
    """Penalties and minimum lengths in one pool only: each has compiled steps of its own."""
    if settings.get("policy") != "priority":
        request = replace(request, priority=0)
    if pool is not PENALISED:
        plain = replace(request.params, repetition_penalty=1.0, min_tokens=0)
        request = replace(request, params=plain)
    return request


@given(pool=st.sampled_from(POOLS), settings=scheduler_settings(), workload=workloads())
def test_i30_to_i36_the_engine_gives_the_reference_s_tokens(pool, settings, workload) -> None:
    """I30-I37: the same tokens under any block size, pool, mode, chunk size, order and company."""
    outputs, groups, stats = run_both(pool, settings, workload)
    if stats.num_recomputed:
        event("preempted by recompute")
    if stats.num_swapped_out:
        event("preempted by swap")
    _, transformer = model_pair(pool.sliding_window)
    assert outputs.keys() == groups.keys()
    for request in workload:
        if request.request_id not in outputs:
            continue
        output, group = outputs[request.request_id], groups[request.request_id]
        assert output.prompt_token_ids == request.prompt
        if request.params.use_beam_search:
            same_beams_or_rounding(transformer, group, output)
            continue
        check_choice(request.params, output)
        if group.part_size < group.num_samples:
            event("runs in parts")
        for one in output.outputs:
            if same_or_rounding(transformer, group, one.index, one.token_ids):
                assert one.finish_reason == group.seqs[one.index].finish_reason


def check_choice(params: SamplingParams, output: RequestOutput) -> None:
    """All samples in order; or n of best_of, the most probable first."""
    found = [one.index for one in output.outputs]
    if params.num_samples == params.n:
        assert found == list(range(params.n))
        return
    assert len(set(found)) == params.n and set(found) <= set(range(params.num_samples))
    totals = [one.cumulative_logprob for one in output.outputs]
    assert totals == sorted(totals, reverse=True)


CROWDED = [
    Request(str(i), [3 + i, 7, 11, 13 + i, 5, 9], SamplingParams(
        temperature=1.0 if n > 1 else 0.0, n=n, max_tokens=16, ignore_eos=True, seed=i
    ), 0, float(i))
    for i, n in enumerate([1, 2, 1, 1, 6])
]  # fmt: skip


def _crowded(scheduling: str, mode: str | None, num_cpu_blocks: int):
    settings = {
        "scheduling": scheduling,
        "enable_chunked_prefill": scheduling == "unified",
        "prefix_caching": False,
        "max_num_batched_tokens": MAX_LEN,
        "preemption_mode": mode,
        "num_cpu_blocks": num_cpu_blocks,
    }
    outputs, groups, stats = run_both(Pool(3, 17), settings, CROWDED)
    _, transformer = model_pair(None)
    assert len(outputs) == len(CROWDED)
    parts = groups["4"]
    assert parts.part_size < parts.num_samples == len(parts.seqs), "it takes turns with itself"
    for request in CROWDED:
        assert len(outputs[request.request_id].outputs) == request.params.n
        for one in outputs[request.request_id].outputs:
            same_or_rounding(transformer, groups[request.request_id], one.index, one.token_ids)
    return stats


def test_i31_i33_preemption_happens_in_each_mode_and_changes_nothing() -> None:
    """I31, I33: here preemption is known to occur (SEMANTICS: tests that never saturate prove
    nothing), by recompute, by swap, and by recompute because the swap space is full."""
    for scheduling in ("unified", "sosp", "sosp-mixed"):
        assert _crowded(scheduling, "recompute", 60).num_recomputed > 0
        assert _crowded(scheduling, "swap", 60).num_swapped_out > 0
        full = _crowded(scheduling, "swap", 0)
        assert full.num_recomputed > 0
        assert full.num_swapped_out == 0


def test_i34_a_warm_prefix_cache_gives_the_same_tokens() -> None:
    """I34: the second time most of the prompt is cached, and nothing else differs."""
    settings = {
        "scheduling": "unified",
        "prefix_caching": True,
        "max_num_batched_tokens": MAX_LEN,
        "num_cpu_blocks": 0,
    }
    engine, _ = build_pair(Pool(3, 17), **settings)
    params = SamplingParams(temperature=0.0, max_tokens=8, ignore_eos=True)
    prompt = list(range(3, 20))
    seen = []
    for request_id in ("cold", "warm"):
        engine.add_request(request_id, prompt, params)
        while engine.has_unfinished_requests():
            seen += [output for output in engine.step() if output.finished]
    cold, warm = seen
    assert cold.num_cached_tokens == 0
    assert warm.num_cached_tokens == 15  # 5 blocks of 3: one token at least is left to compute
    assert cold.outputs[0].token_ids == warm.outputs[0].token_ids


def test_i39_greedy_tokens_are_those_of_a_forward_pass_without_a_cache() -> None:
    """I39: every token is the argmax of a full recomputation over all tokens before it."""
    settings = {"prefix_caching": True, "max_num_batched_tokens": 9, "num_cpu_blocks": 0}
    for pool in POOLS:
        engine, _ = build_pair(pool, **settings)
        _, transformer = model_pair(pool.sliding_window)
        prompt = [5, 4, 3, 2, 1, 8, 9]
        params = SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True)
        engine.add_request("0", prompt, params)
        while engine.has_unfinished_requests():
            outputs = engine.step()
        tokens = list(prompt)
        for token in outputs[0].outputs[0].token_ids:
            logits = naive_logits(transformer, tokens)
            assert logits[token] > logits.max() - 1e-4
            tokens.append(token)
