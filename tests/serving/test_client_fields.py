"""Fields that OpenAI's and vLLM's clients send, and those that they read."""

from typing import Any

import openai
import pytest
from starlette.testclient import TestClient

from jax_engine import InvalidRequestError, SamplingParams
from jax_engine.serving.messages import params_fields, read_params
from tests.support.scripted_app import Make, events

C, CHAT = "/v1/completions", "/v1/chat/completions"
HI: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}]}
MINE: dict[str, Any] = {"role": "assistant", "content": "So "}


def official(client: TestClient) -> openai.OpenAI:
    return openai.OpenAI(base_url="http://testserver/v1", api_key="x", http_client=client)


BACKENDS = ["auto", "guidance", "llguidance", "outlines", "xgrammar:no-fallback"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        *((path, {"stream": True, "stream_options": {"include_obfuscation": False}})
          for path in (C, CHAT)),
        (CHAT, {"logprobs": False, "top_logprobs": 0}),
        (CHAT, {"logprobs": None, "top_logprobs": 0}),
        (CHAT, {"modalities": ["text"], "prediction": {"type": "content", "content": "x"}}),
        *((path, {"guided_regex": "a", "guided_decoding_backend": one})
          for path in (C, CHAT, "/v1/responses") for one in BACKENDS),
        ("/v1/responses", {"top_logprobs": 0,
                           "stream": True, "stream_options": {"include_obfuscation": True}}),
    ],
)  # fmt: skip
def test_fields_that_change_nothing(make: Make, path: str, body: dict[str, Any]) -> None:
    client, _ = make()
    asked = {C: {"prompt": "x"}, CHAT: HI, "/v1/responses": {"input": "x"}}[path]
    answer = client.post(path, json=asked | body)
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        (CHAT, HI | {"modalities": ["audio"]}, "modalities.0"),
        (CHAT, HI | {"guided_decoding_backend": "outline"}, "guided_decoding_backend"),
        (CHAT, HI | {"documents": "x"}, "documents"),
        (CHAT, HI | {"documents": ["x"]}, "documents.0"),
        (CHAT, HI | {"logprobs": False, "top_logprobs": 1}, "top_logprobs"),
        (CHAT, HI | {"logprobs": False, "top_logprobs": -1}, "top_logprobs"),
        (C, {"prompt": "x", "vllm_xargs": {"a": {"b": 1}}}, "vllm_xargs.a"),
        (C, {"prompt": "x", "vllm_xargs": [1]}, "vllm_xargs"),
        *((path, HI | {"chat_template": "{{ 1 }}"}, "chat_template")
          for path in (CHAT, "/tokenize")),
        *((path, HI | {"chat_template_kwargs": {"chat_template": "x"}}, "chat_template_kwargs")
          for path in (CHAT, "/tokenize")),
    ],
)  # fmt: skip
def test_what_is_refused_is_named(make: Make, path: str, body: Any, param: str) -> None:
    client, llm = make()
    answer = client.post(path, json=body)
    assert answer.status_code == 400 and answer.json()["error"]["param"] == param, answer.text
    assert not llm.asked


def test_extra_arguments_reach_the_engines_process(make: Make) -> None:
    """Logits processors read them there."""
    client, llm = make()
    given = {"a": "b", "c": 1, "d": 0.5, "e": ["x", 2, 1.5]}
    for path, body in ((C, {"prompt": "x"}), (CHAT, HI), ("/v1/responses", {"input": "x"})):
        assert client.post(path, json=body | {"vllm_xargs": given}).status_code == 200
        params = llm.asked[-1][1]
        assert params.extra_args == given
        sent = read_params(params_fields(params), pooling=False, streams=False)
        assert isinstance(sent, SamplingParams) and sent.extra_args == given
        client.post(path, json=body)
        assert llm.asked[-1][1].extra_args is None
    with pytest.raises(InvalidRequestError, match="extra_args cannot be sent to the engine"):
        params_fields(SamplingParams(extra_args={"a": object()}))


