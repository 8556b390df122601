"""The grammar of a guided output: one of five kinds."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from jax_engine.checks import shown
from jax_engine.errors import InvalidRequestError
from jax_engine.typed_fields import check_types, named_fields


@named_fields(InvalidRequestError)
@dataclass(kw_only=True)
class StructuredOutputsParams:
    """Constrains the output of a request; names as in vLLM. Exactly one field is set.

    Attributes:
        json: A JSON schema, as a dict or as text; a pydantic model's `model_json_schema()`.
        regex: The whole output matches it.
        choice: The output is one of these strings.
        grammar: A context-free grammar, Lark or EBNF; `root` or `start` is its first rule.
        json_object: True: any JSON object.

    Raises:
        InvalidRequestError: None or several are set, one is of the wrong type, or `choice` holds no
            string or an empty one.
    """

    json: str | Mapping[str, Any] | None = None
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    json_object: bool | None = None

    def __post_init__(self) -> None:
        check_types(self, InvalidRequestError, "structured_outputs.")
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        given = [name for name, value in values.items() if value is not None and value is not False]
        if len(given) != 1:
            raise InvalidRequestError(
                "structured_outputs must set exactly one of json, regex, choice, grammar and "
                f"json_object, got {', '.join(given) or 'none'}"
            )
        if self.choice is not None and not all([*self.choice, self.choice]):
            raise InvalidRequestError(
                "structured_outputs.choice must be a list of non-empty strings, at least one, got "
                f"{shown(self.choice)}"
            )
