"""`LLM`'s methods with vLLM's arguments, on a tiny model over bytes."""

import functools
import logging

import numpy as np
import pytest
from tqdm import tqdm

from jax_engine import (
    LLM,
    ConfigError,
    InvalidRequestError,
    LoRARequest,
    PoolingParams,
    SamplingParams,
    TextPrompt,
    TokensPrompt,
)
from jax_engine.engine.requests import request
from jax_engine.engine.stats import Histogram
from tests.support.byte_tokenizer import EOS_TOKEN
from tests.support.in_process import check_idle

TEMPLATE = "{% for m in messages %}{{ m.role }}:{{ m.content }}{% endfor %}"
GREEDY = SamplingParams(temperature=0.0, max_tokens=3, ignore_eos=True)


@pytest.fixture(scope="module")
def llm(of_bytes):
    return LLM(
        of_bytes, block_size=4, num_gpu_blocks_override=100, max_num_seqs=8, chat_template=TEMPLATE
    )


def tokens(outputs) -> list:
    return [one.outputs[0].token_ids for one in outputs]


@pytest.mark.slow
def test_prompts_are_dicts_with_vllm_s_names(llm) -> None:
    ids = llm.get_tokenizer().encode("ab")
    prompts = [
        "ab",
        TextPrompt(prompt="ab"),
        TokensPrompt(prompt_token_ids=ids, prompt="ab"),
        {"prompt": "ab", "multi_modal_data": None},
    ]
    outputs = llm.generate(prompts, GREEDY, use_tqdm=False)
    assert len({tuple(one) for one in tokens(outputs)}) == 1
    assert [one.prompt for one in outputs] == ["ab"] * 4
    with pytest.raises(InvalidRequestError, match="multi_modal_data"):
        llm.generate({"prompt": "ab", "multi_modal_data": {"image": 1}}, GREEDY)


@pytest.mark.slow
def test_a_bar_of_one_s_own(llm, capsys) -> None:
    bars = []

    def make(**options):
        bars.append(tqdm(**options, disable=True))
        return bars[-1]

    llm.generate(["a", "b"], GREEDY, use_tqdm=make)
    llm.embed("a", use_tqdm=functools.partial(tqdm, leave=False, desc="mine", disable=True))
    assert [bar.total for bar in bars] == [2]


def test_priority_under_fcfs_is_a_warning_once(llm, caplog) -> None:
    request._warn_of_priority.cache_clear()
    with caplog.at_level(logging.WARNING, "jax_engine"):
        llm.generate(["a", "b"], GREEDY, priority=[1, 2], use_tqdm=False)
        llm.generate("a", GREEDY, priority=3, use_tqdm=False)
    assert [one.getMessage()[:8] for one in caplog.records] == ["priority"]
    with pytest.raises(InvalidRequestError, match="priority must be an integer, got 'x'"):
        llm.generate(["a", "b"], GREEDY, priority=[1, "x"], use_tqdm=False)
    check_idle(llm.llm_engine)


def test_what_there_is_not_is_refused(llm) -> None:
    llm.generate("a", GREEDY, lora_request=None, mm_processor_kwargs=None, use_tqdm=False)
    llm.generate(["a", "b"], GREEDY, lora_request=[None, None], use_tqdm=False)
    for call in (llm.generate, llm.embed):
        with pytest.raises(InvalidRequestError, match="must be a LoRARequest or None"):
            call("a", lora_request="adapter")
        with pytest.raises(InvalidRequestError, match="build the engine with enable_lora=True"):
            call("a", lora_request=LoRARequest("mine", 1, "/nowhere"))


def test_embeddings_take_one_params_for_each(llm) -> None:
    params = [PoolingParams(normalize=False), PoolingParams(use_activation=True)]
    plain, scaled = llm.embed(["abc", "abc"], params, use_tqdm=False)
    assert scaled.outputs.hidden_size == llm.llm_engine.model_config.hidden_size
    assert np.linalg.norm(scaled.outputs.embedding) == pytest.approx(1.0)
    assert np.linalg.norm(plain.outputs.embedding) != pytest.approx(1.0)
    for wrong in (SamplingParams(), [SamplingParams()], 3, "x"):
        with pytest.raises(InvalidRequestError, match="pooling_params"):
            llm.embed("a", wrong)


def test_states_of_each_token(llm) -> None:
    params = PoolingParams(normalize=False)
    (each,) = llm.encode("abcd", params, pooling_task="token_embed", use_tqdm=False)
    (last,) = llm.encode("abcd", params, use_tqdm=False)
    (mean,) = llm.encode("abcd", PoolingParams(pooling_type="MEAN", normalize=False))
    width = llm.llm_engine.model_config.hidden_size
    assert each.outputs.data.shape == (len(each.prompt_token_ids), width)
    np.testing.assert_allclose(each.outputs.data[-1], last.outputs.data, atol=1e-5)
    np.testing.assert_allclose(each.outputs.data.mean(0), mean.outputs.data, atol=1e-5)
    with pytest.raises(InvalidRequestError, match="task must be one of"):
        llm.encode("a", pooling_task="rank")


def test_scores_are_cosines(llm) -> None:
    vectors = [np.array(one.outputs.embedding) for one in llm.embed(["ab", "cd", "xyz"])]
    scores = [one.outputs.score for one in llm.score("ab", ["cd", "xyz"], use_tqdm=False)]
    np.testing.assert_allclose(scores, [vectors[0] @ vectors[1], vectors[0] @ vectors[2]])
    (same,) = llm.score(["ab"], ["ab"], use_tqdm=False)
    assert same.outputs.score == pytest.approx(1.0) and same.finished
    with pytest.raises(InvalidRequestError, match=r"1 text or as many as data_2 \(3\), got 2"):
        llm.score(["a", "b"], ["a", "b", "c"])