def test_documents_are_an_option_of_the_template(make: Make) -> None:
    template = "{% for d in documents %}{{ d.title }}={{ d.text }};{% endfor %}"
    client, llm = make({"chat_template": template + "{{ messages[0].content }}"})
    documents = [{"title": "A", "text": "a"}, {"title": "B", "text": "b"}]
    for more in ({}, {"chat_template_kwargs": {"documents": []}}):
        client.post(CHAT, json=HI | more | {"documents": documents})
        assert llm.asked[-1][0]["prompt"] == "A=a;B=b;hi"
    count = client.post("/tokenize", json=HI | {"documents": documents}).json()["count"]
    assert count == len("A=a;B=b;hi")


def test_a_trusted_clients_template(make: Make) -> None:
    client, llm = make({"chat_template": "server", "trust_request_chat_template": True})
    mine = {"chat_template": "mine:{{ messages[0].content }}"}
    assert client.post(CHAT, json=HI | mine).status_code == 200
    client.post(CHAT, json=HI)
    assert [one["prompt"] for one, _ in llm.asked] == ["mine:hi", "server"]
    assert client.post("/tokenize", json=HI | mine).json()["count"] == len("mine:hi")
    broken = client.post(CHAT, json=HI | {"chat_template": "{% for %}"})
    assert broken.status_code == 400 and "template" in broken.json()["error"]["message"]


def test_whole_answers_have_nulls_that_clients_read(make: Make) -> None:
    client, _ = make()
    nothing = {"service_tier": None, "system_fingerprint": None, "kv_transfer_params": None}
    chat = client.post(CHAT, json=HI).json()
    assert chat.items() >= (nothing | {"prompt_logprobs": None, "prompt_token_ids": None}).items()
    choice = chat["choices"][0]
    assert choice.items() >= {"logprobs": None, "stop_reason": None, "token_ids": None}.items()
    said = ("refusal", "reasoning", "reasoning_content", "annotations", "audio", "function_call")
    assert choice["message"].items() >= dict.fromkeys(said).items()
    assert "tool_calls" not in choice["message"]
    text = client.post(C, json={"prompt": "x"}).json()
    assert text.items() >= nothing.items()
    names = ("logprobs", "stop_reason", "token_ids", "prompt_token_ids", "prompt_logprobs")
    assert text["choices"][0].items() >= dict.fromkeys(names).items()
    asked = {"prompt_logprobs": 1, "return_token_ids": True}
    chat = client.post(CHAT, json=HI | asked).json()
    assert chat["prompt_logprobs"][1] and chat["prompt_token_ids"]
    assert chat["choices"][0]["token_ids"] == list(b"Hello")
    (choice,) = client.post(C, json={"prompt": "xy"} | asked).json()["choices"]
    assert choice["prompt_logprobs"][0] is None and choice["prompt_logprobs"][1]
    assert (choice["prompt_token_ids"], choice["token_ids"]) == (list(b"xy"), list(b"Hello"))
    for path, body in ((C, {"prompt": "x"}), (CHAT, HI)):
        for one in events(client.post(path, json=body | {"stream": True}).text):
            assert "prompt_logprobs" not in one and "system_fingerprint" not in one


