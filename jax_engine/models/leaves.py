"""The decoder's parameters by name: their shapes, formats and places in its state."""

import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import Any

import jax
from flax import nnx

from jax_engine.model_spec import ModelSpec
from jax_engine.weights.format import VALUES, ArraySpec, Matrix, Weight, WeightFormat
from jax_engine.weights.transforms import (
    Declaration,
    Shape,
    Stack,
    Transform,
    elements,
    transform_of,
)


@dataclasses.dataclass(frozen=True)
class Leaf:
    """One parameter of the decoder: a norm, a bias, or a weight in a format.

    Attributes:
        matrix: shape and dtype of its numbers.
        declared: the name under which families declare it: for leaves of layers, such as
            "layers.attention.qkv.weight", it is the same in all groups.
        format: the format of a weight; None: a plain array.
        layers: numbers of the layers that are stacked in it; None: it is not in a layer.
    """

    matrix: Matrix
    declared: str
    format: WeightFormat | None = None
    layers: range | None = None

    @property
    def arrays(self) -> dict[str, ArraySpec]:
        """Its arrays on the device, by name; a plain array is called VALUES."""
        if self.format is not None:
            return self.format.arrays(self.matrix)
        return {VALUES: ArraySpec(self.matrix.shape, self.matrix.dtype)}

    def tensors(self, made_of: Transform) -> Iterator[tuple[str, Shape]]:
        """The checkpoint's tensors that it is loaded from, each with the shape it must have."""
        for index, part, words in elements(made_of):
            matrix = self.element(index)
            if self.format is None:
                yield from part.tensors(matrix.shape, words)
            else:
                yield from self.format.tensors(part, matrix, words)

    def element(self, index: tuple[int, ...]) -> Matrix:
        """The matrix at an index of the stack."""
        return self.matrix._replace(shape=self.matrix.shape[len(index) :])

    @property
    def unchanged(self) -> bool:
        """Whether the device holds the numbers unpacked."""
        return self.format is None or self.format.unchanged

    @property
    def num_bytes(self) -> int:
        return sum(math.prod(one.shape) * one.dtype.itemsize for one in self.arrays.values())


def leaf_name(path: tuple[Any, ...]) -> str:
    return ".".join(str(part) for part in path)


def abstract_leaves(state: nnx.State, spec: ModelSpec) -> dict[str, Leaf]:
    """The leaves of an abstract decoder's state by dotted name."""
    return {leaf_name(path): _leaf(path, one, spec) for path, one in nnx.to_flat_state(state)}


def _leaf(path: tuple[Any, ...], variable: nnx.Variable, spec: ModelSpec) -> Leaf:
    declared, layers = leaf_name(path), None
    if path[0] == "groups":  # groups, number, places, number, and the path within the layer
        declared, layers = "layers." + leaf_name(path[4:]), spec.numbers(path[1], path[3])
    if isinstance(variable, Weight):
        return Leaf(variable.matrix, declared, variable.format, layers)
    value = variable.get_value()
    return Leaf(Matrix(value.shape, value.dtype), declared, None, layers)


def fill_state(state: nnx.State, arrays: Mapping[str, Mapping[str, jax.Array]]) -> nnx.State:
    """Puts arrays into each leaf's place of an abstract state.

    Args:
        arrays: the arrays of each leaf, by its name, with the names of `Leaf.arrays`.
    """
    filled = []
    for path, variable in nnx.to_flat_state(state):
        held = arrays[leaf_name(path)]
        filled.append((path, variable.replace(_value(variable, held))))
    return nnx.from_flat_state(filled)


def _value(variable: nnx.Variable, held: Mapping[str, jax.Array]) -> Any:
    return dict(held) if isinstance(variable, Weight) else held[VALUES]


def transforms_of(
    leaves: Mapping[str, Leaf], declared: Mapping[str, Declaration]
) -> dict[str, Transform]:
    """How each leaf is made of a checkpoint's tensors.

    A declaration is found by the leaf's name, or else by its module's. Then {kind} stands for
    "weight" or "bias", the last part of the name. In leaves of layers, {layer} is a layer's number.

    Args:
        declared: A family's `weights`.
    """
    return {name: _transform(leaf, declared) for name, leaf in leaves.items()}


def _transform(leaf: Leaf, declared: Mapping[str, Declaration]) -> Transform:
    name = leaf.declared
    module, _, kind = name.rpartition(".")
    found = transform_of(declared[name] if name in declared else declared[module])
    one = found.renamed(lambda template: template.replace("{kind}", kind))
    return one if leaf.layers is None else Stack("layer", leaf.layers, one)
