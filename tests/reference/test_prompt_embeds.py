"""The reference's engine with prompts that are given as vectors in place of tokens."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference.engine import ReferenceEngine
from reference.kv_cache import KVCache
from reference.sequence import NO_TOKEN_ID, SequenceGroup
from reference.transformer import Transformer
from tests.support.some_embeds import some_embeds
from tests.support.tiny_llama import VOCAB, random_weights, tiny_config

CONFIG = tiny_config(num_hidden_layers=1)
WEIGHTS = random_weights(CONFIG)
MODEL = Transformer(CONFIG, WEIGHTS)
TABLE = WEIGHTS["model.embed_tokens.weight"]
PLAIN: dict[str, Any] = {
    "n": 1, "best_of": None, "max_tokens": 4, "min_tokens": 0, "stop_token_ids": None,
    "ignore_eos": True, "seed": 3, "temperature": 0.0, "top_n_sigma": 0.0, "top_k": 0,
    "top_p": 1.0, "min_p": 0.0, "logit_bias": None, "repetition_penalty": 1.0,
    "frequency_penalty": 0.0, "presence_penalty": 0.0,
}  # fmt: skip


def engine(block_size: int = 3, num_blocks: int = 12, **settings: Any) -> ReferenceEngine:
    sizes = {"num_blocks": num_blocks, "block_size": block_size}
    cache = KVCache(**CONFIG.cache_sizes(), **sizes)
    limits = {"max_num_seqs": 4, "max_num_batched_tokens": 24, "max_model_len": 24} | settings
    return ReferenceEngine(MODEL, cache, **limits)


def served(one: ReferenceEngine, prompts: list[Any], **changes: Any) -> list[SequenceGroup]:
    """In the order of the prompts, each of token ids or of vectors; all come at once."""
    params = SimpleNamespace(**PLAIN | changes)
    for i, prompt in enumerate(prompts):
        given = {} if isinstance(prompt, list) else {"prompt_embeds": prompt}
        one.add_request(str(i), prompt if isinstance(prompt, list) else (), params, **given)
    return sorted(one.run(), key=lambda group: int(group.request_id))


def said(groups: list[SequenceGroup]) -> list[Any]:
    return [[(seq.output_token_ids, seq.logprobs) for seq in group.seqs] for group in groups]


prompts = st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=14)


@given(
    ids=st.lists(prompts, min_size=1, max_size=4),
    which=st.sets(st.integers(0, 3), min_size=1),
    block_size=st.sampled_from([1, 3, 16]),
    chunk=st.sampled_from([2, 24]),
    n=st.integers(1, 2),
)
def test_vectors_of_tokens_are_these_tokens(
    ids: list[list[int]], which: set[int], block_size: int, chunk: int, n: int
) -> None:
    """Whichever prompts are given so: in chunks, after preemption, for several samples."""
    settings = {"max_num_batched_tokens": chunk, "enable_chunked_prefill": True}
    asked = {"n": n, "temperature": float(n > 1)}
    sizes = (block_size, 28 // block_size + 2)
    given = [TABLE[one] if i in which else one for i, one in enumerate(ids)]
    found = served(engine(*sizes, **settings), given, **asked)
    assert said(found) == said(served(engine(*sizes, **settings), ids, **asked))
    for i, group in enumerate(found):
        is_given = i in which
        assert list(group.prompt_token_ids) == ([NO_TOKEN_ID] * len(ids[i]) if is_given else ids[i])


@pytest.mark.parametrize("number", [1, 2])
def test_a_prefix_is_found_as_far_as_its_vectors_are_the_same(number: int) -> None:
    one = engine(num_blocks=40, enable_prefix_caching=True)
    first = served(one, [some_embeds(1, 14)])
    (group,) = served(one, [some_embeds(number, 14)])
    assert group.num_cached_tokens == {1: 12, 2: 9}[number]  # the first 9 are common
    assert said(served(one, [some_embeds(1, 14)])) == said(first)
    (tokens,) = served(one, [[0] * 14])
    assert tokens.num_cached_tokens == 0


def test_penalties_know_no_token_of_such_a_prompt() -> None:
    ids = list(range(3, 15))
    plain = served(engine(), [TABLE[ids]], max_tokens=1)
    penalised = served(engine(), [TABLE[ids]], max_tokens=1, repetition_penalty=50.0)
    assert plain[0].seqs[0].output_token_ids == penalised[0].seqs[0].output_token_ids


def test_nobody_is_asked_for_drafts_behind_vectors() -> None:
    asked: list[list[int]] = []

    def drafter(token_ids: list[int]) -> list[int]:
        asked.append(token_ids)
        return [1]

    served(engine(drafter=drafter, max_draft_tokens=2), [TABLE[[3, 4]], [5, 6]])
    assert asked and all(token_ids[:2] == [5, 6] for token_ids in asked)


@pytest.mark.parametrize("scales_inputs", [False, True])
def test_a_factor_is_the_table_s_or_the_model_s(scales_inputs: bool) -> None:
    """Gemma's vectors have it already; Granite's get it."""
    config = replace(CONFIG, embedding_factor=2.0, scales_inputs=scales_inputs)
    ids, positions = np.array([3, 4]), np.arange(2)
    cache = KVCache(**CONFIG.cache_sizes(), num_blocks=1, block_size=4)
    step = positions, cache, np.array([[0]]), np.array([2]), np.array([0, 2]), positions
    vectors = dict(enumerate(TABLE[ids] * (1.0 if scales_inputs else 2.0)))
    model = Transformer(config, WEIGHTS)
    wanted = model.forward(ids, *step)
    found = model.forward(np.full(2, NO_TOKEN_ID), *step, vectors)
    assert (found == wanted).all()
    with pytest.raises(ValueError, match="token id -1"):
        model.forward(np.full(2, NO_TOKEN_ID), *step)
