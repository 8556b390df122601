"""Gives the decoder's weights the formats of a quantised checkpoint."""

from collections.abc import Mapping
from typing import Any

import jax
from flax import nnx

from jax_engine.errors import ConfigError
from jax_engine.model_spec import ModelSpec
from jax_engine.models.leaves import Leaf, leaf_name
from jax_engine.models.shares import Shares
from jax_engine.modes import DEQUANTIZED
from jax_engine.operations import coded_format, w8a8_format
from jax_engine.parallel.divided import listed, sizes_that_fit
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


def check_cuts(coded: Mapping[str, WeightFormat], shares: Shares, spec: ModelSpec) -> None:
    """Refuses codes that devices cannot share.

    Args:
        coded: the formats of a share's leaves.
        spec: the whole model.

    Raises:
        ConfigError: Inputs are rounded by rows, which are cut; or columns lie in another order; or
            a cut would divide a group with one scale.
    """
    size = shares.mesh.size
    if any(isinstance(one, W8A8) for one in coded.values()):
        raise ConfigError(
            "tensor_parallel_size must be 1 for weights whose inputs are rounded to 8 bits, by the "
            f"largest number of a row that devices would share, got {size}: give "
            f"quantization={DEQUANTIZED!r}"
        )
    for name, weight_format in coded.items():
        cut = shares.cuts.get(name)
        if cut is None or not cut.by_columns:
            continue
        assert isinstance(weight_format, RowsOfCodes)
        declared = shares.whole[name].declared
        if weight_format.ordered:
            raise ConfigError(
                f"tensor_parallel_size must be 1 for codes in another order of columns (g_idx of "
                f"{declared}), got {size}: quantise with desc_act=False, or give "
                f"quantization={DEQUANTIZED!r}"
            )
        kinds, total = weight_format.kinds, cut.total
        if any(cuts_groups(kind, total // size) for kind in kinds):
            sizes = [
                one
                for one in sizes_that_fit(spec)
                if not any(cuts_groups(kind, total // one) for kind in kinds)
            ]
            raise ConfigError(
                f"tensor_parallel_size must leave groups of {max(one.group for one in kinds)} "
                f"columns whole that have one scale, of the {total} of {declared}: "
                f"{listed(sizes)}, got {size}"
            )


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
