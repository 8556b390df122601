"""Parts of requests that come in kinds: items, blocks and tools, each told by its `type`."""

from collections.abc import Mapping
from typing import Any

from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError

from jax_engine.checks import shown
from jax_engine.serving.openai.errors import invalid
from jax_engine.serving.openai.request_fields import Fields


def read_part[Kind: Fields](kind: type[Kind], data: Any, *where: str | int) -> Kind:
    """A part of a known kind.

    Args:
        where: the way to the part in the request, for the error.

    Raises:
        RequestValidationError: a field is wrong.
    """
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        found = [dict(one) | {"loc": (*where, *one["loc"])} for one in error.errors()]
        raise RequestValidationError(found) from error


def part_kind[Kind](
    kinds: Mapping[str, type[Kind]], data: Mapping[str, Any], default: str, *where: str | int
) -> type[Kind]:
    """The kind that a part's `type` tells.

    Args:
        default: the type of a part that gives none.

    Raises:
        ApiError: this server knows no such kind.
    """
    name = data.get("type")
    name = default if name is None else name
    if not isinstance(name, str) or name not in kinds:
        path = ".".join([*map(str, where), "type"])
        raise invalid(path, f"{path} must be one of {', '.join(kinds)}, got {shown(name)}")
    return kinds[name]
