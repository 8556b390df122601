"""Gives the decoder's weights the formats of a quantised checkpoint."""

from collections.abc import Mapping
from typing import Any

import jax
from flax import nnx

from jax_engine.models.leaves import Leaf, leaf_name
from jax_engine.operations import coded_format, w8a8_format
from jax_engine.parallel.cuts import Cut
from jax_engine.weights.code_sources import RowsOfCodes, is_ordered, parts_of_rows
from jax_engine.weights.columns import cuts_groups
from jax_engine.weights.format import Weight, WeightFormat
from jax_engine.weights.tensor_source import CodesSource, TensorSource
from jax_engine.weights.transforms import Transform, elements
from jax_engine.weights.w8a8 import W8A8


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
    found = {}
    for name, leaf in leaves.items():
        part = leaf.declared.split(".")
        axes = 4 if "experts" in part and "shared" not in part else 3
        if leaf.format is not None and len(leaf.matrix.shape) == axes:
            found[name] = w8a8_format(leaf.format)
    return found


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
