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

MAX_PROPERTIES = 2000  # in all of a schema: half a second
MAX_MULTIPLE = 100_000  # without decimal places: a quarter of a second
_JSON_IN_LARK = re.compile(r"%json\b\s*")


def check_schema(schema: Any) -> None:
    """
    Raises:
        InvalidRequestError: The schema has too many properties, or too large a `multipleOf`.
    """
    properties, multiples = 0, [Fraction(1)]
    for one in _objects(schema):
        named = [one.get(name) for name in ("properties", "patternProperties")]
        properties += sum(len(names) for names in named if isinstance(names, dict))
        step = one.get("multipleOf")
        if isinstance(step, int | float) and math.isfinite(step) and step > 0:
            multiples.append(Fraction(str(step)))
    if properties > MAX_PROPERTIES:
        raise InvalidRequestError(
            f"structured_outputs must hold at most {MAX_PROPERTIES} properties, got {properties}: "
            "use fewer, or additionalProperties"
        )
    # Those that hold of one value together have the states of their least common multiple.
    states = math.lcm(*{one.numerator for one in multiples})
    if states > MAX_MULTIPLE:
        given = ", ".join(str(float(one)) for one in multiples[1:])
        raise InvalidRequestError(
            f"structured_outputs must hold multipleOf of at most {MAX_MULTIPLE} (all of a schema "
            f"together, without decimal places), got {shown(given)}: check the number afterwards"
        )


def check_schemas_of(grammar: str) -> None:
    """The same of the schemas within a Lark grammar (`%json {..}`)."""
    for found in _JSON_IN_LARK.finditer(grammar):
        try:
            schema, _ = json.JSONDecoder().raw_decode(grammar, found.end())
        except (ValueError, RecursionError):
            continue  # who compiles it says what is wrong
        check_schema(schema)


def _objects(schema: Any) -> Iterator[dict[str, Any]]:
    todo = [schema]
    while todo:
        one = todo.pop()
        if isinstance(one, dict):
            yield one
            todo += one.values()
        elif isinstance(one, list):
            todo += one
