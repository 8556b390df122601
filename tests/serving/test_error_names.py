"""Errors of the engine name the field that the client gave, by the client's name of it."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.serving.test_async_llm import SETTINGS
from tests.support.app_in_threads import app_in_threads
from tests.support.byte_tokenizer import VOCAB
from tests.support.scripted_app import Make

TEMPLATE = "{% for m in messages %}{{ m.content }}{% endfor %}"
WRONG = {"type": "string", "pattern": "(("}
CALL = [{"role": "user", "content": "x"}]
BODIES: dict[str, dict[str, Any]] = {
    "/v1/completions": {"prompt": "x", "max_tokens": 2},
    "/v1/chat/completions": {"messages": CALL, "max_completion_tokens": 2},
    "/v1/responses": {"input": "x", "max_output_tokens": 2},
    "/v1/messages": {"model": "tiny", "messages": CALL, "max_tokens": 2},
    "/v1/embeddings": {"input": "x"},
}
Ask = Callable[[str, dict[str, Any]], tuple[int, dict[str, Any]]]


@pytest.fixture(scope="module")
def post(checkpoint: Path) -> Iterator[Ask]:
    with app_in_threads(str(checkpoint), {"chat_template": TEMPLATE}, **SETTINGS) as client:

        def of(path: str, more: dict[str, Any]) -> tuple[int, dict[str, Any]]:
            answer = client.post(f"/v1/{path}", json=BODIES[f"/v1/{path}"] | more)
            return answer.status_code, answer.json()

        yield of


def schema(value: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "a", "schema": value}}


@pytest.mark.parametrize(
    ("path", "more", "field", "why"),
    [
        ("completions", {"prompt": [-1]}, "prompt", "[0] must be in [0, {last}], got -1"),
        ("completions", {"n": 20_000, "temperature": 1}, "n", " must be at most 16384, got 20000"),
        ("completions", {"best_of": 2, "temperature": 0}, "best_of", " must be 1 when"),
        ("completions", {"n": 2, "temperature": 0}, "n", " must be 1 when"),
        ("completions", {"logprobs": 99}, "logprobs", " must be at most max_logprobs (20), got 99"),
        ("completions", {"guided_regex": "(("}, "guided_regex", " must be a valid grammar"),
        ("completions", {"guided_choice": []}, "guided_choice", " must be a list of non-empty"),
        ("completions", {"structured_outputs": {"regex": "(("}}, "structured_outputs",
         ' must be a valid grammar: at 1(8): invalid regex "((" (in regex): regex parse error: '
         "unclosed group"),
        ("completions", {"response_format": schema(WRONG)}, "response_format.json_schema.schema",
         " must be a valid grammar: regex parse error: unclosed group"),
        ("chat/completions", {"response_format": schema({"enum": []})},
         "response_format.json_schema.schema", " must be a valid grammar: Unsatisfiable schema"),
        ("completions", {"response_format": {"type": "structural_tag", "triggers": ["<"],
         "structures": [{"begin": "x"}]}}, "response_format",
         " must be a valid structural tag: structures[0].begin must begin with one of"),
        ("chat/completions", {"structured_outputs": {"structural_tag": "{"}}, "structured_outputs",
         " must be a valid structural tag: it is not JSON"),
        ("chat/completions", {"thinking_token_budget": 3}, "thinking_token_budget",
         " must be left out, got 3: the engine does not know how this model ends its reasoning"),
        ("completions", {"thinking_token_budget": -2}, "thinking_token_budget",
         " must be at least -1, got -2"),
        ("chat/completions", {"logprobs": True, "top_logprobs": 99}, "top_logprobs",
         " must be at most max_logprobs (20), got 99"),
        ("chat/completions", {"logprobs": True, "top_logprobs": -5}, "top_logprobs",
         " must be at least -1, got -5"),
        ("chat/completions", {"max_completion_tokens": 0}, "max_completion_tokens",
         " must be at least 1, got 0"),
        ("chat/completions", {"max_completion_tokens": None, "max_tokens": 0}, "max_tokens",
         " must be at least 1, got 0"),
        ("responses", {"include": ["message.output_text.logprobs"], "top_logprobs": 99},
         "top_logprobs", " must be at most max_logprobs (20), got 99"),
        ("responses", {"text": {"format": {"type": "json_schema", "schema": WRONG}}},
         "text.format.schema", " must be a valid grammar: regex parse error: unclosed group"),
        ("messages", {"output_config": {"format": {"type": "json_schema", "schema": WRONG}}},
         "output_config.format.schema", " must be a valid grammar: regex parse error"),
        ("messages", {"stop_sequences": [""]}, "stop_sequences", " must hold non-empty strings"),
        ("embeddings", {"input": ""}, "input", " must have at least 1 token, got an empty prompt"),
        ("embeddings", {"input": [999]}, "input", "[0] must be in [0, {last}], got 999"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(
    post: Ask, path: str, more: dict[str, Any], field: str, why: str
) -> None:
    status, answer = post(path, more)
    said = field + why.replace("{last}", str(VOCAB - 1))
    assert status == 400 and answer["error"]["message"].startswith(said), answer
    if path != "messages":  # Anthropic's errors name no field
        assert answer["error"]["param"] == field


@pytest.mark.parametrize(
    "more",
    [{"response_format": schema({})}, {"guided_json": {}}, {"structured_outputs": {"json": {}}}],
)
def test_an_empty_schema_is_any_json(post: Ask, more: dict[str, Any]) -> None:
    status, answer = post("completions", more)
    assert status == 200 and answer["usage"]["completion_tokens"] == 2, answer


def test_a_body_that_is_compressed_is_refused(make: Make) -> None:
    client, llm = make()
    for coding, status in (("gzip", 415), ("identity", 200), ("Identity", 200)):
        answer = client.post(
            "/v1/completions", json={"prompt": "x"}, headers={"Content-Encoding": coding}
        )
        assert answer.status_code == status
        if status == 415:
            message = "Content-Encoding must be identity, got 'gzip': send plain JSON"
            assert answer.json()["error"]["message"] == message and not llm.asked
