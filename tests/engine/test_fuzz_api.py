"""Anything for any argument: an answer or a typed error, nothing left, and the next is right.

`dev` tries a little, `ci` for about a minute, `thorough` for an hour.
"""

import math
from dataclasses import fields
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from jax_engine import (
    LLM,
    BeamSearchParams,
    EngineArgs,
    EngineConfig,
    JaxEngineError,
    PoolingParams,
    RequestOutputKind,
    SamplingParams,
    StructuredOutputsParams,
)
from tests.support.byte_tokenizer import VOCAB
from tests.support.in_process import check_idle, run

TEMPLATE = (
    "{% for m in messages %}{{ m.role }}:{{ m.content }}{{ m.tool_calls }}{% endfor %}"
    "{% if add_generation_prompt %}>{% endif %}"
)
GREEDY = SamplingParams(temperature=0.0, max_tokens=4)
EXAMPLES = settings.default.max_examples
MORE = settings(
    max_examples={60: 300}.get(EXAMPLES, EXAMPLES), suppress_health_check=[*HealthCheck]
)


class Odd:
    """What nobody expects, not even in a message."""

    def __repr__(self) -> str:
        return "\ud800"

    def __str__(self) -> str:
        raise RuntimeError("no words for it")


numbers = st.one_of(
    st.integers(-3, 40),
    st.sampled_from([VOCAB - 1, VOCAB, 2**31, 2**63, 2**64, -(2**63) - 1, 10**400]),
    st.floats(allow_nan=True, width=32),
    st.sampled_from([0.5, -0.0, math.inf, Fraction(1, 3), 1j, True, False]),
    st.sampled_from([np.int64(3), np.float32(0.5), np.bool_(True), np.float64("nan")]),
)
texts = st.one_of(
    st.text(max_size=6),
    st.sampled_from(["", "a", "\ud800", "x\udfff", "ab", "auto", "never", "DELTA", "{", "[a-z]+"]),
    st.binary(max_size=3),
)
scalars = st.one_of(
    st.none(),
    numbers,
    texts,
    st.sampled_from([*RequestOutputKind, print, len, Odd, SamplingParams()]),
    st.builds(Odd),
    st.builds(object),
    st.sampled_from([np.array([3, 4]), np.array([[3.5]]), np.array(5), np.array(["a"])]),
    st.builds(lambda: iter([3, 4])),
)
hashable = st.one_of(st.none(), st.integers(-2, 300), st.text(max_size=4), st.booleans())
anything = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.tuples(inner, inner),
        st.dictionaries(hashable, inner, max_size=2),
        st.sets(hashable, max_size=2),
    ),
    max_leaves=4,
)


