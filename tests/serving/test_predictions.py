"""OpenAI's `prediction` through OpenAI's client, the server, messages and the engine of a model."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from starlette.testclient import TestClient

from jax_engine import AsyncLLM
from jax_engine.serving.api.app import make_app
from jax_engine.serving.api.service import ServerSettings, Service
from tests.support.engine_in_thread import in_threads
from tests.support.tiny_llama import byte_llama

# Not by the times of steps: right guesses are counted
EXACT = {"num_speculative_tokens": 7, "enable_adaptive_verification": False}
NGRAM = {"method": "ngram", **EXACT}  # five tokens must match
SPECULATION: dict[str, Any] = {
    "plain": None, "ngram": NGRAM, "suffix": {"method": "suffix", **EXACT},
}  # fmt: skip
# Characters of ASCII, so that a text has the tokens that were drawn.
BODY: dict[str, Any] = {
    "model": "tiny", "messages": [{"role": "user", "content": "Write it again."}], "seed": 3,
    "max_tokens": 60, "temperature": 0.8,
    "extra_body": {"allowed_token_ids": [*range(48, 123)]},
}  # fmt: skip


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, openai.OpenAI]]:
    folder = tmp_path_factory.mktemp("predictions")
    path = byte_llama(folder / "bytes", max_position_embeddings=256)
    with pytest.MonkeyPatch.context() as patch:
        in_threads(patch)
        llms = {name: engine_of(path, one) for name, one in SPECULATION.items()}
        yield {name: client_of(llm) for name, llm in llms.items()}
        for llm in llms.values():
            llm.shutdown()


def engine_of(path: Path, speculation: Any) -> AsyncLLM:
    return AsyncLLM(
        str(path),
        speculative_config=speculation,
        max_model_len=256,
        max_num_seqs=8,
        num_gpu_blocks_override=200,
        block_size=8,
    )


def client_of(llm: AsyncLLM) -> openai.OpenAI:
    app = make_app(Service(llm, ServerSettings(names=("tiny",))))
    http = TestClient(app, base_url="http://server/v1")
    return openai.OpenAI(base_url="http://server/v1", api_key="x", http_client=http, max_retries=0)


def content(text: Any) -> dict[str, Any]:
    return {"type": "content", "content": text}


def asked(client: openai.OpenAI, **more: Any) -> Any:
    return client.chat.completions.create(**(BODY | more))


def said(answer: Any) -> list[Any]:
    return [(one.message.content, one.finish_reason, one.logprobs) for one in answer.choices]


def details(usage: Any) -> tuple[int, int]:
    found = usage.completion_tokens_details
    return found.accepted_prediction_tokens, found.rejected_prediction_tokens


@pytest.mark.slow
@pytest.mark.parametrize("method", ["ngram", "suffix"])
def test_an_answer_is_that_of_a_server_without_guesses(method: str, clients: Any) -> None:
    plain, client = asked(clients["plain"]), clients[method]
    [choice] = plain.choices
    text = choice.message.content
    assert len(text) == 60
    right = asked(client, prediction=content(text))
    assert said(right) == said(plain)
    accepted, rejected = details(right.usage)
    assert accepted > 40 and rejected == 0
    assert right.usage.completion_tokens == 60
    assert right.usage.prompt_tokens == plain.usage.prompt_tokens
    other = "~!" * 5  # no answer has these characters
    changed = text[:20] + other + text[21:]
    near = asked(client, prediction=content(changed))
    assert said(near) == said(plain)
    accepted, rejected = details(near.usage)
    assert accepted > 20 and len(other) <= rejected < 30
    far = asked(client, prediction=content("~" * 1000))
    assert said(far) == said(plain) and details(far.usage) == (0, 256)


@pytest.mark.slow
def test_parts_are_a_text(clients: Any) -> None:
    """One behind the other, and cut where a token may begin before its end."""
    text = asked(clients["plain"]).choices[0].message.content
    parts = [{"type": "text", "text": one} for one in (text[:7], "", text[7:40], text[40:])]
    for one in (content(parts), content(text)):
        answer = asked(clients["ngram"], prediction=one)
        assert answer.choices[0].message.content == text and details(answer.usage)[1] == 0
    nothing = asked(clients["ngram"], prediction=content([]))
    assert details(nothing.usage) == (0, 0)


def test_without_guesses_it_is_taken_and_is_nothing(clients: Any) -> None:
    plain = asked(clients["plain"])
    text = plain.choices[0].message.content
    assert plain.usage.completion_tokens_details is None
    none = {"extra_body": BODY["extra_body"] | {"num_speculative_tokens": 0}}
    for client, more in ((clients["plain"], {}), (clients["ngram"], none)):
        answer = asked(client, prediction=content(text), **more)
        assert said(answer) == said(plain) and details(answer.usage) == (0, 0)
    assert asked(clients["ngram"]).usage.completion_tokens_details is None


# What OpenAI refuses beside a prediction, and works here.
BESIDE: dict[str, dict[str, Any]] = {
    "n": {"n": 3},
    "logprobs": {"logprobs": True, "top_logprobs": 2},
    "penalties": {"presence_penalty": 0.5, "frequency_penalty": 0.3},
    "max_completion_tokens": {"max_tokens": None, "max_completion_tokens": 33},
    "stop": {"stop": ["a", "Q", "7"]},
    "tools": {"tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": "none"},
    "salt": {"extra_body": BODY["extra_body"] | {"cache_salt": "mine"}},
    "greedy": {"temperature": 0},
}


@pytest.mark.slow
@pytest.mark.parametrize("stream_options", [None, {}, {"include_usage": True},
    {"include_usage": True, "continuous_usage_stats": True}])  # fmt: skip
@pytest.mark.parametrize("beside", BESIDE)
def test_beside_other_fields_and_as_a_stream(
    beside: str, stream_options: Any, clients: Any
) -> None:
    more = BESIDE[beside]
    plain = asked(clients["plain"], **more)
    prediction = content(plain.choices[0].message.content)
    whole = asked(clients["ngram"], prediction=prediction, **more)
    assert said(whole) == said(plain)
    assert whole.usage.prompt_tokens == plain.usage.prompt_tokens
    accepted, rejected = details(whole.usage)
    assert accepted > 0 or len(prediction["content"]) < 3
    if beside == "n":
        assert rejected > 60, "two of the samples say other things"
    if stream_options is not None:
        more = more | {"stream_options": stream_options}
    events = [*asked(clients["ngram"], prediction=prediction, stream=True, **more)]
    texts = [""] * len(plain.choices)
    for event in events:
        for one in event.choices:
            texts[one.index] += one.delta.content or ""
    assert texts == [one.message.content for one in plain.choices]
    if stream_options and stream_options["include_usage"]:
        last = events[-1].usage
        assert events[-1].choices == [] and details(last) == (accepted, rejected)
        assert last.completion_tokens == whole.usage.completion_tokens
        told = [event.usage for event in events[:-1]]
        always = "continuous_usage_stats" in stream_options
        assert all((one is not None) == always for one in told)
    else:
        assert all(event.usage is None for event in events)


def test_it_is_no_part_of_the_prompt_nor_of_the_cache(clients: Any) -> None:
    """The same request again hits what it would hit without."""
    hits = []
    for name in ("plain", "ngram"):
        messages = [{"role": "user", "content": f"Of {name}, and long enough for some blocks."}]
        for _ in range(2):
            answer = asked(clients[name], prediction=content("z" * 100), messages=messages)
            hits.append((answer.usage.prompt_tokens_details.cached_tokens, said(answer)[0][1]))
    assert hits[1] == hits[3] and hits[0] == hits[2]
    assert hits[1][0] > 0


WRONG: list[tuple[Any, str]] = [
    ("x", "prediction"),
    (3, "prediction"),
    ({}, "prediction.type"),
    ({"type": "content"}, "prediction.content"),
    ({"type": "text", "content": "x"}, "prediction.type"),
    ({"type": "content", "content": 5}, "prediction.content"),
    ({"type": "content", "content": [{"type": "image_url", "text": "x"}]}, "prediction.content"),
    ({"type": "content", "content": [{"type": "text"}]}, "prediction.content"),
    ({"type": "content", "content": [None]}, "prediction.content"),
    ({"type": "content", "content": "x", "weight": 2}, "prediction"),
    ({"type": "content", "content": [{"type": "text", "text": ""}] * 10_001}, "prediction.content"),
]


@pytest.mark.parametrize(("wrong", "where"), WRONG, ids=range(len(WRONG)))
@pytest.mark.parametrize("method", ["plain", "ngram"])
def test_what_is_none_is_refused(wrong: Any, where: str, method: str, clients: Any) -> None:
    with pytest.raises(openai.BadRequestError) as error:
        asked(clients[method], prediction=wrong)
    assert error.value.param is not None
    assert error.value.param.startswith(where), error.value
    assert len(str(error.value)) < 600


def test_the_other_endpoints_ignore_it(clients: Any) -> None:
    """They ignore it like fields that do not change an answer. OpenAI has it in chats alone."""
    client = clients["ngram"]
    answer = client.completions.create(
        model="tiny", prompt="x", max_tokens=3, extra_body={"prediction": content("y")}
    )
    assert answer.usage.completion_tokens == 3
    assert answer.usage.completion_tokens_details is None
