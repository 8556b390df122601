"""Parts of the OpenAPI document that FastAPI cannot know."""

from typing import Any

from pydantic import BaseModel

_ERROR = {
    "type": "object",
    "properties": {"message": {"type": "string"}, "type": {"type": "string"}},
    "required": ["message", "type"],
}
_BODY = {"type": "object", "properties": {"error": _ERROR}, "required": ["error"]}
# What the errors of OpenAI's and of Anthropic's shape have in common.
ERROR_DOCUMENT: dict[str, Any] = {
    "description": "An error",
    "content": {"application/json": {"schema": _BODY}},
}


def either_body(*kinds: type[BaseModel]) -> dict[str, Any]:
    """For `openapi_extra`: the body is one of several kinds."""
    schema = {"anyOf": [kind.model_json_schema() for kind in kinds]}
    return {"requestBody": {"content": {"application/json": {"schema": schema}}}}
