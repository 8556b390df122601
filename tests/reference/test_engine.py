"""The reference's engine, with a model that shows what it read from memory (I30 to I39)."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import event, given, note
from hypothesis import strategies as st

from reference.admission import AdmissionError
from reference.engine import ReferenceEngine, lay_out
from reference.kv_cache import KVCache
from reference.random_numbers import request_seed
from reference.sampling import log_softmax
from reference.scheduler_state import SchedulerOutput
from reference.sequence import SequenceGroup
from tests.support.reading_model import ReadingModel, complete_without_cache, logits_after
from tests.support.strategies import EOS, Request, Settings, requests, settings


def new_cache(chosen: Settings) -> KVCache:
    return KVCache(
        num_layers=1,
        num_blocks=chosen.num_gpu_blocks,
        num_kv_heads=1,
        block_size=chosen.block_size,
        head_dim=1,
        num_cpu_blocks=chosen.num_cpu_blocks,
        dtype=np.float64,
    )


def new_engine(chosen: Settings, **more: Any) -> ReferenceEngine:
    return ReferenceEngine(
        ReadingModel(),
        new_cache(chosen),
        eos_token_ids={EOS},
        watermark=chosen.watermark,
        enable_prefix_caching=chosen.enable_prefix_caching,
        **(chosen.scheduler_arguments | more),
    )


def sampling_params(request: Request, **more: Any) -> Any:
    """Random sampling, so that the samples of a request differ."""
    return SimpleNamespace(**(vars(request.params) | {"temperature": 1.0, "seed": 5} | more))


def add(engine: ReferenceEngine, name: str, request: Request, params: Any) -> bool:
    try:
        engine.add_request(
            name,
            list(request.prompt),
            params,
            arrival_time=request.arrival_time,
            priority=request.priority,
            cache_salt=request.cache_salt,
        )
    except AdmissionError:
        return False
    return True


def outputs(group: SequenceGroup) -> list[tuple[list[int], list[float], str | None]]:
    return [(seq.output_token_ids, seq.logprobs, seq.finish_reason) for seq in group.seqs]


def expected(
    request: Request, params: Any, max_model_len: int
) -> list[tuple[list[int], list[float], str]]:
    samples = range(request.num_samples)
    seed = params.seed
    return [
        complete_without_cache(request.prompt, params, i, seed, {EOS}, max_model_len)
        for i in samples
    ]


@given(data=st.data(), chosen=settings())
def test_outputs_equal_those_of_a_model_without_a_cache(
    data: st.DataObject, chosen: Settings
) -> None:
    """I30 to I37 and I39: for any block size, pool, order of arrival, preemption, chunks, caching
    and company, the tokens and log-probabilities of each sample are those of its request alone."""
    note(repr(chosen))
    engine = new_engine(chosen)
    workload: dict[str, tuple[Request, Any]] = {}
    finished: list[SequenceGroup] = []
    for index in range(data.draw(st.integers(1, 8))):
        request = data.draw(requests(chosen.max_model_len))
        params = sampling_params(request, seed=index % 3)
        if add(engine, f"r{index}", request, params):
            workload[f"r{index}"] = request, params
        for _ in range(data.draw(st.integers(0, 3))):
            finished += engine.step()
    finished += engine.run()
    assert sorted(group.request_id for group in finished) == sorted(workload)
    for group in finished:
        assert outputs(group) == expected(*workload[group.request_id], chosen.max_model_len)
        if group.part_size < group.num_samples:
            event("runs in parts")


CROWDED = Settings(
    block_size=2,
    num_gpu_blocks=16,
    num_cpu_blocks=40,
    watermark=0.0,
    enable_prefix_caching=False,
    max_num_seqs=12,
    max_num_batched_tokens=24,
    max_model_len=24,
    scheduling="unified",
    policy="fcfs",
    preemption_mode=None,
    enable_chunked_prefill=True,
    long_prefill_token_threshold=0,
)
REQUEST = Request((0, 1, 0, 1, 1), 2, None, 8, 0, (), True, 0.0, 0, None)


@pytest.mark.parametrize("scheduling", ["unified", "sosp", "sosp-mixed"])
@pytest.mark.parametrize("preemption_mode", ["swap", "recompute"])
def test_preemption_happens_and_does_not_show(scheduling: str, preemption_mode: Any) -> None:
    """I31 and I33, with a crowd that cannot but preempt."""
    chosen = replace(CROWDED, scheduling=scheduling, preemption_mode=preemption_mode)
    engine = new_engine(chosen)
    workload = [replace(REQUEST, prompt=(*REQUEST.prompt, i % 3, i % 2)) for i in range(6)]
    for i, request in enumerate(workload):
        assert add(engine, str(i), request, sampling_params(request))
    finished = engine.run()
    assert engine.scheduler.num_preemptions[preemption_mode] > 0
    for group in finished:
        request = workload[int(group.request_id)]
        assert outputs(group) == expected(request, sampling_params(request), 24)


def test_samples_are_single_requests_with_derived_seeds_and_the_best_are_returned() -> None:
    """I37; of best_of samples, the n most probable."""
    engine = new_engine(replace(CROWDED, num_gpu_blocks=24))
    request = replace(REQUEST, best_of=4)
    assert add(engine, "r", request, sampling_params(request))
    [group] = engine.run()
    assert len({tuple(seq.token_ids) for seq in group.seqs}) > 1
    totals = [sum(seq.logprobs) for seq in group.seqs]
    assert [sum(seq.logprobs) for seq in group.best] == sorted(totals, reverse=True)[:2]
    params = sampling_params(request, best_of=None)
    assert add(engine, "all", request, params)
    [group] = engine.run()
    assert group.best == group.seqs and outputs(group) == expected(request, params, 24)[:2]


def test_best_of_goes_by_the_whole_output_and_not_by_its_mean() -> None:
    """-1.5 for one token is more than -2 for two, though each of these is the likelier one."""
    group = SequenceGroup("r", [1], sampling_params(REQUEST, n=1, best_of=2))
    long, short = group.leader, group.leader.fork(1, 1)
    group.seqs.append(short)
    long.logprobs, short.logprobs = [-1.0, -1.0], [-1.5]
    assert group.best == [short]


def test_each_output_token_has_the_distribution_it_was_drawn_from() -> None:
    """Each sample has them if log-probabilities are asked for: those after all tokens before it."""
    engine = new_engine(CROWDED)
    assert add(engine, "wants", REQUEST, sampling_params(REQUEST, logprobs=0))
    assert add(engine, "does not", REQUEST, sampling_params(REQUEST))
    for group in engine.run():
        for seq in group.seqs:
            if group.request_id == "does not":
                assert seq.distributions is None
                continue
            assert seq.distributions is not None and len(seq.distributions) == seq.output_len
            for at, row in enumerate(seq.distributions, group.prompt_len):
                np.testing.assert_array_equal(row, log_softmax(logits_after(seq.token_ids[:at])))
                assert row[seq.token_ids[at]] == seq.logprobs[at - group.prompt_len]


def test_cached_tokens_are_those_of_the_first_admission() -> None:
    """A request that is computed again finds its own blocks; that is no hit."""
    chosen = replace(CROWDED, enable_prefix_caching=True, preemption_mode="recompute")
    engine = new_engine(chosen)
    for i in range(6):
        request = replace(REQUEST, prompt=(*REQUEST.prompt, i % 3, i % 2))
        assert add(engine, str(i), request, sampling_params(request))
    groups = {group.request_id: group for group in engine.run()}
    assert engine.scheduler.num_preemptions["recompute"] > 0
    assert groups["0"].num_cached_tokens == 0
    assert {group.num_cached_tokens for group in groups.values()} <= {0, 2, 4, 6}
    again = replace(REQUEST, prompt=(*REQUEST.prompt, 0, 0))
    alone = new_engine(replace(chosen, num_gpu_blocks=40))
    starts = []
    for name in ("first", "second"):
        assert add(alone, name, again, sampling_params(again))
        for _ in range(3):
            alone.step()
        alone.scheduler._state.preempt(SchedulerOutput())
        [group] = alone.run()
        starts.append(group.num_cached_tokens)
    assert starts == [0, 6]


def test_what_each_request_draws_hangs_on_its_own_number() -> None:
    """There are no seeds. Requests in one order have numbers of their own, whoever else ended."""
    engine = new_engine(CROWDED, seed=3)
    params = sampling_params(REQUEST, seed=None)
    assert add(engine, "a", REQUEST, params) and add(engine, "b", REQUEST, params)
    for number, group in enumerate(sorted(engine.run(), key=lambda group: group.request_id)):
        seed = request_seed(None, 3, number)
        wanted = [
            complete_without_cache(REQUEST.prompt, params, i, seed, {EOS}, 24) for i in (0, 1)
        ]
        assert outputs(group) == wanted


@pytest.mark.parametrize("caching", [False, True])
@pytest.mark.parametrize("pool", [24, 11])
def test_more_samples_than_fit_take_turns(caching: bool, pool: int) -> None:
    """I37 and I20: nine samples in parts of three, or of one in the small pool; of best_of samples
    those of all parts are ranked. A request that came later has its turn."""
    chosen = replace(CROWDED, num_gpu_blocks=pool, max_num_seqs=3, enable_prefix_caching=caching)
    engine = new_engine(chosen)
    request, other = replace(REQUEST, n=9), replace(REQUEST, n=1)
    assert add(engine, "all", request, sampling_params(request))
    assert add(engine, "best", request, sampling_params(request, n=4, best_of=9))
    assert add(engine, "other", other, sampling_params(other))
    part_sizes = {group.part_size for group in engine.scheduler.groups.values()}
    assert part_sizes == ({3, 1} if pool == 24 else {1})
    groups = {group.request_id: group for group in engine.run()}
    wanted = expected(request, sampling_params(request), 24)
    assert len({tuple(tokens) for tokens, _, _ in wanted}) > 3
    for name in ("all", "best"):
        assert outputs(groups[name]) == wanted
        assert [seq.index for seq in groups[name].seqs] == list(range(9))
    totals = sorted((sum(logprobs) for _, logprobs, _ in wanted), reverse=True)
    assert [sum(seq.logprobs) for seq in groups["best"].best] == totals[:4]
    assert outputs(groups["other"]) == expected(other, sampling_params(other), 24)
    assert engine.block_manager.num_free_gpu_blocks == pool


def test_a_request_without_a_seed_gets_one_of_the_engine() -> None:
    def tokens(seed: int, own: int | None = None) -> list[list[int]]:
        engine = new_engine(CROWDED, seed=seed)
        for name in ("a", "b"):
            add(engine, name, REQUEST, sampling_params(REQUEST, seed=own, n=1, max_tokens=16))
        return [group.seqs[0].token_ids for group in engine.run()]

    assert tokens(1) == tokens(1) == tokens(1, own=-1) != tokens(2)
    assert tokens(1, own=-2) == tokens(2, own=-2)
    assert len({tuple(token_ids) for token_ids in tokens(1)}) == 2


def test_abort_drops_a_request_and_leaves_the_others() -> None:
    """I22: in the middle of it, and again."""
    engine = new_engine(CROWDED)
    for name in ("a", "b"):
        add(engine, name, REQUEST, sampling_params(REQUEST))
    for _ in range(3):
        engine.step()
    assert engine.abort_request("a") and not engine.abort_request("a")
    assert [group.request_id for group in engine.run()] == ["b"]
    assert not engine.has_unfinished_requests()
    assert engine.block_manager.num_free_gpu_blocks == CROWDED.num_gpu_blocks


def test_a_ragged_batch_lays_sequences_end_to_end() -> None:
    engine = new_engine(replace(CROWDED, max_num_batched_tokens=8))
    for name in ("a", "b"):
        add(engine, name, replace(REQUEST, n=1), sampling_params(replace(REQUEST, n=1)))
    batch = lay_out(engine.scheduler.schedule().scheduled, engine.block_manager)
    assert batch.token_ids.tolist() == [0, 1, 0, 1, 1, 0, 1, 0]
    assert batch.positions.tolist() == [0, 1, 2, 3, 4, 0, 1, 2]
    assert batch.block_tables.tolist() == [[15, 14, 13], [12, 11, 0]]
    assert batch.context_lens.tolist() == [5, 3]
    assert batch.query_start_loc.tolist() == [0, 5, 8]
    assert batch.slot_mapping.tolist() == [30, 31, 28, 29, 26, 24, 25, 22]


def test_without_the_admission_rule_the_engine_hangs_where_it_would_refuse() -> None:
    """The published hang (2.5): no step does anything, and nobody behind it is served."""
    too_many = replace(REQUEST, n=13)
    beams = sampling_params(too_many, use_beam_search=True)
    assert not add(new_engine(CROWDED), "r", too_many, beams)
    engine = new_engine(CROWDED, admission_rule=False)
    assert add(engine, "r", too_many, sampling_params(too_many))
    assert add(engine, "behind it", REQUEST, sampling_params(REQUEST))
    assert [engine.step() for _ in range(50)] == [[]] * 50
    assert engine.has_unfinished_requests() and not engine.scheduler.running
