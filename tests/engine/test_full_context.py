"""A prompt that is pooled may fill the model's context: it draws no token that needs room."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jax_engine import LLM, PoolingParams, RequestTooLargeError, SamplingParams
from tests.support.tiny_llama import tiny_llama

LIMIT = 37  # no multiple of a block or of a step


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tiny_llama(
        tmp_path_factory.mktemp("full") / "model", max_position_embeddings=LIMIT
    )[0]
    return path


def build(checkpoint: Path, **settings: Any) -> LLM:
    given = {"skip_tokenizer_init": True, "block_size": 4, "max_num_seqs": 3} | settings
    return LLM(str(checkpoint), **given)


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"max_num_batched_tokens": 8},
        {"enable_chunked_prefill": False},
        {"scheduling": "sosp", "max_num_batched_tokens": LIMIT},
        {"async_scheduling": False, "block_size": 16},
    ],
)
def test_a_prompt_of_the_whole_context_is_embedded(
    checkpoint: Path, settings: dict[str, Any]
) -> None:
    llm = build(checkpoint, **settings)
    ids = np.random.default_rng(0).integers(3, 31, LIMIT).tolist()
    prompts = [ids, ids[:5], ids[::-1]]
    params = PoolingParams(pooling_type="MEAN", normalize=False)
    found = llm.embed(prompts, params, use_tqdm=False)
    states = llm.encode(prompts, PoolingParams(task="token_embed", normalize=False), use_tqdm=False)
    for prompt, one, each in zip(prompts, found, states, strict=True):
        assert each.outputs.data.shape[0] == len(prompt) and one.finished
        np.testing.assert_allclose(one.outputs.embedding, each.outputs.data.mean(0), atol=1e-5)
    # A shorter prompt's states are the first of a longer one's: nothing was cut or moved.
    (before,) = llm.encode(
        [ids[:-1]], PoolingParams(task="token_embed", normalize=False), use_tqdm=False
    )
    np.testing.assert_allclose(states[0].outputs.data[:-1], before.outputs.data, atol=1e-5)
    assert llm.llm_engine.stats().num_used_blocks == 0


@pytest.mark.slow
def test_the_limits_of_both_kinds_are_named(checkpoint: Path) -> None:
    llm = build(checkpoint)
    with pytest.raises(
        RequestTooLargeError, match=r"has 38 tokens, max_model_len 37 allows 37: sh"
    ):
        llm.embed([[5] * (LIMIT + 1)])
    with pytest.raises(RequestTooLargeError, match="has 37 tokens, max_model_len 37 allows 36 and"):
        llm.generate([[5] * LIMIT], SamplingParams(max_tokens=1))
    (output,) = llm.generate([[5] * (LIMIT - 1)], SamplingParams(max_tokens=1), use_tqdm=False)
    assert len(output.outputs[0].token_ids) == 1
