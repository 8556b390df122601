"""prompt_logprobs, score_tokens and embed: equal to one full pass, however a step got there."""

import functools

import numpy as np
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from jax_engine import LLM, InvalidRequestError, SamplingParams
from jax_engine.pooling_params import PoolingParams
from reference import sampling as oracle
from reference.kv_cache import KVCache
from reference.transformer import Transformer
from tests.support.in_process import run
from tests.support.tiny_llama import VOCAB

SETTINGS = {"skip_tokenizer_init": True, "block_size": 4, "max_model_len": 40, "max_num_seqs": 4}
# Pools in which a few prompts with their outputs do not fit at once, and budgets that cut prompts.
WAYS = {
    "whole": {"num_gpu_blocks_override": 100},
    "chunks": {"num_gpu_blocks_override": 100, "max_num_batched_tokens": 7},
    "recompute": {"num_gpu_blocks_override": 14, "preemption_mode": "recompute"},
    "swap": {"num_gpu_blocks_override": 14, "preemption_mode": "swap", "max_num_batched_tokens": 9},
    "sosp": {"num_gpu_blocks_override": 100, "scheduling": "sosp"},
}
prompts = st.lists(st.integers(3, VOCAB - 1), min_size=1, max_size=24)


@pytest.fixture(scope="module")
def engines(checkpoint):
    return functools.cache(lambda way: LLM(str(checkpoint[0]), **SETTINGS, **WAYS[way]))


def hidden_states(transformer: Transformer, token_ids: list[int]) -> np.ndarray:
    """[T, E] of one pass over all tokens (I39)."""
    config, count = transformer.config, len(token_ids)
    cache = KVCache(
        num_layers=config.num_hidden_layers, num_blocks=1, head_dim=config.head_dim,
        num_kv_heads=config.num_key_value_heads, block_size=count,
    )  # fmt: skip
    positions = np.arange(count)
    return transformer.forward(
        np.array(token_ids), positions, cache, np.array([[0]]), np.array([count]),
        np.array([0, count]), positions,
    )  # fmt: skip


def all_logprobs(transformer: Transformer, token_ids: list[int]) -> np.ndarray:
    """[T, V], row i given the tokens up to i."""
    logits = transformer.compute_logits(hidden_states(transformer, token_ids))
    return np.stack([oracle.log_softmax(row) for row in logits])


def assert_prompt_logprobs(transformer, output, num_top: int) -> None:
    tokens = output.prompt_token_ids
    wanted = all_logprobs(transformer, tokens)
    assert output.prompt_logprobs[0] is None
    assert len(output.prompt_logprobs) == len(tokens)
    for position in range(1, len(tokens)):
        row, entry = wanted[position - 1], output.prompt_logprobs[position]
        assert set(np.argsort(-row)[:num_top].tolist()) | {tokens[position]} == set(entry)
        for token, found in entry.items():
            assert found.logprob == pytest.approx(row[token], abs=1e-4)
            assert found.rank == 1 + (row > row[token]).sum()


kinds = st.sampled_from(["scored", "scored", "samples", "plain", "embedded"])


@pytest.mark.slow
@given(
    batch=st.lists(st.tuples(prompts, kinds), min_size=1, max_size=5),
    way=st.sampled_from(list(WAYS)),
    num_top=st.integers(0, 3),
)
def test_i39_prompt_logprobs_are_those_of_one_full_pass(
    engines, checkpoint, batch, way, num_top
) -> None:
    """I39, I31, I33, I35: in company of requests that want none, forked or embedded ones."""
    engine = engines(way).llm_engine
    before = engine.stats()
    for i, (prompt, kind) in enumerate(batch):
        one = {
            "scored": SamplingParams(
                prompt_logprobs=num_top, max_tokens=12, temperature=0.0, ignore_eos=True
            ),
            "samples": SamplingParams(
                prompt_logprobs=num_top, max_tokens=8, n=2, seed=i, ignore_eos=True
            ),
            "plain": SamplingParams(max_tokens=12, temperature=0.0, ignore_eos=True),
            "embedded": PoolingParams(),
        }[kind]
        engine.add_request(f"{kind}{i}", prompt, one)
    for output in run(engine):
        if output.request_id.startswith(("scored", "samples")):
            assert_prompt_logprobs(checkpoint[1], output, num_top)
        elif output.request_id.startswith("plain"):
            assert output.prompt_logprobs is None
    after = engine.stats()
    if (
        after.num_recomputed > before.num_recomputed
        or after.num_swapped_out > before.num_swapped_out
    ):
        event(f"preempted: {way}")


