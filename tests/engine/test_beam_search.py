"""§4.4, beam search through the API: against all outputs there are, mixed batches, errors, text."""

import math
from itertools import product
from typing import Any

import numpy as np
import pytest

from jax_engine import (
    LLM,
    BeamSearchParams,
    InvalidRequestError,
    RequestTooLargeError,
    SamplingParams,
)
from jax_engine.config.speculative_config import SpeculativeConfig
from jax_engine.engine.results import beam_search_output, check_beams
from jax_engine.outputs import BeamSearchSequence, CompletionOutput, Logprob, RequestOutput
from reference import sampling as oracle
from tests.support.builders import small_engine
from tests.support.engine_pair import naive_logits
from tests.support.in_process import check_idle, run
from tests.support.tiny_llama import EOS, VOCAB, tiny_llama

SETTINGS = {"skip_tokenizer_init": True, "block_size": 4, "max_model_len": 40, "max_num_seqs": 40}
PROMPT = [4, 5, 6, 7, 8]


@pytest.fixture(scope="module")
def llm(checkpoint):
    return LLM(str(checkpoint[0]), num_gpu_blocks_override=400, **SETTINGS)


def beams(**changes: Any) -> SamplingParams:
    settings = {"use_beam_search": True, "n": 3, "temperature": 0.0, "max_tokens": 8}
    return SamplingParams(**(settings | changes))


def token_lists(output: Any) -> list[list[int]]:
    return [one.token_ids for one in output.outputs]


def logprobs_after(transformer: Any, tokens: list[int]) -> np.ndarray:
    return oracle.log_softmax(naive_logits(transformer, tokens))


@pytest.mark.parametrize("temperature", [0.0, 0.5])
@pytest.mark.slow
def test_i38_as_wide_as_the_vocabulary_it_is_exhaustive(llm, checkpoint, temperature) -> None:
    """I38: of all outputs of two tokens the most probable ones, of log-probabilities that the
    temperature has divided."""
    divisor = temperature or 1.0

    def after(tokens: list[int]) -> np.ndarray:
        return oracle.log_softmax(naive_logits(checkpoint[1], tokens) / divisor)

    first = after(PROMPT)
    second = [after([*PROMPT, token]) for token in range(VOCAB)]
    total = {(a, b): first[a] + second[a][b] for a, b in product(range(VOCAB), repeat=2)}
    best = sorted(total, key=lambda pair: -total[pair])[:VOCAB]
    params = beams(n=VOCAB, max_tokens=2, ignore_eos=True, temperature=temperature)
    (output,) = llm.generate([PROMPT], params, use_tqdm=False)
    assert [tuple(tokens) for tokens in token_lists(output)] == best
    for one, pair in zip(output.outputs, best, strict=True):
        assert one.cumulative_logprob == pytest.approx(total[pair], abs=1e-4)
        assert one.finish_reason == "length"


def test_i38_width_one_is_greedy(llm) -> None:
    greedy = SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True)
    (alone,) = llm.generate([PROMPT], greedy, use_tqdm=False)
    (beam,) = llm.generate([PROMPT], beams(n=1, max_tokens=12, ignore_eos=True), use_tqdm=False)
    assert token_lists(beam) == token_lists(alone)


@pytest.mark.slow
def test_log_probabilities_are_the_model_s(llm, checkpoint) -> None:
    (output,) = llm.generate([PROMPT], beams(ignore_eos=True), use_tqdm=False)
    scores = []
    for one in output.outputs:
        tokens, total = list(PROMPT), 0.0
        for token, entry in zip(one.token_ids, one.logprobs, strict=True):
            wanted = logprobs_after(checkpoint[1], tokens)
            assert list(entry) == [token]
            assert entry[token].logprob == pytest.approx(wanted[token], abs=1e-4)
            assert entry[token].rank == 1 + int(np.sum(wanted > wanted[token]))
            total += entry[token].logprob
            tokens.append(token)
        assert one.cumulative_logprob == pytest.approx(total)
        scores.append(total / len(one.token_ids))
    assert scores == sorted(scores, reverse=True)
    assert [one.index for one in output.outputs] == [0, 1, 2]


def test_edits_of_logits_apply_to_beams(llm, checkpoint) -> None:
    """The log-probabilities are those after bias and penalties, not the raw ones."""
    bias = {token: -100.0 for token in range(VOCAB) if token not in (10, 11, 12)}
    params = beams(n=2, max_tokens=1, logit_bias=bias, min_tokens=1, stop_token_ids=[12])
    (output,) = llm.generate([PROMPT], params, use_tqdm=False)
    raw = naive_logits(checkpoint[1], PROMPT)[[10, 11]]
    wanted = oracle.log_softmax(raw)
    found = {one.token_ids[0]: one.cumulative_logprob for one in output.outputs}
    assert found == pytest.approx({10: wanted[0], 11: wanted[1]}, abs=1e-3)


