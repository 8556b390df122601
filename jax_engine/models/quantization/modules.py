"""Which of a checkpoint's tensors are the parts of one quantised module."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from jax_engine.models.cache_scales import SCALES
from jax_engine.models.quantization.parts import FLOATS, Parts, RawSource
from jax_engine.weights.codes import Kind

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
        ends: of the names of a module's parts.
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
