"""The decoder's parameters by name (its leaves): their shapes, formats and places in its state.

Weights begin in the formats for numbers of the device. Those of a quantised checkpoint whose rows
can be held as codes get formats of codes, before any is read.
"""

import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import Any

import jax
from flax import nnx

from jax_engine.model_spec import ModelSpec
from jax_engine.operations import coded_format, w8a8_format
from jax_engine.parallel.cuts import Cut
from jax_engine.weights.code_sources import RowsOfCodes, is_ordered, parts_of_rows
from jax_engine.weights.format import VALUES, ArraySpec, Matrix, Weight, WeightFormat
from jax_engine.weights.rounded_source import RoundedSource, Rounding
from jax_engine.weights.tensor_source import CodesSource, TensorSource
from jax_engine.weights.transforms import (
    Declaration,
    Shape,
    Stack,
    Transform,
    cuts_groups,
    elements,
    moves_rows,
    transform_of,
)
from jax_engine.weights.w8a8 import W8A8


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


def coded_formats(
    source: TensorSource, leaves: Mapping[str, Leaf], transforms: Mapping[str, Transform]
) -> dict[str, WeightFormat]:
    """The formats of the leaves whose rows can be read, and held, as codes."""
    found = {}
    if isinstance(source, CodesSource) and source.kinds:
        for name, leaf in leaves.items():
            coded = None if leaf.format is None else _format_of(source, leaf, transforms[name])
            if coded is not None:
                found[name] = coded
    return found


def _format_of(source: CodesSource, leaf: Leaf, transform: Transform) -> WeightFormat | None:
    assert leaf.format is not None
    layers, ordered = [], False
    for index, part, words in elements(transform):
        one = leaf.element(index)
        rows = parts_of_rows(source, part, one.shape, words)
        if rows is None:
            return None
        layers.append(rows)
        ordered = ordered or is_ordered(source, part, one.shape, words)
    if ordered and len(one.shape) > 2:
        return None  # each expert would put x into another order
    used = {kind for rows in layers for kind, _ in rows}
    kinds = tuple(kind for kind in source.kinds if kind in used)
    return coded_format(kinds, layers, one, leaf.format, ordered=ordered)


def in_whole_rows(coded: Mapping[str, WeightFormat], cuts: Mapping[str, Cut]) -> list[str]:
    """The leaves whose rows devices cannot cut, so that they must have whole ones.

    Those are leaves whose inputs are rounded by the largest number of a row; whose columns lie in
    another order, which has no regard to devices; or whose groups of columns with one scale a cut
    would divide.

    Args:
        coded: the formats of the whole model's leaves.
        cuts: how devices would cut leaves of numbers.
    """
    return [name for name, one in coded.items() if name in cuts and _is_divided(one, cuts[name])]


def _is_divided(coded: WeightFormat, cut: Cut) -> bool:
    """Whether a cut divides what the columns of a row have in common."""
    if not cut.by_columns:
        return False
    if isinstance(coded, W8A8):
        return True
    assert isinstance(coded, RowsOfCodes)
    share = cut.total // len(cut.places)
    return coded.ordered or any(cuts_groups(kind, share) for kind in coded.kinds)


def w8a8_formats(leaves: Mapping[str, Leaf]) -> dict[str, WeightFormat]:
    """Formats for integer products, whatever the checkpoint holds: of the layers' matrices.

    Those are stacks of matrices, or of as many matrices as there are experts. So the choice of
    experts, matrices that latent attention takes apart by heads, embedding and head stay numbers.
    """
    return {
        name: w8a8_format(leaf.format)
        for name, leaf in leaves.items()
        if leaf.format is not None and _is_of_layers(leaf)
    }


def _is_of_layers(leaf: Leaf) -> bool:
    """Whether a leaf is what products of layers take: a stack of matrices, or of experts'."""
    part = leaf.declared.split(".")
    axes = 4 if "experts" in part and "shared" not in part else 3
    return leaf.format is not None and len(leaf.matrix.shape) == axes


def rounded(
    source: TensorSource,
    leaves: Mapping[str, Leaf],
    transforms: Mapping[str, Transform],
    rounding: Rounding,
) -> TensorSource:
    """The source with those matrices of the layers as codes that only have their rows moved.

    As in W8A8, the choice of experts, matrices that latent attention takes apart by heads,
    embedding and head stay numbers.
    """
    names = {
        tensor
        for name, leaf in leaves.items()
        if _is_of_layers(leaf)
        for index, part, words in elements(transforms[name])
        if moves_rows(part, len(leaf.element(index).shape) - 1)
        for tensor, _ in part.tensors(leaf.element(index).shape, words)
    }
    return RoundedSource(source, names, rounding)


def with_formats(
    graphdef: Any, state: nnx.State, formats: Mapping[str, WeightFormat]
) -> tuple[Any, nnx.State]:
    """The abstract decoder with other formats for some leaves, given by name."""
    decoder = nnx.merge(graphdef, state)
    for path, node in nnx.iter_graph(decoder):
        name = leaf_name(path)
        if isinstance(node, Weight) and name in formats:
            chosen = formats[name]
            node.set_metadata(format=chosen)
            node.set_value(_shapes(node, chosen))
    return nnx.split(decoder)  # type: ignore[no-any-return]


def _shapes(weight: Weight, chosen: WeightFormat) -> dict[str, jax.ShapeDtypeStruct]:
    specs = chosen.arrays(weight.matrix)
    return {name: jax.ShapeDtypeStruct(one.shape, one.dtype) for name, one in specs.items()}