def test_an_end_of_sequence_ends_a_hypothesis_and_others_go_on(llm) -> None:
    (free,) = llm.generate([PROMPT], beams(ignore_eos=True, max_tokens=10), use_tqdm=False)
    stop = free.outputs[0].token_ids[4]
    params = beams(stop_token_ids=[stop], ignore_eos=True, max_tokens=10)
    (output,) = llm.generate([PROMPT], params, use_tqdm=False)
    ended = [one for one in output.outputs if one.finish_reason == "stop"]
    assert ended
    for one in output.outputs:
        assert stop not in one.token_ids[:-1]
        assert (one.stop_reason == stop) == (one.token_ids[-1] == stop) == (one in ended)


MIXED = [
    beams(max_tokens=9),
    SamplingParams(temperature=0.0, max_tokens=7),
    SamplingParams(n=3, seed=5, max_tokens=9, ignore_eos=True),
    beams(n=2, best_of=4, length_penalty=2.0, early_stopping="never", temperature=0.7),
    SamplingParams(temperature=0.9, seed=9, logprobs=2, max_tokens=12),
    beams(n=4, early_stopping=True, frequency_penalty=0.5, logit_bias={EOS: 4.0}),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        {"num_gpu_blocks_override": 400},
        {"num_gpu_blocks_override": 26, "preemption_mode": "recompute"},
        {"num_gpu_blocks_override": 26, "preemption_mode": "swap"},
        {"num_gpu_blocks_override": 40, "scheduling": "sosp"},
        {"num_gpu_blocks_override": 40, "scheduling": "sosp-mixed"},
        {"num_gpu_blocks_override": 400, "max_num_batched_tokens": 8, "max_num_seqs": 8},
        {"num_gpu_blocks_override": 400, "async_scheduling": False},
    ],
    ids=lambda settings: " ".join(map(str, settings.values())),
)
def test_i36_mixed_decoding_gives_each_the_same_as_alone(llm, checkpoint, settings) -> None:
    """§4.4: greedy, sampled, n > 1 and beams of several widths share a batch."""
    prompts = [[3 + i, 9, 4 + i, 20 - i, 7, 8 + i][: 3 + i % 4] for i in range(len(MIXED))]
    alone = [
        llm.generate([prompt], one, use_tqdm=False)[0]
        for prompt, one in zip(prompts, MIXED, strict=True)
    ]
    other = LLM(str(checkpoint[0]), **(SETTINGS | settings))
    together = other.generate(prompts * 2, MIXED * 2, use_tqdm=False)
    for found, wanted in zip(together, alone * 2, strict=True):
        assert token_lists(found) == token_lists(wanted)
        for one, two in zip(found.outputs, wanted.outputs, strict=True):
            assert (one.finish_reason, one.stop_reason) == (two.finish_reason, two.stop_reason)
            if two.cumulative_logprob is not None:
                assert one.cumulative_logprob == pytest.approx(two.cumulative_logprob, abs=1e-3)
    check_idle(other.llm_engine)
    stats = other.llm_engine.stats()
    preemptions = {"recompute": stats.num_recomputed, "swap": stats.num_swapped_out}
    if "preemption_mode" in settings:
        assert preemptions[settings["preemption_mode"]] > 0, "I31: the pool was too large"


@pytest.mark.slow
def test_stats_say_how_much_beams_share(checkpoint) -> None:
    """Two beams over a prompt of three blocks: nearly half, while they have little beside it."""
    llm = LLM(str(checkpoint[0]), num_gpu_blocks_override=50, **SETTINGS)
    engine = llm.llm_engine
    engine.add_request("b", list(range(3, 15)), beams(n=2, max_tokens=5, ignore_eos=True))
    savings = []
    while engine.has_unfinished_requests():
        engine.step()
        stats = engine.stats()
        blocks = engine.scheduler.block_manager
        tables = [table.ids for table in blocks.tables.values()]
        assert stats.num_logical_blocks == sum(map(len, tables))
        assert stats.num_used_blocks == len({block for ids in tables for block in ids})
        if tables:
            savings.append(1 - stats.num_used_blocks / stats.num_logical_blocks)
    assert 0.3 < stats.mean_sharing_saving < stats.peak_sharing_saving < 0.5
    assert stats.peak_sharing_saving <= max(savings)


def test_a_beam_request_has_one_output_when_it_is_done(llm) -> None:
    engine = llm.llm_engine
    engine.add_request("b", PROMPT, beams(max_tokens=4, ignore_eos=True))
    (output,) = run(engine)
    assert output.finished and len(output.outputs) == 3
    metrics = output.metrics
    assert metrics.arrival_time <= metrics.first_token_time <= metrics.finished_time


@pytest.mark.parametrize("steps", range(5))
def test_i22_an_aborted_beam_search_frees_everything(llm, steps) -> None:
    engine = llm.llm_engine
    engine.add_request("b", PROMPT, beams(max_tokens=9, ignore_eos=True))
    engine.add_request("other", [4, 5], SamplingParams(max_tokens=2))
    for _ in range(steps):
        engine.step()
    (output,) = engine.abort_request("b")
    assert {one.finish_reason for one in output.outputs} == {"abort"}
    assert all(len(one.logprobs) == len(one.token_ids) for one in output.outputs)
    run(engine)
    check_idle(llm.llm_engine)


