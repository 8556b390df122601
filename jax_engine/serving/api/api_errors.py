"""Errors of the API, each with the HTTP status of its kind, bounded in size.

An error has OpenAI's shape, or Anthropic's on the paths where Anthropic's clients read it.
"""

import logging
import re
import sys
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

import msgspec
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from jax_engine.checks import shown
from jax_engine.errors import (
    ConfigError,
    EngineDeadError,
    InvalidRequestError,
    JaxEngineError,
    RequestTooLargeError,
)
from jax_engine.serving.api.request_fields import MAX_DEPTH
from jax_engine.serving.parsers.parser_base import ParserFailedError

logger = logging.getLogger("jax_engine")
MAX_MESSAGE = 1000  # characters: a message may quote what the client sent
MAX_PARAM = 100
PROMPTS = ("messages", "input", "prompt")  # what endpoints call it
NO_NAMES: Mapping[str, str] = {}
_OPENAI_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "invalid_request_error",
    413: "invalid_request_error",
    503: "service_unavailable_error",
}
_NAME = re.compile(r"[a-z_]+(?=[\s\[.'])")
_KIND = re.compile(r"^(str|int|float|bool)$|[\[(]")  # where pydantic tries several types
_ENGINE_ID = re.compile(r"^request '\d+': ")  # says nothing to a client
_HOST_PATH = re.compile(r"(?<![\w/.:])/(?:[\w.@+~-]+/)+[\w.@+~-]*")


class ApiError(Exception):
    """What a client is told instead of an answer.

    Attributes:
        param: the field that is wrong.
        code: a name of the problem for programs.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.param, self.code = status, message, param, code
        self.headers = headers

    def body(self) -> dict[str, Any]:
        """The error as JSON is to say it."""
        kind = _OPENAI_TYPES.get(
            self.status, "server_error" if self.status >= 500 else _OPENAI_TYPES[400]
        )
        message = self.message.encode("utf-8", "backslashreplace").decode()
        if len(message) > MAX_MESSAGE:
            message = message[: MAX_MESSAGE - 3] + "..."
        param = None if self.param is None else shown(self.param[:MAX_PARAM])[1:-1]
        error = {"message": message, "type": kind, "param": param, "code": self.code}
        return {"error": error}

    def response(self, path: str) -> Response:
        """The error as an answer, in the shape that clients of a path expect."""
        body = self.body()
        if is_anthropic_path(path):
            body = anthropic_error(self.status, body["error"]["message"])
        content = msgspec.json.encode(body)
        return Response(content, self.status, self.headers, media_type="application/json")


def invalid(param: str | None, message: str) -> ApiError:
    """A request that is not acceptable."""
    return ApiError(400, message, param=param)


def engine_dead() -> ApiError:
    """What is said of an engine that has ended to who asks for its state."""
    return ApiError(503, "the engine has ended", code="engine_dead")


def aborted(why: object) -> ApiError:
    """A request that the engine has ended before the model did."""
    if why == "timeout":
        return ApiError(504, "the request took longer than it may", code="timeout")
    return ApiError(500, "the request was aborted")


def api_error(
    error: Exception, fields: Sequence[str] = (), names: Mapping[str, str] = NO_NAMES
) -> ApiError:
    """Any error as an `ApiError`.

    Args:
        fields: the names of the request's fields, one of which a message may begin with; those
            that it gives come first.
        names: what the request calls fields of the engine, where it calls them otherwise.
    """
    if isinstance(error, ApiError):
        return error
    if isinstance(error, RequestValidationError):
        return _of_validation(error)
    if isinstance(error, InvalidRequestError | ConfigError):
        message = _HOST_PATH.sub("(a path)", _ENGINE_ID.sub("", str(error)))
        param, message = _named_field(message, fields, names)
        too_long = isinstance(error, RequestTooLargeError)
        code = "context_length_exceeded" if too_long else None
        if too_long and param is None:
            param = next((name for name in fields if name in PROMPTS), None)
        return ApiError(400, message, param=param, code=code)
    if isinstance(error, EngineDeadError):
        return ApiError(500, "the engine has ended: no request can be answered", code="engine_dead")
    if isinstance(error, ParserFailedError):
        return ApiError(500, str(error), code="parser_failed")
    if isinstance(error, JaxEngineError):
        logger.error("a request failed: %s", error)
        return ApiError(500, "a step failed with this request: the server's log says why")
    logger.error("a request failed", exc_info=error)
    return ApiError(500, "an error inside of the server: its log says which")


def _named_field(
    message: str, fields: Sequence[str], names: Mapping[str, str]
) -> tuple[str | None, str]:
    """The field that a message begins with, and the message, both with the request's names."""
    for name in sorted(names, key=len, reverse=True):
        if re.match(rf"{re.escape(name)}(?=[\s\[])", message):
            return names[name], names[name] + message.removeprefix(name)
    found = _NAME.match(message)
    return (found[0] if found and found[0] in fields else None), message