def some_fields(kind: type, usual: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[dict]:
    """One to three fields of a dataclass: now and then something sensible, else anything."""
    names = [one.name for one in fields(kind)]
    values = {name: st.one_of(usual.get(name, anything), anything) for name in names}
    return st.sets(st.sampled_from(names), min_size=1, max_size=3).flatmap(
        lambda chosen: st.fixed_dictionaries({name: values[name] for name in sorted(chosen)})
    )


token_lists = st.lists(st.integers(0, VOCAB), max_size=3)
USUAL: dict[str, st.SearchStrategy[Any]] = {
    "n": st.integers(1, 9),
    "best_of": st.integers(1, 9),
    "max_tokens": st.integers(1, 6),
    "min_tokens": st.integers(0, 4),
    "logprobs": st.integers(-1, 21),
    "prompt_logprobs": st.integers(-1, 21),
    "logprob_token_ids": token_lists,
    "stop_token_ids": token_lists,
    "allowed_token_ids": token_lists,
    "stop": st.lists(st.text(max_size=2), max_size=2),
    "bad_words": st.lists(st.text(max_size=2), max_size=2),
    "logit_bias": st.dictionaries(st.integers(-1, VOCAB), st.floats(-200, 200), max_size=2),
    "truncate_prompt_tokens": st.integers(-1, 5),
    "output_kind": st.sampled_from(RequestOutputKind),
    "use_beam_search": st.booleans(),
}


@pytest.fixture(scope="module")
def llm(of_bytes):
    return LLM(
        of_bytes, block_size=4, num_gpu_blocks_override=60, max_num_seqs=8, max_model_len=40,
        max_num_batched_tokens=40, swap_space=0.01, chat_template=TEMPLATE,
    )  # fmt: skip


@pytest.fixture(scope="module")
def usual(llm) -> list[int]:
    return llm.generate("abc", GREEDY, use_tqdm=False)[0].outputs[0].token_ids


def tried(llm: LLM, usual: list[int], call: Any) -> Any:
    """The result of a call, or a typed error; the engine is as it was."""
    result: Any = None
    try:
        result = call()
    except JaxEngineError as error:
        assert str(error)
        str(error).encode()  # what cannot be printed is no message
    check_idle(llm.llm_engine)
    again = llm.generate("abc", GREEDY, use_tqdm=False)
    assert again[0].outputs[0].token_ids == usual
    return result


@MORE
@example(given_fields={"stop": 5})
@given(given_fields=some_fields(SamplingParams, USUAL))
def test_sampling_params(llm, usual, given_fields) -> None:
    settings = {"max_tokens": 3} | given_fields
    tried(llm, usual, lambda: llm.generate("ab", SamplingParams(**settings), use_tqdm=False))


@MORE
@given(given_fields=some_fields(SamplingParams, USUAL))
def test_sampling_params_that_are_changed_later(llm, usual, given_fields) -> None:
    params = SamplingParams(max_tokens=3)
    for name, value in given_fields.items():
        setattr(params, name, value)
    tried(llm, usual, lambda: llm.generate(["ab", [5, 6]], params, use_tqdm=False))


@MORE
@given(given_fields=some_fields(BeamSearchParams, USUAL | {"beam_width": st.integers(1, 5)}))
def test_beam_search_params(llm, usual, given_fields) -> None:
    settings = {"beam_width": 2, "max_tokens": 2} | given_fields
    tried(llm, usual, lambda: llm.beam_search("ab", BeamSearchParams(**settings), use_tqdm=False))


@MORE
@given(given_fields=some_fields(PoolingParams, {}), task=st.sampled_from(["embed", "token_embed"]))
def test_pooling_params(llm, usual, given_fields, task) -> None:
    tried(
        llm,
        usual,
        lambda: llm.encode("ab", PoolingParams(**given_fields), pooling_task=task, use_tqdm=False),
    )


@MORE
@given(
    given_fields=some_fields(
        StructuredOutputsParams,
        {
            "choice": st.lists(st.text(max_size=3), max_size=2),
            "regex": st.sampled_from(["a+", "[ab]{2}", "(", "\ud800"]),
            "json": st.sampled_from(['{"type": "integer"}', "{}", "{", {"enum": ["\ud800"]}]),
            "grammar": st.sampled_from(['root ::= "a"', "start: ", "x"]),
            "json_object": st.booleans(),
        },
    )
)
def test_structured_outputs(llm, usual, given_fields) -> None:
    def call() -> Any:
        guide = StructuredOutputsParams(**given_fields)
        params = SamplingParams(max_tokens=3, structured_outputs=guide)
        return llm.generate("ab", params, use_tqdm=False)

    tried(llm, usual, call)


@MORE
@example(prompts=[{"multi_modal_data": np.array([3, 4])}])
@example(prompts=[{"prompt": "a", "multi_modal_data": np.array([3, 4])}])
@given(prompts=st.one_of(anything, st.fixed_dictionaries({"prompt": anything}),
                         st.fixed_dictionaries({"prompt_token_ids": anything}),
                         st.lists(st.dictionaries(st.sampled_from(
                             ["prompt", "prompt_token_ids", "cache_salt", "multi_modal_data",
                              "prediction"]
                         ), anything), max_size=2)))  # fmt: skip
def test_prompts(llm, usual, prompts) -> None:
    for call in (llm.generate, llm.embed, llm.score_tokens):
        tried(llm, usual, lambda call=call: call(prompts, use_tqdm=False))
    tried(llm, usual, lambda: llm.score(prompts, "a", use_tqdm=False))


ARGUMENTS = ("sampling_params", "lora_request", "priority", "timeout", "tokenization_kwargs")


@MORE
@given(
    arguments=st.dictionaries(st.sampled_from(ARGUMENTS), anything, min_size=1, max_size=2),
    options=st.none()
    | st.dictionaries(
        st.sampled_from(["add_special_tokens", "truncation", "max_length", "truncation_side"]),
        anything,
    ),
)
def test_other_arguments_of_generate(llm, usual, arguments, options) -> None:
    if options is not None:
        arguments = arguments | {"tokenization_kwargs": options}
    tried(llm, usual, lambda: llm.generate(["ab", "c"], use_tqdm=False, **arguments))


messages = st.one_of(
    anything,
    st.lists(
        st.fixed_dictionaries(
            {"role": st.sampled_from(["user", "assistant", "tool", 3, "\ud800"])},
            optional={
                "content": st.one_of(
                    st.text(max_size=4),
                    anything,
                    st.lists(st.fixed_dictionaries({"type": st.just("text"), "text": texts})),
                ),
                "tool_calls": st.one_of(
                    anything,
                    st.just([{"function": {"name": "f", "arguments": '{"a": 1}'}}]),
                    st.lists(st.fixed_dictionaries({"function": anything}), max_size=1),
                ),
                "name": anything,
            },
        ),
        max_size=3,
    ),
)
CHAT = (
    "chat_template",
    "chat_template_content_format",
    "add_generation_prompt",
    "continue_final_message",
    "tools",
    "chat_template_kwargs",
    "tokenization_kwargs",
    "sampling_params",
)


@MORE
@given(messages=messages)
def test_messages_of_chats(llm, usual, messages) -> None:
    params = SamplingParams(max_tokens=1, truncate_prompt_tokens=20)
    tried(llm, usual, lambda: llm.chat(messages, params, use_tqdm=False))


@MORE
@given(arguments=st.dictionaries(st.sampled_from(CHAT), anything, min_size=1, max_size=2))
def test_other_arguments_of_chat(llm, usual, arguments) -> None:
    question = [{"role": "user", "content": "x"}]
    tried(llm, usual, lambda: llm.chat(question, use_tqdm=False, **arguments))


@MORE
@given(name=st.sampled_from(["arrival_time", "priority", "timeout"]), value=anything)
def test_arguments_of_add_request(llm, usual, name, value) -> None:
    def call() -> None:
        llm.llm_engine.add_request("x", "ab", GREEDY, **{name: value})
        run(llm.llm_engine)

    tried(llm, usual, call)


@MORE
@example(given_fields={"pooler_config": {None: None}})
@given(given_fields=some_fields(EngineConfig, {}))
def test_engine_settings(given_fields) -> None:
    """Construction only: what is built of them is tested elsewhere."""
    for make in (
        lambda: EngineConfig(**given_fields),
        lambda: EngineConfig.from_settings(**given_fields),
        lambda: EngineArgs(**given_fields).create_engine_config(),
    ):
        try:
            assert isinstance(make(), EngineConfig)
        except JaxEngineError as error:
            str(error).encode()


@MORE
@given(given_fields=some_fields(EngineArgs, {}))
def test_settings_of_vllm(given_fields) -> None:
    try:
        assert isinstance(EngineArgs(**given_fields).create_engine_config(), EngineConfig)
    except JaxEngineError as error:
        str(error).encode()