@pytest.mark.slow
@given(
    batch=st.lists(prompts, min_size=1, max_size=5),
    way=st.sampled_from(list(WAYS)),
    kind=st.sampled_from(["LAST", "MEAN"]),
    normalize=st.booleans(),
)
def test_i39_embeddings_are_the_pooled_states_of_one_full_pass(
    engines, checkpoint, batch, way, kind, normalize
) -> None:
    """I39, I35: among requests that decode."""
    llm = engines(way)
    params = PoolingParams(pooling_type=kind, normalize=normalize)
    llm.llm_engine.add_request("decoding", [5, 6], SamplingParams(max_tokens=3, temperature=0.0))
    outputs = llm.embed(batch, params, use_tqdm=False)
    for prompt, output in zip(batch, outputs, strict=True):
        states = hidden_states(checkpoint[1], prompt)
        wanted = states[-1] if kind == "LAST" else states.mean(axis=0)
        if normalize:
            wanted = wanted / np.linalg.norm(wanted)
        assert output.finished and output.prompt_token_ids == prompt
        np.testing.assert_allclose(output.outputs.embedding, wanted, atol=1e-4)
    decoded = run(llm.llm_engine)  # also what it gave out while `embed` stepped
    assert [one.request_id for one in decoded if one.finished] == ["decoding"]


@pytest.mark.slow
@pytest.mark.parametrize("way", ["recompute", "swap"])
def test_a_preempted_prompt_is_scored_all_the_same(engines, checkpoint, way) -> None:
    """I31: the pool is too small for all of them, and the preemptions do happen."""
    engine = engines(way).llm_engine
    before = engine.stats()
    params = SamplingParams(prompt_logprobs=1, max_tokens=14, temperature=0.0, ignore_eos=True)
    for i in range(4):
        engine.add_request(str(i), [3 + i, *range(4, 16)], params)
    outputs = [output for output in run(engine) if output.finished]
    after = engine.stats()
    assert (after.num_recomputed, after.num_swapped_out) != (
        before.num_recomputed, before.num_swapped_out,
    )  # fmt: skip
    assert len(outputs) == 4
    for output in outputs:
        assert_prompt_logprobs(checkpoint[1], output, 1)


@pytest.mark.slow
def test_score_tokens(engines, checkpoint) -> None:
    llm = engines("chunks")
    scores = llm.score_tokens([[4, 5, 6, 7], [9]], use_tqdm=False)
    wanted = all_logprobs(checkpoint[1], [4, 5, 6, 7])
    assert scores[1] == [None] and scores[0][0] is None
    assert scores[0][1:] == pytest.approx([wanted[i, 5 + i] for i in range(3)], abs=1e-4)


@pytest.mark.slow
def test_a_warm_prefix_cache_is_filled_but_not_read(engines, checkpoint) -> None:
    llm = engines("whole")
    prompt = list(range(3, 20))
    plain = SamplingParams(max_tokens=1, temperature=0.0)
    scored = SamplingParams(max_tokens=1, temperature=0.0, prompt_logprobs=0)
    llm.llm_engine.reset_prefix_cache()
    first = llm.generate([prompt], scored, use_tqdm=False)[0]
    assert llm.generate([prompt], plain, use_tqdm=False)[0].num_cached_tokens == 16
    again = llm.generate([prompt], scored, use_tqdm=False)[0]
    assert again.num_cached_tokens == 0
    assert_prompt_logprobs(checkpoint[1], again, 0)
    assert first.prompt_logprobs[1:] == again.prompt_logprobs[1:]
    llm.embed([prompt], use_tqdm=False)


def test_aborted_midway(engines) -> None:
    engine = engines("chunks").llm_engine
    engine.add_request("scored", list(range(3, 20)), SamplingParams(prompt_logprobs=0))
    engine.add_request("embedded", list(range(3, 20)), PoolingParams())
    engine.step()
    scored, embedded = engine.abort_request(["scored", "embedded"])
    assert [entry is None for entry in scored.prompt_logprobs] == [True] + [False] * 7 + [True] * 9
    assert (embedded.finished, embedded.outputs.data.size) == (False, 0)
    assert engine.stats().num_used_blocks == 0


def test_other_steps_stay_as_they_are(engines) -> None:
    """The flags go with the requests that ask, and no longer than their prompts."""
    llm = engines("whole")
    steps, plain = llm.llm_engine.worker.steps, SamplingParams(max_tokens=4, temperature=0.0)
    llm.generate([[4, 5, 6]], plain, use_tqdm=False)
    before = set(steps._compiled)
    scored = SamplingParams(max_tokens=4, temperature=0.0, prompt_logprobs=0)
    llm.generate([[4, 5, 6]], scored, use_tqdm=False)
    llm.embed([[4, 5, 6]], use_tqdm=False)
    llm.generate([[4, 5, 6]], plain, use_tqdm=False)
    assert all(one.prompt_logprobs or one.pooling for one in set(steps._compiled) - before)
    assert not any(one.decode_only for one in set(steps._compiled) - before)


def test_bad_requests_are_refused(engines) -> None:
    llm = engines("whole")
    with pytest.raises(InvalidRequestError, match=r"prompts\[1\]"):
        llm.embed([[4], []], use_tqdm=False)
    with pytest.raises(InvalidRequestError, match="SUM"):
        PoolingParams(pooling_type="SUM")
    with pytest.raises(
        InvalidRequestError, match=r"prompt_logprobs .* max_logprobs \(20\), got 21"
    ):
        llm.generate([[4]], SamplingParams(prompt_logprobs=21), use_tqdm=False)
