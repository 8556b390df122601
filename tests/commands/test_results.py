"""Lines of `generate`'s output, made of an answer's body: what a file keeps, and what it drops."""

import json
from typing import Any

import pytest

from jax_engine.commands.batch_file import Line, answered, refused

USAGE = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}


def line(*, of_batch: bool = False, problem: str | None = None) -> Line:
    return Line(7, of_batch, "mine", "/v1/completions", {"prompt": "x"}, problem)


def short(body: dict[str, Any]) -> dict[str, Any]:
    """The line of a short request that has this answer, without the line's number."""
    written = answered(line(), 200, json.dumps(body).encode())
    assert written.endswith(b"\n") and written.count(b"\n") == 1
    found: dict[str, Any] = json.loads(written)
    assert found.pop("line") == 7
    return found


def choice(**fields: Any) -> dict[str, Any]:
    return {"index": 0, "finish_reason": "stop", "logprobs": None, "stop_reason": None} | fields


CALL = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
SAID = {"role": "assistant", "content": "Hi", "reasoning": None, "tool_calls": []}


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (choice(text="Hi"), {"text": "Hi", "finish_reason": "stop"}),
        (choice(text=""), {"text": "", "finish_reason": "stop"}),  # that it is empty says something
        (
            choice(text="a", logprobs={"tokens": ["a"]}, stop_reason="b", token_ids=[1]),
            {"text": "a", "finish_reason": "stop", "logprobs": {"tokens": ["a"]},
             "stop_reason": "b", "token_ids": [1]},
        ),
        (choice(message=SAID), {"text": "Hi", "finish_reason": "stop"}),
        (
            choice(message=SAID | {"reasoning": "Hm"}, finish_reason="length"),
            {"text": "Hi", "reasoning": "Hm", "finish_reason": "length"},
        ),
        (
            choice(message=SAID | {"content": None, "tool_calls": [CALL]}),
            {"text": None, "tool_calls": [CALL], "finish_reason": "stop"},
        ),
    ],
)  # fmt: skip
def test_a_choice_is_its_text_and_what_else_it_says(
    given: dict[str, Any], kept: dict[str, Any]
) -> None:
    body = {"id": "x", "object": "y", "created": 1, "model": "m", "usage": USAGE}
    one, two = short(body | {"choices": [given]}), short(body | {"choices": [given, given]})
    assert one == kept | {"usage": USAGE}
    assert two == {"choices": [kept, kept], "usage": USAGE}


def test_what_was_asked_about_the_prompt_is_kept() -> None:
    about = {"prompt_token_ids": [1, 2], "prompt_logprobs": [None, {"2": {"logprob": -1.0}}]}
    body = {"id": "x", "choices": [choice(text="Hi")], "usage": USAGE} | about
    assert short(body) == {"text": "Hi", "finish_reason": "stop", "usage": USAGE} | about


def test_an_error_is_the_line() -> None:
    error = {"message": "no", "type": "invalid", "param": None, "code": None}
    assert short({"error": error}) == {"error": error}
    assert json.loads(refused(line(problem="bad"))) == {
        "line": 7, "error": {"code": "invalid_line", "message": "bad"},
    }  # fmt: skip


def test_a_batch_has_the_whole_answer() -> None:
    body = {"id": "x", "choices": [choice(text="")], "model": "m"}
    names = {"id": "batch_req_7", "custom_id": "mine"}
    found = json.loads(answered(line(of_batch=True), 418, json.dumps(body).encode()))
    response = {"status_code": 418, "request_id": "batch_req_7", "body": body}
    assert found == names | {"response": response, "error": None}
    error = {"code": "invalid_line", "message": "bad"}
    found = json.loads(refused(line(of_batch=True, problem="bad")))
    assert found == names | {"response": None, "error": error}