def test_classes_need_a_head(llm) -> None:
    with pytest.raises(InvalidRequestError, match="classification head"):
        llm.classify("a")


def test_the_tokenizer_is_hugging_face_s(llm) -> None:
    tokenizer = llm.get_tokenizer()
    assert tokenizer is llm.get_tokenizer()
    ids = llm.llm_engine.tokenizer.encode("hello")
    assert tokenizer("hello").input_ids == tokenizer.encode("hello") == ids
    batch = tokenizer(["ab", "cd"], return_tensors="np")
    assert batch["input_ids"].shape[0] == 2
    assert tokenizer.eos_token == EOS_TOKEN
    assert tokenizer.eos_token_id == llm.llm_engine.tokenizer.eos_token_id
    assert tokenizer.eos_token_id in tokenizer.all_special_ids
    assert len(tokenizer) == len(tokenizer.get_vocab()) == llm.llm_engine.tokenizer.vocab_size
    assert tokenizer.convert_ids_to_tokens(tokenizer.convert_tokens_to_ids(["a", "b"])) == [
        "a",
        "b",
    ]
    assert tokenizer.batch_decode([ids, ids], skip_special_tokens=True) == ["hello"] * 2
    assert tokenizer.decode(tokenizer.convert_tokens_to_ids("a")) == "a"
    user = [{"role": "user", "content": "x"}]
    text = llm.llm_engine.tokenizer.apply_chat_template(user, tokenize=False)
    assert tokenizer.apply_chat_template(user, tokenize=False) == text
    given = tokenizer.apply_chat_template(user, tokenize=True, return_tensors="np")
    assert given["input_ids"].tolist() == [tokenizer.encode(text, add_special_tokens=False)]
    special = llm.llm_engine.tokenizer.special_ids
    assert set(tokenizer.all_special_ids) == special


def test_a_template_for_all_chats(llm) -> None:
    (output,) = llm.chat([{"role": "user", "content": "x"}], GREEDY, use_tqdm=False)
    assert output.prompt == "user:x"


def test_a_turn_that_only_called_tools_has_no_content(llm) -> None:
    call = {"type": "function", "function": {"name": "f", "arguments": "{}"}}
    turns = [{"role": "assistant", "tool_calls": [call]}, {"role": "tool", "content": None}]
    for turn in (turns[0], turns[0] | {"content": None}):
        (output,) = llm.chat([turn, turns[1]], GREEDY, use_tqdm=False)
        assert output.prompt == "assistant:tool:"


@pytest.mark.parametrize(
    ("content", "options", "words"),
    [
        ("\ud800", {}, "valid Unicode, got a lone surrogate"),
        ("x", {"chat_template_kwargs": [1]}, "must be a dict or None"),
    ],
)
def test_chats_that_are_none(llm, content, options, words) -> None:
    """`test_conversations.py` has others, and `tests/tokenization/test_chat.py` what turns are."""
    with pytest.raises(InvalidRequestError, match=words):
        llm.chat([{"role": "user", "content": content}], GREEDY, use_tqdm=False, **options)


def test_a_profile_is_written(llm, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("VLLM_TORCH_PROFILER_DIR", str(tmp_path))
    llm.start_profile("mine")
    with pytest.raises(ConfigError, match="start_profile"):
        llm.start_profile()
    llm.generate("a", GREEDY, use_tqdm=False)
    llm.stop_profile()
    assert list((tmp_path / "mine").rglob("*.xplane.pb"))
    with pytest.raises(ConfigError, match="stop_profile"):
        llm.stop_profile()


def test_metrics_have_vllm_s_names(llm) -> None:
    def value(name: str, **labels) -> float:
        (one,) = (
            metric
            for metric in llm.get_metrics()
            if metric.name == f"vllm:{name}" and labels.items() <= metric.labels.items()
        )
        return one.sum if isinstance(one, Histogram) else one.value

    names = ("prompt_tokens", "generation_tokens", "request_prompt_tokens", "prefix_cache_hits")
    before = {name: value(name) for name in names}
    lengths = value("request_success", finished_reason="length")
    llm.reset_prefix_cache()
    prompt = llm.get_tokenizer().encode("abcdefghijkl")
    for _ in range(2):  # the second finds the first one's blocks
        llm.generate([prompt], GREEDY, use_tqdm=False)
    llm.embed([prompt], use_tqdm=False)
    added = {name: value(name) - before[name] for name in names}
    assert added["prompt_tokens"] == added["request_prompt_tokens"] == 3 * len(prompt)
    assert added["generation_tokens"] == 6
    assert added["prefix_cache_hits"] == len(prompt) // 4 * 4 - 4 * (len(prompt) % 4 == 0)
    assert value("request_success", finished_reason="length") - lengths == 3
    assert value("num_requests_running") == value("kv_cache_usage_perc") == 0
    for one in llm.get_metrics():
        if isinstance(one, Histogram):
            counts = list(one.buckets.values())
            assert counts == sorted(counts) and counts[-1] == one.count == one.buckets["+Inf"]


def test_the_prefix_cache_is_forgotten(llm) -> None:
    llm.generate("abcdefghijkl", GREEDY, use_tqdm=False)
    assert llm.llm_engine.stats().num_cached_blocks
    assert llm.reset_prefix_cache()
    assert not llm.llm_engine.stats().num_cached_blocks
