"""An encoder behind `LLM`: what it does, what it refuses, and how few programs it needs."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jax_engine import (
    LLM,
    BeamSearchParams,
    ConfigError,
    InvalidRequestError,
    PoolingParams,
    RequestTooLargeError,
    SamplingParams,
)
from jax_engine.config.engine_config import EngineConfig
from jax_engine.engine.startup.build_encoder import limits_of_encoder
from jax_engine.worker.encoder_runner import EncoderRunner
from tests.support.tiny_encoders import CLS, SEP, save_pair_tokenizer, tiny_encoder, with_scores
from tests.support.tiny_llama import byte_llama

SETTINGS: dict[str, Any] = {"dtype": "float32", "max_num_seqs": 4, "max_model_len": 60}


def written(folder: Path, **changes: Any) -> Path:
    path, _ = tiny_encoder(folder, **changes)
    save_pair_tokenizer(path)
    return path


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> LLM:
    return LLM(str(written(tmp_path_factory.mktemp("models") / "bert")), **SETTINGS)


@pytest.fixture(scope="module")
def reranker(tmp_path_factory: pytest.TempPathFactory) -> tuple[LLM, dict[str, np.ndarray]]:
    folder = written(tmp_path_factory.mktemp("models") / "reranker")
    _, head = with_scores(folder, labels=1)
    return LLM(str(folder), **SETTINGS), head


def ids_of(text: str) -> list[int]:
    return [CLS, *(3 + ord(one) - ord("a") for one in text), SEP]


@pytest.mark.parametrize(("budget", "room"), [(10, 60), (60, 60), (90, 90), (None, 2048)])
def test_each_step_has_room_for_the_longest_prompt(budget: int | None, room: int) -> None:
    config = EngineConfig(model="m", max_model_len=60, max_num_batched_tokens=budget)
    limits = limits_of_encoder(config, 100)
    assert (limits.max_num_batched_tokens, limits.max_model_len) == (room, 60)


def test_a_text_is_embedded_with_its_special_tokens(llm: LLM) -> None:
    """By the state of the first token, unless the checkpoint or the request says otherwise."""
    (one,) = llm.embed(["abc"], use_tqdm=False)
    assert one.prompt_token_ids == ids_of("abc")
    assert np.linalg.norm(one.outputs.embedding) == pytest.approx(1, abs=1e-6)
    raw = PoolingParams(normalize=False, task="token_embed")
    (states,) = llm.encode(["abc"], raw, use_tqdm=False)
    first = states.outputs.data[0]
    np.testing.assert_allclose(one.outputs.embedding, first / np.linalg.norm(first), rtol=1e-5)


@pytest.mark.parametrize("way", ["mean", "cls", "lasttoken"])
@pytest.mark.parametrize("normalize", [True, False])
def test_the_recipe_of_sentence_transformers(way: str, normalize: bool, tmp_path: Path) -> None:
    folder = written(tmp_path)
    kinds = ["Transformer", "Pooling", *["Normalize"] * normalize]
    path = "sentence_transformers.models."
    modules = [
        {"idx": i, "name": str(i), "path": f"{i}_{kind}" if i else "", "type": path + kind}
        for i, kind in enumerate(kinds)
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode": way}))
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 7}))
    llm = LLM(str(folder), **SETTINGS)
    raw = PoolingParams(normalize=False, task="token_embed")
    states = llm.encode(["abc"], raw, use_tqdm=False)[0].outputs.data
    expected = {"mean": states.mean(0), "cls": states[0], "lasttoken": states[-1]}[way]
    if normalize:
        expected = expected / np.linalg.norm(expected)
    (one,) = llm.embed(["abc"], use_tqdm=False)
    np.testing.assert_allclose(one.outputs.embedding, expected, rtol=1e-4, atol=1e-6)
    with pytest.raises(InvalidRequestError, match=r"at most 7 tokens.*got 8"):
        llm.embed(["abcdef"], use_tqdm=False)


def test_a_pair_is_one_prompt_with_types(reranker: tuple[LLM, dict[str, np.ndarray]]) -> None:
    llm, head = reranker
    scores = llm.score("ab", ["c", "dd"], use_tqdm=False)
    ids = [*ids_of("ab"), *ids_of("c")[1:]]
    assert scores[0].prompt_token_ids == ids
    prompt = {"prompt_token_ids": ids, "token_type_ids": [0] * 4 + [1] * 2}
    raw = PoolingParams(normalize=False, task="token_embed")
    state = llm.encode([prompt], raw, use_tqdm=False)[0].outputs.data[0]
    dense = np.tanh(state @ head["bert.pooler.dense.weight"].T + head["bert.pooler.dense.bias"])
    logit = dense @ head["classifier.weight"][0] + head["classifier.bias"][0]
    assert scores[0].outputs.score == pytest.approx(1 / (1 + np.exp(-logit)), abs=1e-5)
    untyped = llm.classify([ids], use_tqdm=False)
    assert untyped[0].outputs.probs[0] != scores[0].outputs.score
    tokens = llm.score([ids_of("ab")], [ids_of("c")[1:]], use_tqdm=False)
    assert tokens[0].outputs.score == scores[0].outputs.score


def test_a_cross_encoder_may_give_raw_scores(tmp_path: Path) -> None:
    folder = with_scores(written(tmp_path), labels=1)[0]
    config = json.loads((folder / "config.json").read_text())
    raw = LLM(str(folder), **SETTINGS).encode(
        ["ab"], PoolingParams(use_activation=False), use_tqdm=False
    )
    for fields, bend in (
        ({"sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"}}, False),
        ({"sbert_ce_default_activation_function": "torch.nn.modules.activation.Sigmoid"}, True),
    ):
        (folder / "config.json").write_text(json.dumps(config | fields))
        (one,) = LLM(str(folder), **SETTINGS).classify(["ab"], use_tqdm=False)
        logit = raw[0].outputs.data[0]
        expected = 1 / (1 + np.exp(-logit)) if bend else logit
        assert one.outputs.probs[0] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    ("types", "words"),
    [
        ([0, 1], "token_type_ids must have a type for each of the 3 tokens, got 2"),
        ([0, 1, 2], r"token_type_ids\[2\] must be in \[0, 1\], got 2"),
        ([0, -1, 1], r"token_type_ids\[1\] must be in \[0, 1\]"),
        ("abc", "token_type_ids must be a list of integers"),
    ],
)
def test_types_that_do_not_fit(types: Any, words: str, llm: LLM) -> None:
    with pytest.raises(InvalidRequestError, match=words):
        llm.embed([{"prompt_token_ids": [4, 5, 6], "token_type_ids": types}], use_tqdm=False)


def test_types_are_cut_with_the_tokens(llm: LLM) -> None:
    from jax_engine.engine.requests.prompts import Prompt, truncate_prompt

    cut = truncate_prompt(Prompt(None, [4, 5, 6], token_type_ids=[0, 0, 1]), 2, 60)
    assert (cut.token_ids, cut.token_type_ids) == ([5, 6], [0, 1])


def test_a_decoder_knows_no_types(tmp_path: Path) -> None:
    llm = LLM(str(byte_llama(tmp_path)), num_gpu_blocks_override=8, max_model_len=16)
    with pytest.raises(InvalidRequestError, match="knows no types of tokens"):
        llm.embed([{"prompt_token_ids": [4], "token_type_ids": [0]}], use_tqdm=False)


def test_an_encoder_generates_nothing(llm: LLM, reranker: Any) -> None:
    for ask in (
        lambda one: one.generate(["a"], use_tqdm=False),
        lambda one: one.generate(["a"], SamplingParams(max_tokens=3), use_tqdm=False),
        lambda one: one.beam_search([{"prompt": "a"}], BeamSearchParams(2, 3)),
        lambda one: one.encode(["a"], SamplingParams(), use_tqdm=False),
    ):  # fmt: skip
        for model in (llm, reranker[0]):
            with pytest.raises((InvalidRequestError, TypeError), match=r"generate|Pooling"):
                ask(model)
    with pytest.raises(InvalidRequestError, match="classify needs a model with"):
        llm.classify(["a"], use_tqdm=False)


def test_too_long_a_text(llm: LLM) -> None:
    """Refused, or cut if that is asked for; a text as long as the model allows is computed."""
    assert len(llm.embed([[5] * 60], use_tqdm=False)[0].prompt_token_ids) == 60
    with pytest.raises(RequestTooLargeError, match="61"):
        llm.embed([[5] * 61], use_tqdm=False)
    with pytest.raises(RequestTooLargeError):
        llm.embed(["a" * 59], use_tqdm=False)
    cut = {"truncate_prompt_tokens": 9}
    (one,) = llm.embed(["a" * 70 + "b"], tokenization_kwargs=cut, use_tqdm=False)
    assert len(one.prompt_token_ids) == 9 and one.prompt_token_ids[-1] == SEP


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"enable_lora": True}, "enable_lora must be left out for an encoder"),
        ({"enable_prefix_caching": True}, "enable_prefix_caching must be left out"),
        ({"enable_chunked_prefill": True}, "enable_chunked_prefill must be left out"),
        (
            {"speculative_config": {"method": "ngram", "num_speculative_tokens": 2}},
            "speculative_config must be left out",
        ),
        ({"long_prefill_token_threshold": 3}, "long_prefill_token_threshold 3 needs"),
        ({"max_model_len": 301}, "301"),
    ],
)
def test_settings_that_an_encoder_has_no_use_for(
    settings: dict[str, Any], words: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=words):
        LLM(str(written(tmp_path)), **SETTINGS | settings)


def test_an_encoder_is_not_divided(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="tensor_parallel_size must be 1 for an encoder, got 2"):
        LLM(str(written(tmp_path)), **SETTINGS, tensor_parallel_size=2)


def test_few_programs_and_all_of_them_ahead(tmp_path: Path) -> None:
    """Sizes double, so a budget of 100 tokens needs 16, 32, 64 and 128; no text compiles more."""
    llm = LLM(str(written(tmp_path)), **SETTINGS, max_num_batched_tokens=100)
    runner = llm.llm_engine.worker
    assert isinstance(runner, EncoderRunner)
    assert llm.llm_engine.warmup(use_tqdm=False) == 4
    rng = np.random.default_rng(0)
    texts = [rng.integers(3, 29, size).tolist() for size in rng.integers(1, 61, 40)]
    assert len(llm.embed(texts, use_tqdm=False)) == 40
    assert llm.llm_engine.warmup(use_tqdm=False) == 0 and len(runner._programs) == 4


def test_an_abort_gives_its_seat_back(llm: LLM) -> None:
    engine = llm.llm_engine
    for i in range(9):
        engine.add_request(str(i), [5, 6, 7], PoolingParams(task="embed"))
    assert len(engine.abort_request(["0", "8"])) == 2
    done = []
    while engine.has_unfinished_requests():
        done += engine.step()
    assert sorted(one.request_id for one in done) == [str(i) for i in range(1, 8)]
    blocks = engine.scheduler.block_manager
    assert blocks.num_free_gpu_blocks == blocks.num_gpu_blocks == 4


def test_operation_by_operation(tmp_path: Path) -> None:
    folder = written(tmp_path)
    eager = LLM(str(folder), **SETTINGS, enforce_eager=True).embed(["abcd"], use_tqdm=False)
    compiled = LLM(str(folder), **SETTINGS).embed(["abcd"], use_tqdm=False)
    np.testing.assert_allclose(eager[0].outputs.embedding, compiled[0].outputs.embedding, atol=1e-5)
