"""What a quantisation method declares: a module's tensors, and the matrix made of them.

`Method` has the ends of the names of a module's parts, by which `modules_of` finds which of a
checkpoint's tensors belong together. `Parts` are the tensors of one module: what is checked before
anything is read or allocated. `settings` and its like read what `quantization_config` says: fields
that are checked, and patterns of modules' names.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from jax_engine.errors import ConfigError, WeightsError
from jax_engine.models.checkpoints.cache_scales import SCALES
from jax_engine.models.checkpoints.file_schema import checked, short
from jax_engine.weights.codes import Kind
from jax_engine.weights.tensor_source import TensorSource

FLOATS = ("F16", "BF16", "F32")


class RawSource(TensorSource, Protocol):
    """A checkpoint whose tensors can be read as they are stored."""

    def dtype(self, name: str) -> str:
        """What the file calls the dtype: "F32", "I8"."""

    def raw(self, name: str) -> np.ndarray:
        """The tensor as it is stored. Thread-safe."""


@dataclass(frozen=True)
class Parts:
    """Tensors of the module `module`, by the ends of their names.

    Attributes:
        names: the whole name for each end.
    """

    source: RawSource
    module: str
    names: Mapping[str, str]

    def has(self, end: str) -> bool:
        return end in self.names

    def describe(self) -> str:
        """File and name of one of the parts, as messages have them."""
        return self.source.describe(next(iter(self.names.values())))

    def dtype(self, end: str) -> str:
        return self.source.dtype(self._name(end))

    def shape(self, end: str) -> tuple[int, ...]:
        return self.source.shape(self._name(end))

    def _name(self, end: str) -> str:
        """Raises WeightsError if it is missing."""
        if end not in self.names:
            raise WeightsError(
                f"{self.describe()} belongs to a quantised matrix, but tensor "
                f"{self.module}{end} is missing. Is the checkpoint complete?"
            )
        return self.names[end]

    def expect(
        self, end: str, dtypes: tuple[str, ...], *shapes: tuple[int | None, ...]
    ) -> tuple[int, ...]:
        """The shape of a part, one of `shapes`; None is any size from 1 on.

        Raises:
            WeightsError: It is missing, or of another dtype or shape.
        """
        name = self._name(end)
        dtype, found = self.source.dtype(name), self.source.shape(name)
        if dtype not in dtypes:
            raise self.error(end, f"dtype {' or '.join(dtypes)}", dtype)
        if not any(_fits(found, shape) for shape in shapes):
            texts = (str(shape).replace("None", "any") for shape in shapes)
            raise self.error(end, f"shape {' or '.join(texts)}", found)
        return found

    def error(self, end: str, expected: str, found: object) -> WeightsError:
        """An error that names file and tensor."""
        where = self.source.describe(self._name(end))
        return WeightsError(f"{where}: expected {expected}, found {found}.")

    def raw(self, end: str) -> np.ndarray:
        return self.source.raw(self._name(end))

    def floats(self, end: str) -> np.ndarray:
        """The numbers of a part, in float32."""
        return self.raw(end).astype(np.float32)


def _fits(found: tuple[int, ...], shape: tuple[int | None, ...]) -> bool:
    return len(found) == len(shape) and all(
        a >= 1 if b is None else a == b for a, b in zip(found, shape, strict=True)
    )


WEIGHT = ".weight"
# Scales of activations: they are no weights. Those of the KV cache are read by their names.
NOT_WEIGHTS = (
    ".input_scale",
    ".input_zero_point",
    ".input_global_scale",
    ".activation_scale",
    ".output_scale",
    ".kv_scale",
)


class Matrix(Protocol):
    """One matrix, read on request; all but the shape may raise WeightsError."""

    @property
    def shape(self) -> tuple[int, int]: ...
    @property
    def kind(self) -> Kind | None: ...
    @property
    def order(self) -> np.ndarray | None: ...
    def read_rows(self, out: np.ndarray) -> None: ...
    def read_numbers(self, out: np.ndarray) -> None: ...


class Method(NamedTuple):
    """How a method stores its matrices.

    Attributes:
        ends: name suffixes of the tensors that make up one module.
        matrix: the matrix made of checked parts, or one for each expert, of one shape.
        shown: the end of the name under which the matrix is shown.
        turned: whether the module called this has a shape [K, N] where it is not quantised.
    """

    ends: Sequence[str]
    matrix: Callable[[Parts], Matrix | Sequence[Matrix]]
    shown: str = WEIGHT
    turned: Callable[[str], bool] = lambda module: False


def modules_of(source: RawSource, ends: Sequence[str]) -> tuple[dict[str, Parts], list[str]]:
    """The quantised modules by name, and the tensors that belong to none and are weights.

    If weights are among the parts, those that are alone and have plain floats are not quantised.
    """
    found: dict[str, dict[str, str]] = {}
    others = []
    for name in source.names():
        end = next((end for end in ends if name.endswith(end)), None)
        if end is not None:
            found.setdefault(name.removesuffix(end), {})[end] = name
        elif name.endswith(SCALES) or not name.endswith(NOT_WEIGHTS):
            others.append(name)
    modules = {}
    for module, names in found.items():
        if names.keys() == {WEIGHT} and source.dtype(names[WEIGHT]) in (*FLOATS, "F64"):
            others.append(names[WEIGHT])
        else:
            in_order = {end: names[end] for end in ends if end in names}
            modules[module] = Parts(source, module, in_order)
    return modules, others


FIELD = "config.json: quantization_config"
MAX_PATTERN = 1000  # characters


def settings[T](raw: Mapping[str, Any], schema: type[T], place: str = "") -> T:
    """The fields of the whole, or of what stands at a place in it (".a"). Raises ConfigError."""
    return checked(raw, schema, FIELD + place)


def require(field: str, value: object, known: Collection[object]) -> None:
    """Raises ConfigError, which names the known values, if the field has another one."""
    if value not in known:
        raise unsupported(field, value, ", ".join(map(repr, known)))


def require_group(field: str, group_size: int) -> None:
    """Raises ConfigError unless it is -1, which is all inputs, or a number of them."""
    if group_size != -1 and not 1 <= group_size <= 2**31 - 1:
        raise unsupported(field, group_size, "-1, or from 1 on")


def unsupported(field: str, value: object, known: str) -> ConfigError:
    return ConfigError(f"{FIELD}.{field} {short(value)} is not supported; known: {known}.")


def pattern(field: str, text: str) -> re.Pattern[str]:
    """A regular expression of the configuration. Raises ConfigError if it is none."""
    try:
        if len(text) > MAX_PATTERN:
            raise ValueError(f"it has more than {MAX_PATTERN} characters")
        return re.compile(text)
    except (re.error, ValueError, RecursionError, OverflowError) as error:
        raise ConfigError(
            f"{FIELD}.{field} must be a regular expression, got {short(text)}: {error}."
        ) from None