@pytest.mark.parametrize("at_end", [True, False])
def test_continuous_usage_is_each_choices(make: Make, at_end: bool) -> None:
    """It comes only together with `include_usage`, from the first event on, as in vLLM."""
    client, _ = make()
    options = {"include_usage": at_end, "continuous_usage_stats": True}
    asked = {"n": 2, "stream": True, "stream_options": options}
    for path, body in ((CHAT, HI), (C, {"prompt": ["a", "bcd"]})):
        found = events(client.post(path, json=body | asked).text)
        if not at_end:
            assert all("usage" not in one for one in found)
            continue
        *pieces, last = found
        assert last["choices"] == [] and last["usage"]["completion_tokens"] == 5 * (
            2 if path == CHAT else 4
        )
        count = dict.fromkeys(range(4), 0)
        for one in pieces:
            index = one["choices"][0]["index"]
            prompt = len("[user]hi[assistant]") if path == CHAT else (1, 3)[index // 2]
            count[index] += not (path == CHAT and "role" in one["choices"][0]["delta"])
            assert one["usage"] == {
                "prompt_tokens": prompt,
                "completion_tokens": count[index],
                "total_tokens": prompt + count[index],
            }
        assert set(count.values()) <= {0, 5}


@pytest.mark.parametrize(
    ("last", "text"),
    [
        (MINE, "So Hello"),
        (MINE | {"content": ["So", {"type": "refusal", "refusal": "no"}]}, "So\nnoHello"),
        (MINE | {"content": None}, "Hello"),
        ({"role": "user", "content": "So "}, "Hello"),
    ],
)
def test_the_echo_of_a_chat(make: Make, last: dict[str, Any], text: str) -> None:
    client, _ = make()
    ends = {"continue_final_message": True, "add_generation_prompt": False}
    body = {"messages": [*HI["messages"], last], "n": 2}
    body |= ends if last["content"] == "So " and last["role"] == "assistant" else {}
    whole = client.post(CHAT, json=body | {"echo": True}).json()["choices"]
    assert [one["message"]["content"] for one in whole] == [text] * 2
    chunks = events(client.post(CHAT, json=body | {"echo": True, "stream": True}).text)
    for index in range(2):
        mine = [c["delta"] for one in chunks for c in one["choices"] if c["index"] == index]
        assert "role" in mine[0]
        assert "".join(one.get("content") or "" for one in mine) == text
    plain = client.post(CHAT, json=body).json()["choices"][0]
    assert plain["message"]["content"] == "Hello"


def test_tokens_by_their_ids(make: Make) -> None:
    client, llm = make()
    llm.text = "é!"
    ids = [f"token_id:{one}" for one in "é!".encode()]
    more = {"return_tokens_as_token_ids": True, "logprobs": 2}
    found = client.post(C, json={"prompt": "x", "echo": True} | more).json()["choices"][0]
    assert found["logprobs"]["tokens"] == ["token_id:120", *ids]
    assert found["logprobs"]["text_offset"] == [0, 1, 1, 2]
    assert found["logprobs"]["top_logprobs"][1].keys() == {ids[0], "token_id:1"}
    more = {"return_tokens_as_token_ids": True, "logprobs": True, "top_logprobs": 1}
    (choice,) = client.post(CHAT, json=HI | more).json()["choices"]
    for one, name, byte in zip(choice["logprobs"]["content"], ids, "é!".encode(), strict=True):
        assert one["token"] == one["top_logprobs"][0]["token"] == name
        assert one["bytes"] == [byte]


@pytest.mark.parametrize("stream", [True, False])
def test_the_echo_of_a_prompt_with_special_tokens(make: Make, stream: bool) -> None:
    """Offsets are places in the text: OpenAI's client finds each token there."""
    http, llm = make()
    llm.text = "Ok<|end|>"
    ids: Any = [*b"a", 256, *b"b"]
    for prompt, more in (("a<|end|>b", {}), (ids, {}), (ids, {"truncate_prompt_tokens": 2})):
        asked: Any = {"model": "tiny", "prompt": prompt, "echo": True, "logprobs": 0}
        answer = official(http).completions.create(
            **asked, stream=stream, extra_body={"skip_special_tokens": False} | more
        )
        chunks = list(answer) if stream else [answer]
        text = "".join(one.choices[0].text for one in chunks)
        assert text.startswith("a<|end|>b")
        pairs = [
            pair
            for one in chunks
            for pair in zip(
                one.choices[0].logprobs.tokens, one.choices[0].logprobs.text_offset, strict=True
            )
        ]
        assert len(pairs) >= 6
        for token, offset in pairs:
            assert text.startswith(token, offset)
