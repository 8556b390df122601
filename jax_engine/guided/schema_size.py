"""Refuses JSON schemas that take seconds to compile, before they are compiled.

All who send requests wait meanwhile. The time grows with the square of the properties that may be
left out, and with the number that values must be a multiple of: an automaton has a state for each
remainder.
"""

import json
import math
import re
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from jax_engine.checks import shown
from jax_engine.errors import InvalidRequestError
from jax_engine.guided.endless import check_ends

MAX_PROPERTIES = 2000  # in all of a schema: half a second
MAX_MULTIPLE = 100_000  # without decimal places: a quarter of a second
_JSON_IN_LARK = re.compile(r"%json\b\s*")


def check_schema(schema: Any) -> None:
    """
    Raises:
        InvalidRequestError: The schema has too many properties, or too large a `multipleOf`.
    """
    properties, steps = 0, list[int | float]()
    for one in _objects(schema):
        named = [one.get(name) for name in ("properties", "patternProperties")]
        properties += sum(len(names) for names in named if isinstance(names, dict))
        step = one.get("multipleOf")
        if isinstance(step, int) or (isinstance(step, float) and math.isfinite(step)):
            steps.append(step)
    if properties > MAX_PROPERTIES:
        raise InvalidRequestError(
            f"structured_outputs must hold at most {MAX_PROPERTIES} properties, got {properties}: "
            "use fewer, or additionalProperties"
        )
    # Those that hold of one value together have the states of their least common multiple.
    states = math.lcm(*{_without_places(one) for one in steps if one > 0})
    if states > MAX_MULTIPLE:
        raise InvalidRequestError(
            f"structured_outputs must hold multipleOf of at most {MAX_MULTIPLE} (all of a schema "
            f"together, without decimal places), got {shown(steps)}: check the number afterwards"
        )


def _without_places(step: int | float) -> int:
    return step if isinstance(step, int) else Fraction(str(step)).numerator


def check_schemas_of(grammar: str) -> None:
    """The same of the schemas within a Lark grammar (`%json {..}`), which must also end."""
    for found in _JSON_IN_LARK.finditer(grammar):
        try:
            schema, _ = json.JSONDecoder().raw_decode(grammar, found.end())
        except (ValueError, RecursionError):
            continue  # who compiles it says what is wrong
        check_schema(schema)
        check_ends(schema)


def _objects(schema: Any) -> Iterator[dict[str, Any]]:
    todo = [schema]
    while todo:
        one = todo.pop()
        if isinstance(one, dict):
            yield one
            todo += one.values()
        elif isinstance(one, list):
            todo += one
