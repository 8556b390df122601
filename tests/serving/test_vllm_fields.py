"""What vLLM's own tests of its server ask for, and OpenAI's API does not have."""

import json
from typing import Any

import pytest

from tests.support.scripted_app import Make, events

C, CHAT = "/v1/completions", "/v1/chat/completions"
HI: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}]}


def answers(text: str) -> list[Any]:
    """The events of a stream, or the one answer that is no stream."""
    return events(text) if text.startswith("data: ") else [json.loads(text)]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("top", [0, 1, 5])
def test_log_probabilities_of_chosen_tokens(make: Make, top: int, stream: bool) -> None:
    """All of them and the sampled one, however many were asked for."""
    client, llm = make()
    asked = {"logprob_token_ids": [101, 120, 121], "return_tokens_as_token_ids": True}
    wanted = [{101, 120, 121, one} for one in b"Hello"]
    body = {"prompt": "x", "logprobs": top, "stream": stream} | asked
    found = [
        {int(name.removeprefix("token_id:")) for name in one}
        for event in answers(client.post(C, json=body).text)
        for one in event["choices"][0]["logprobs"]["top_logprobs"]
    ]
    assert found == wanted
    body = HI | {"logprobs": True, "top_logprobs": top, "stream": stream} | asked
    entries = [
        one
        for event in answers(client.post(CHAT, json=body).text)
        for choice in event["choices"]
        for one in (choice["logprobs"] or {"content": []})["content"]
    ]
    names = [{one["token"] for one in entry["top_logprobs"]} for entry in entries]
    assert names == [{f"token_id:{one}" for one in row} for row in wanted]
    for _, params in llm.asked:
        assert params.logprobs is None and params.logprob_token_ids == [101, 120, 121]


def test_no_chosen_tokens_are_the_most_probable_ones(make: Make) -> None:
    client, llm = make()
    assert client.post(C, json={"prompt": "x", "logprobs": 2, "logprob_token_ids": []}).is_success
    assert llm.asked[0][1].logprobs == 2 and llm.asked[0][1].logprob_token_ids is None


@pytest.mark.parametrize(
    ("path", "body", "why"),
    [
        (C, {"prompt": "x", "logprob_token_ids": [1]}, "only be given with logprobs"),
        (CHAT, HI | {"logprob_token_ids": [1]}, "only be given with logprobs"),
        (CHAT, HI | {"logprob_token_ids": [1], "logprobs": False}, "only be given with logprobs"),
        (C, {"prompt": "x", "logprobs": 1, "logprob_token_ids": [1], "use_beam_search": True},
         "use_beam_search"),
        (CHAT, HI | {"logprobs": True, "logprob_token_ids": [1], "use_beam_search": True},
         "use_beam_search"),
        (C, {"prompt": "x", "logprobs": 1, "logprob_token_ids": [1], "echo": True, "max_tokens": 0},
         "max_tokens=0"),
        (C, {"prompt": "x", "logprobs": 1, "logprob_token_ids": [-1]}, "-1"),
        (C, {"prompt": "x", "logprobs": 1, "logprob_token_ids": list(range(1000))}, "must hold"),
    ],
)  # fmt: skip
def test_chosen_tokens_that_make_no_sense(make: Make, path: str, body: Any, why: str) -> None:
    client, llm = make()
    answer = client.post(path, json=body)
    error = answer.json()["error"]
    assert answer.status_code == 400 and error["param"] == "logprob_token_ids", error
    assert why in error["message"] and not llm.asked


def test_minus_one_shows_all_log_probabilities(make: Make) -> None:
    """The engine gives all; none of them is left out."""
    client, llm = make()
    llm._logprobs = _ranked  # type: ignore[method-assign]
    body: dict[str, Any] = {"prompt": "x", "logprobs": -1, "return_tokens_as_token_ids": True}
    [top, *_] = client.post(C, json=body).json()["choices"][0]["logprobs"]["top_logprobs"]
    assert list(top) == ["token_id:72", "token_id:1", "token_id:2"]
    answer = client.post(CHAT, json=HI | {"logprobs": True, "top_logprobs": -1})
    [entry, *_] = answer.json()["choices"][0]["logprobs"]["content"]
    assert [one["token"] for one in entry["top_logprobs"]] == ["H", "b", "c"]


def _ranked(params: Any, text: str) -> list[Any]:
    from jax_engine.outputs import Logprob

    others = {1: Logprob(-2.0, 2, "b"), 2: Logprob(-3.0, 3, "c")}
    return [{ord(one): Logprob(-0.5, 1, one)} | others for one in text]