def _of_validation(error: RequestValidationError) -> ApiError:
    """The first of pydantic's errors, or that of a limit, which another type may stand before.

    Those of an alternative type come one for each type.
    """
    errors = error.errors()
    first = next((one for one in errors if one["type"] == "too_long"), errors[0])
    where = [str(part) for part in first["loc"] if part != "body" and not _KIND.search(str(part))]
    if first["type"] == "json_invalid":
        return invalid(None, f"the body must be JSON: {first.get('ctx', {}).get('error', '')}")
    if first["type"] == "named_field":
        return invalid(".".join([*where, first["ctx"]["name"]]), str(first["msg"]))
    if not where:
        if isinstance(first.get("input"), bytes):
            return invalid(None, "the body must be sent with Content-Type: application/json")
        return invalid(None, f"the body must be a JSON object: {first['msg']}")
    param = ".".join(where)
    if first["type"] == "missing":
        return invalid(param, f"{param} is missing")
    message = str(first["msg"]).removeprefix("Value error, ")
    return invalid(param, f"{param}: {message}, got {shown(first.get('input'))}")


def _unreadable_body(cause: BaseException | None) -> str:
    if isinstance(cause, RecursionError):
        return f"the body must not be nested deeper than {MAX_DEPTH} levels"
    if isinstance(cause, ValueError) and "integer string conversion" in str(cause):
        return f"the body must hold no number of more than {sys.get_int_max_str_digits()} digits"
    return "the body must be JSON in UTF-8"


def _did_you_mean(path: str, app: FastAPI) -> str:
    """The path that a client with another base URL may have meant, for messages."""
    end = re.sub(r"^(/v1)+(?=/)", "", path.lower())
    known = {getattr(route, "path", "") for route in app.routes}
    found = next((one for one in (f"/v1{end}", end) if one in known and one != path), None)
    return "" if found is None else f": did you mean {found}"


def _of_http(error: HTTPException, request: Request) -> ApiError:
    status = error.status_code
    if status == 404:
        path = request.scope["path"]
        message = f"there is nothing at {shown(path)}{_did_you_mean(path, request.app)}"
        return ApiError(404, message, code="not_found")
    if status == 405:
        allowed = (error.headers or {}).get("Allow", "another method")
        message = f"{request.method[:20]} is not allowed here: use {allowed}"
        return ApiError(405, message, code="method_not_allowed", headers=error.headers)
    message = str(error.detail) or HTTPStatus(status).phrase
    if status == 400:  # FastAPI's, of a body that Python's JSON cannot read
        message = _unreadable_body(error.__cause__)
    return ApiError(status, message, headers=error.headers)


def add_error_handlers(app: FastAPI) -> None:
    """Makes all of an app's errors of this shape."""

    async def handle(request: Request, error: Exception) -> Response:
        path = request.url.path
        if isinstance(error, RequestValidationError):
            return _of_validation(error).response(path)
        if isinstance(error, HTTPException):
            return _of_http(error, request).response(path)
        return api_error(error).response(path)

    for kind in (RequestValidationError, HTTPException, ApiError, JaxEngineError, Exception):
        app.add_exception_handler(kind, handle)


MESSAGES_PATH = "/v1/messages"
_ANTHROPIC_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


def is_anthropic_path(path: str) -> bool:
    """Whether clients of a path expect this shape."""
    return path == MESSAGES_PATH or path.startswith(f"{MESSAGES_PATH}/")


def anthropic_error(status: int, message: str) -> dict[str, Any]:
    """An error as JSON, and as an event."""
    kind = _ANTHROPIC_TYPES.get(status, "api_error" if status >= 500 else _ANTHROPIC_TYPES[400])
    return {"type": "error", "error": {"type": kind, "message": message}}
