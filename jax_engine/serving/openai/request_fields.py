"""What all requests have in common: an unknown field is refused, and null means the default."""

from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, ModelWrapValidatorHandler, model_validator
from pydantic_core import PydanticCustomError

from jax_engine.typed_fields import suggestion

# OpenAI's fields that say nothing about the answer.
HARMLESS = frozenset({
    "user", "metadata", "store", "service_tier", "parallel_tool_calls", "safety_identifier",
    "prompt_cache_key", "prompt_cache_retention", "verbosity",
})  # fmt: skip


class Fields(BaseModel):
    """A JSON object whose fields are all known.

    Attributes:
        harmless: names that are taken and ignored.
    """

    model_config = ConfigDict(strict=True, extra="forbid")
    harmless: ClassVar[frozenset[str]] = frozenset()

    @model_validator(mode="wrap")
    @classmethod
    def _known(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        if not isinstance(data, dict):
            return handler(data)
        known = {one.alias or name for name, one in cls.model_fields.items()}
        for name in data:
            if name not in known and name not in cls.harmless and data[name] is not None:
                raise PydanticCustomError(
                    "unknown_field",
                    "{problem}",
                    {"problem": _unknown(str(name), sorted(known)), "name": str(name)},
                )
        return handler({k: v for k, v in data.items() if k in known and v is not None})


def _unknown(name: str, known: list[str]) -> str:
    near = suggestion(name, known)
    hint = near if "did you mean" in near else ""
    return f"{name[:100]} is not a field of this request{hint}"


class Request(Fields):
    """A request of an endpoint.

    Attributes:
        model: one of the names that the server has for its model; None: its model.
    """

    harmless: ClassVar[frozenset[str]] = HARMLESS
    model: str | None = None
