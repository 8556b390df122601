"""Adapters without a model: of one number, in one module."""

import functools

import numpy as np

from jax_engine import LoRARequest
from jax_engine.lora.adapter import AdaptedModule, Adapter
from jax_engine.lora.modules import Module, Modules

NAME = "only"
MODULES = Modules(None, {NAME: Module("linear", 1, 1, "layers.only")})  # type: ignore[arg-type]


@functools.cache
def some_adapter(number: int) -> Adapter:
    """Others for other numbers."""
    one, b = np.ones((1, 1), np.float32), np.full((1, 1), number, np.float32)
    return Adapter((AdaptedModule(NAME, one, b, 1.0),))


def some_lora(number: int | None) -> LoRARequest | None:
    """A request's words for it."""
    if number is None:
        return None
    return LoRARequest(f"adapter {number}", number + 1, adapter=some_adapter(number))


def offset_of(adapter: Adapter) -> int:
    """What stubs of models add to what they write, so that others' blocks can be told."""
    return mark_of_digest(adapter.digest)


def mark_of_digest(digest: str) -> int:
    """The same as `offset_of`, by an adapter's digest."""
    return 1 + int(digest[:6], 16) % 9973
