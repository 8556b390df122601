"""The numbers of the sampler. `SamplingParams` declares each of them once, by `sampler_number`.

A declaration gives a number's default, its range, whether it is a filter, and how it is packed for
the device. The checks, `SamplingParams.from_optional`, the defaults that come with a model, and the
packed row of a request (`jax_engine/sampling/inputs.py`) read these declarations. Besides its
declaration, a new number needs an array in `SamplingInputs`, and its rule in
`reference/sampling.py`, in `jax_engine/sampling/` and in `cpu_kernels/sampling/`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any

from jax_engine.checks import check_integer, check_number
from jax_engine.errors import InvalidRequestError

_KEY = "sampler_number"


def _unchanged(value: Any) -> Any:
    return value


@dataclass(frozen=True)
class SamplerNumber:
    """How one number of the sampler is declared.

    Attributes:
        default: An int if the number must be an integer, else a float.
        low: The smallest value; with `open_low`, a lower bound that is itself too small.
        high: The largest value; None: any finite one.
        is_filter: Whether it excludes tokens. A filter is off if it is packed like its default.
        packed: Converts a value in range to the int32 or float32 that the device gets.
    """

    default: float
    low: float
    high: float | None
    open_low: bool
    is_filter: bool
    packed: Callable[[Any], float]

    @property
    def is_integer(self) -> bool:
        return isinstance(self.default, int)

    def check(self, name: str, value: object) -> None:
        """
        Raises:
            InvalidRequestError: The value is out of range; the message names both.
        """
        if self.is_integer:
            high = None if self.high is None else int(self.high)
            check_integer(name, value, int(self.low), high)
        else:
            check_number(name, value, self.low, self.high, open_low=self.open_low)

    def check_off(self, name: str, value: float, mode: str) -> None:
        """
        Raises:
            InvalidRequestError: It is a filter and is on, which `mode` does not allow.
        """
        if self.is_filter and self.packed(value) != self.packed(self.default):
            raise InvalidRequestError(f"{name} must be {self.default} with {mode}, got {value}")


def sampler_number[N: (int, float)](
    default: N,
    *,
    low: N,
    high: N | None = None,
    open_low: bool = False,
    is_filter: bool = False,
    packed: Callable[[N], N] = _unchanged,
) -> N:
    """A dataclass field with a `SamplerNumber`, which explains the arguments."""
    number = SamplerNumber(default, low, high, open_low, is_filter, packed)
    return field(default=default, metadata={_KEY: number})


def sampler_numbers(cls: type) -> dict[str, SamplerNumber]:
    """The sampler's numbers that a dataclass declares, by name, in order."""
    return _declared(cls)


@cache
def _declared(cls: type) -> dict[str, SamplerNumber]:
    return {one.name: one.metadata[_KEY] for one in fields(cls) if _KEY in one.metadata}
