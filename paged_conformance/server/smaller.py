"""Smaller examples of several requests: each by itself first, then without its fields."""

from collections.abc import Iterator
from typing import Any

KEPT = ("prompt", "messages")


def smaller(example: Any) -> Iterator[Any]:
    """Fewer requests, and then requests of fewer fields. Each is a whole example."""
    requests = example["requests"]
    if len(requests) > 1:
        for request in requests:
            yield {"requests": [request]}
        middle = len(requests) // 2
        yield {"requests": requests[:middle]}
        yield {"requests": requests[middle:]}
        for place in range(len(requests)):
            yield {"requests": requests[:place] + requests[place + 1 :]}
    for place, request in enumerate(requests):
        for other in _fewer_fields(request):
            yield {"requests": [*requests[:place], other, *requests[place + 1 :]]}


def _fewer_fields(request: Any) -> Iterator[Any]:
    body = request.get("body", {})
    for name, value in body.items():
        if name not in KEPT:
            yield request | {"body": {key: body[key] for key in body if key != name}}
        if isinstance(value, list) and len(value) > 1:
            for half in (value[: len(value) // 2], value[len(value) // 2 :]):
                yield request | {"body": body | {name: half}}
