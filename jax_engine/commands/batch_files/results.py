"""A line of the output: in OpenAI's batch format, or the few fields that matter."""

from typing import Any

import msgspec

from jax_engine.commands.batch_files.lines import Line

ID = "batch_req_"  # and the line's number in the input


def answered(line: Line, status: int, body: bytes) -> bytes:
    """The answer to a request, as HTTP would give it."""
    if not line.of_batch:
        return _written({"line": line.number} | _short(msgspec.json.decode(body)))
    response = {
        "status_code": status,
        "request_id": f"{ID}{line.number}",
        "body": msgspec.Raw(body),
    }
    return _written(_batch(line, response, None))


def refused(line: Line) -> bytes:
    """What is wrong with a line that is no request."""
    error = {"code": "invalid_line", "message": line.problem}
    if not line.of_batch:
        return _written({"line": line.number, "error": error})
    return _written(_batch(line, None, error))


def _batch(line: Line, response: Any, error: Any) -> dict[str, Any]:
    names = {"id": f"{ID}{line.number}", "custom_id": line.custom_id}
    return names | {"response": response, "error": error}


def _written(result: dict[str, Any]) -> bytes:
    return msgspec.json.encode(result) + b"\n"


def _short(body: dict[str, Any]) -> dict[str, Any]:
    """An answer's choice, or its choices, without what a file does not need."""
    if "error" in body:
        return body
    choices = [_choice(one) for one in body["choices"]]
    kept = {k: body[k] for k in ("usage", "prompt_token_ids", "prompt_logprobs") if k in body}
    return (choices[0] if len(choices) == 1 else {"choices": choices}) | kept


def _choice(choice: dict[str, Any]) -> dict[str, Any]:
    message = choice.pop("message", None)
    if message is not None:
        choice = {"text": message.pop("content")} | message | choice
    left_out = ("index", "role")
    return {k: v for k, v in choice.items() if k not in left_out and (k == "text" or v)}