@pytest.mark.parametrize("keep", [1, 3, 5, 9, -1])
@pytest.mark.parametrize("side", [None, "left", "right"])
@pytest.mark.parametrize("prompt", [list(b"abcde"), [list(b"abcde"), list(b"xy")]])
def test_prompts_are_cut_at_either_side(make: Make, side: Any, keep: int, prompt: Any) -> None:
    """The engine cuts at the left; at the right the server has cut already."""
    client, llm = make(max_model_len=4)
    body = {"prompt": prompt, "max_tokens": 1, "truncate_prompt_tokens": keep}
    answer = client.post(C, json=body | {"truncation_side": side})
    length = 3 if keep == -1 else keep
    given = prompt if isinstance(prompt[0], list) else [prompt]
    if length > 3 and side == "right":  # cut to what does not fit either
        assert answer.status_code in (200, 400)
        return
    assert answer.status_code == 200, answer.text
    for ids, (asked, params) in zip(given, llm.asked, strict=True):
        found = asked["prompt_token_ids"]
        assert found == (ids[:length] if side == "right" else ids)
        assert found[-length:] == (ids[:length] if side == "right" else ids[-length:])
        assert params.truncate_prompt_tokens in (keep, length)


def test_no_other_side(make: Make) -> None:
    answer = make()[0].post(C, json={"prompt": "x", "truncation_side": "middle"})
    assert answer.status_code == 400 and answer.json()["error"]["param"] == "truncation_side"


@pytest.mark.parametrize("stream", [False, True])
def test_an_echo_without_a_tokenizer_has_no_text(make: Make, stream: bool) -> None:
    client, llm = make()
    llm.config.skip_tokenizer_init = True
    body = {"prompt": [72, 73], "echo": True, "return_token_ids": True, "stream": stream}
    found = answers(client.post(C, json=body).text)
    assert "".join(one["choices"][0]["text"] for one in found) == "Hello"
    assert found[0]["choices"][0]["prompt_token_ids"] == [72, 73]


def test_all_keys_of_logit_bias_that_are_no_tokens_are_named(make: Make) -> None:
    client, _ = make()
    bias = {"1": 1.0} | {f"bad{i}": 1.0 for i in range(7)}
    error = client.post(C, json={"prompt": "x", "logit_bias": bias}).json()["error"]
    assert error["param"] == "logit_bias"
    assert "got 'bad0', 'bad1', 'bad2', 'bad3', 'bad4' and 2 more" in error["message"]


def test_refused_requests_are_counted(make: Make) -> None:
    client, llm = make({"max_waiting": 1})

    def count() -> str:
        line = 'vllm:admission_rejections_total{model_name="tiny",reason="max_num_queued_reqs"}'
        [found] = [one for one in client.get("/metrics").text.splitlines() if one.startswith(line)]
        return found.removeprefix(f"{line} ")

    assert count() == "0.0"
    llm.num_unfinished_requests = 3
    asked: list[tuple[str, Any]] = [
        (C, {"prompt": "x"}), (C, {"prompt": ["x"] * 9}), (CHAT, HI), ("/pooling", {"input": "x"}),
    ]  # fmt: skip
    for path, body in asked:
        assert client.post(path, json=body).status_code == 503
    assert client.post(C, json={}).status_code == 400
    assert count() == "4.0"


INVOCATIONS: list[tuple[str | None, dict[str, Any], str]] = [
    (None, HI | {"max_tokens": 3}, CHAT),
    (None, {"prompt": "x", "n": 2}, C),
    (None, {"input": "x"}, "/v1/embeddings"),
    ("classify", {"input": "x"}, "/classify"),
    ("token_classify", {"input": ["x", "y"]}, "/pooling"),
    ("classify", HI, "/classify"),
    ("token_classify", HI, "/pooling"),
    (None, HI | {"encoding_format": "float"}, "/v1/embeddings"),
    (None, {"text_1": "x", "text_2": "y"}, "/score"),
    (None, {"data_1": "x", "data_2": ["y", "z"]}, "/score"),
    (None, {"queries": "x", "documents": "y"}, "/score"),
    (None, {"queries": "x", "items": "y"}, "/score"),
    (None, {"query": "x", "documents": ["y"]}, "/rerank"),
]


@pytest.mark.parametrize(("head", "body", "path"), INVOCATIONS)
def test_invocations_are_what_their_fields_say(
    make: Make, head: str | None, body: dict[str, Any], path: str
) -> None:
    client, _ = make(head_task=head, labels=["a", "b"])
    found, wanted = client.post("/invocations", json=body), client.post(path, json=body)
    assert found.status_code == wanted.status_code == 200, found.text
    assert plain(found.json()) == plain(wanted.json())


def plain(answer: dict[str, Any]) -> dict[str, Any]:
    return {name: one for name, one in answer.items() if name not in ("id", "created")}


def test_invocations_that_are_nothing(make: Make) -> None:
    client, llm = make()
    bad = [
        ({}, None, "must have one of encoding_format, messages, prompt"),
        ({"model": "tiny"}, None, "must have one of encoding_format, messages, prompt"),
        ({"prompt": "x", "max_token": 1}, "max_token", "did you mean max_tokens?"),
        ({"prompt": "x", "temperature": -1}, "temperature", "must be in"),
        ({"messages": []}, "messages", "at least 1"),
    ]
    for body, param, why in bad:
        answer = client.post("/invocations", json=body)
        error = answer.json()["error"]
        assert answer.status_code == 400 and error["param"] == param and why in error["message"]
    assert client.post("/invocations", json=[1]).status_code == 400
    assert not llm.asked