def test_beam_search_returns_whole_sequences(llm) -> None:
    params = BeamSearchParams(beam_width=2, max_tokens=5)
    outputs = llm.beam_search([PROMPT, [9, 8]], params, use_tqdm=False)
    wanted = llm.generate([PROMPT, [9, 8]], beams(n=2, max_tokens=5), use_tqdm=False)
    for found, request in zip(outputs, wanted, strict=True):
        assert len(found.sequences) == 2
        for sequence, one in zip(found.sequences, request.outputs, strict=True):
            assert sequence.tokens == request.prompt_token_ids + one.token_ids
            assert sequence.cum_logprob == one.cumulative_logprob
            assert sequence.cum_logprob == pytest.approx(
                math.fsum(entry.logprob for each in sequence.logprobs for entry in each.values())
            )
            assert sequence.finish_reason == one.finish_reason
            assert sequence.stop_reason == one.stop_reason
            assert sequence.text is None  # there is no tokenizer
    check_idle(llm.llm_engine)


@pytest.mark.slow
def test_i21_too_many_candidates_are_refused_with_both_numbers(checkpoint, tmp_path) -> None:
    path, _ = tiny_llama(tmp_path / "wide", vocab_size=80)
    wide = LLM(str(path), num_gpu_blocks_override=1200, **SETTINGS)
    with pytest.raises(RequestTooLargeError, match=r"looks at 66 candidates a step.*gives 64"):
        wide.generate([PROMPT], beams(n=33), use_tqdm=False)
    with pytest.raises(RequestTooLargeError, match="looks at 72 candidates"):
        wide.generate([PROMPT], beams(n=18, stop_token_ids=[5, 6]), use_tqdm=False)
    check_idle(wide.llm_engine)
    (output,) = wide.generate([PROMPT], beams(n=32, max_tokens=2), use_tqdm=False)
    assert len(output.outputs) == 32


def test_i21_bad_beam_searches_are_refused(llm) -> None:
    with pytest.raises(RequestTooLargeError, match="max_num_seqs is 40"):
        llm.generate([PROMPT], beams(n=41), use_tqdm=False)
    with pytest.raises(InvalidRequestError, match="BeamSearchParams, got SamplingParams"):
        llm.beam_search([PROMPT], beams(), use_tqdm=False)
    with pytest.raises(InvalidRequestError, match="beam_width must be at least 1, got 0"):
        llm.beam_search([PROMPT], BeamSearchParams(beam_width=0), use_tqdm=False)
    with pytest.raises(InvalidRequestError, match=r"length_penalty must be in \[-32.0, 32.0\]"):
        llm.beam_search(
            [PROMPT], BeamSearchParams(beam_width=2, length_penalty=1e3), use_tqdm=False
        )
    with pytest.raises(InvalidRequestError, match=r"prompts\[1\]"):
        llm.beam_search([PROMPT, []], BeamSearchParams(beam_width=2), use_tqdm=False)
    check_idle(llm.llm_engine)


def test_only_searches_are_counted_in_candidates() -> None:
    """Whatever a request without beams asks for, the sampler draws its tokens one by one."""
    many = SamplingParams(n=100, stop_token_ids=list(range(200)))
    check_beams(many, {EOS}, 10_000)
    with pytest.raises(RequestTooLargeError, match="looks at 68 candidates a step"):
        check_beams(beams(n=17, stop_token_ids=[5, 6]), {EOS}, 10_000)


def test_a_search_in_the_form_of_llm_beam_search() -> None:
    """One that was aborted before its first token has nothing, of log-probability 0."""
    found = CompletionOutput(0, "", [6], -0.5, [{6: Logprob(-0.5, 1)}], "stop", 6)
    nothing = CompletionOutput(1, "", [], None, [], "abort", "timeout")
    output = RequestOutput("a", None, [4, 5], [found, nothing], finished=True)
    assert beam_search_output(output, None).sequences == [
        BeamSearchSequence([4, 5, 6], [{6: Logprob(-0.5, 1)}], -0.5, None, "stop", 6),
        BeamSearchSequence([4, 5], [], 0.0, None, "abort", "timeout"),
    ]


def test_a_beam_search_has_no_guesses() -> None:
    """A request must say so; `LLM.beam_search` says it itself."""
    engine, prompt = small_engine(speculation=SpeculativeConfig()), {"prompt_token_ids": [0, 1]}
    with pytest.raises(InvalidRequestError, match=r"num_speculative_tokens must be 0 .* got None"):
        engine.add_request("a", prompt, beams())
    engine.add_request("b", prompt, BeamSearchParams(beam_width=2).sampling_params())
    assert engine.has_unfinished_requests()
