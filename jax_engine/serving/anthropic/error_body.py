"""Errors in Anthropic's shape."""

from typing import Any

PATH = "/v1/messages"
_TYPES = {
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


def speaks_anthropic(path: str) -> bool:
    """Whether clients of a path expect this shape."""
    return path == PATH or path.startswith(f"{PATH}/")


def error_body(status: int, message: str) -> dict[str, Any]:
    """An error as JSON, and as an event."""
    kind = _TYPES.get(status, "api_error" if status >= 500 else _TYPES[400])
    return {"type": "error", "error": {"type": kind, "message": message}}
