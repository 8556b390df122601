"""From a checkpoint's tensors to the decoder's stacked leaves, one leaf at a time.

Peak host memory: leaves are built largest first, each handed to the device and let go before the
next, so what is there at any time stays well under 1.3 times the weights. On a CPU device the
aligned buffer *is* the device array (no copy is made).
"""

import dataclasses
import math
import os
import re
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

import jax
import numpy as np
from flax import nnx

from jax_engine.errors import WeightsError
from jax_engine.host_memory import allocating
from jax_engine.models import huge_pages
from jax_engine.models.config import ModelConfig
from jax_engine.weights.format import VALUES, ArraySpec, Matrix, Weight, WeightFormat


@dataclasses.dataclass(frozen=True)
class Leaf:
    """One parameter of the decoder: a norm, a bias, or a weight in a format.

    Attributes:
        matrix: shape and dtype of its numbers.
        format: of a weight; None: a plain array.
    """

    matrix: Matrix
    format: WeightFormat | None = None

    @property
    def arrays(self) -> dict[str, ArraySpec]:
        """What the device holds of it; a plain array is called VALUES."""
        if self.format is not None:
            return self.format.arrays(self.matrix)
        shape = self.matrix.shape
        return {VALUES: ArraySpec(shape, self.matrix.dtype, (None,) * len(shape))}

    @property
    def unchanged(self) -> bool:
        """Whether the device holds the numbers as they are."""
        return self.format is None or self.format.unchanged

    @property
    def num_bytes(self) -> int:
        return sum(math.prod(one.shape) * one.dtype.itemsize for one in self.arrays.values())


class TensorSource(Protocol):
    """Tensors of a checkpoint under Hugging Face's names, whatever the file format."""

    @property
    def location(self) -> Path: ...

    def names(self) -> Collection[str]: ...

    def shape(self, name: str) -> tuple[int, ...]: ...

    def read_into(self, name: str, out: np.ndarray) -> None:
        """Writes the whole tensor into `out` (its shape; any float dtype). Thread-safe."""

    def describe(self, name: str) -> str:
        """File and tensor, as the user would look for them."""


@dataclasses.dataclass(frozen=True)
class Piece:
    """One checkpoint tensor, and the part of a leaf that it fills."""

    name: str
    index: tuple[int | slice | None, ...]
    shape: tuple[int, ...]


def leaf_name(path: tuple[Any, ...]) -> str:
    return ".".join(str(part) for part in path)


def abstract_leaves(state: nnx.State) -> dict[str, Leaf]:
    """The leaves of an abstract decoder's state by dotted name, with shapes and dtypes."""
    return {leaf_name(path): _leaf(variable) for path, variable in nnx.to_flat_state(state)}


def _leaf(variable: nnx.Variable) -> Leaf:
    if isinstance(variable, Weight):
        return Leaf(variable.matrix, variable.format)
    value = variable.get_value()
    return Leaf(Matrix(value.shape, value.dtype))


def fill_state(state: nnx.State, arrays: Mapping[str, Mapping[str, jax.Array]]) -> nnx.State:
    """An abstract state with arrays in each leaf's place.

    Args:
        arrays: of each leaf by its name, as `Leaf.arrays` has them.
    """
    filled = []
    for path, variable in nnx.to_flat_state(state):
        held = arrays[leaf_name(path)]
        filled.append((path, variable.replace(_value(variable, held))))
    return nnx.from_flat_state(filled)


def _value(variable: nnx.Variable, held: Mapping[str, jax.Array]) -> Any:
    return dict(held) if isinstance(variable, Weight) else held[VALUES]


def fused_rows(config: ModelConfig, leaf: str) -> tuple[int, ...] | None:
    """How many rows each tensor contributes to a fused leaf; None when the leaf is one tensor."""
    if ".qkv." in leaf:
        kv_rows = config.num_kv_heads * config.head_dim
        return (config.num_heads * config.head_dim, kv_rows, kv_rows)
    if ".gate_up." in leaf:
        return (config.intermediate_size,) * 2
    return None


def pieces_of(
    config: ModelConfig,
    leaf: str,
    names: Mapping[str, tuple[str, ...]],
    shape: tuple[int, ...],
) -> Iterator[Piece]:
    """Every checkpoint tensor of one leaf, in order."""
    sources = names[leaf]
    stacked = "{layer}" in sources[0]
    inner = shape[1:] if stacked else shape
    rows = fused_rows(config, leaf) or inner[:1]
    for layer in range(shape[0]) if stacked else (None,):
        start = 0
        for source, count in zip(sources, rows, strict=True):
            part = slice(start, start + count)
            index = (layer, part) if stacked else (part,)
            yield Piece(source.format(layer=layer), index, (count, *inner[1:]))
            start += count


def checked_pieces(
    source: TensorSource,
    config: ModelConfig,
    leaves: Mapping[str, Leaf],
    names: Mapping[str, tuple[str, ...]],
    ignored_suffixes: tuple[str, ...],
) -> dict[str, list[Piece]]:
    """Which tensors make each leaf, once it is known that the checkpoint has them.

    Args:
        leaves: What the decoder holds, by dotted name.
        names: A family's WEIGHTS.

    Raises:
        WeightsError: A tensor is missing, of another shape, or unexpected.
    """
    _check_num_layers(source, config, names)
    pieces = {
        name: list(pieces_of(config, name, names, leaf.matrix.shape))
        for name, leaf in leaves.items()
    }
    if config.tie_word_embeddings:  # some checkpoints store the head a second time
        ignored_suffixes = (*ignored_suffixes, *names.get("lm_head.weight", ()))
    _check_tensors(source, pieces, ignored_suffixes)
    return pieces


def _check_num_layers(
    source: TensorSource, config: ModelConfig, names: Mapping[str, tuple[str, ...]]
) -> None:
    """First of all, since a list of the tensors of ten million layers would take minutes."""
    starts = {name.partition("{layer}")[0] for group in names.values() for name in group}
    pattern = re.compile(rf"(?:{'|'.join(map(re.escape, starts))})(\d+)\.")
    found = {match[1] for match in map(pattern.match, source.names()) if match}
    if config.num_layers > len(found):
        raise WeightsError(
            f"{source.location}: the configuration has {config.num_layers} layers, but there are "
            f"tensors of {len(found)}. Do weights and configuration belong together?"
        )


def _check_tensors(
    source: TensorSource, pieces: Mapping[str, list[Piece]], ignored_suffixes: tuple[str, ...]
) -> None:
    """Raises WeightsError unless the checkpoint has every piece in its shape, and no other."""
    present = set(source.names())
    wanted = [piece for leaf in pieces.values() for piece in leaf]
    missing = [piece.name for piece in wanted if piece.name not in present]
    if missing:
        raise WeightsError(
            f"{source.location}: {len(missing)} of {len(wanted)} tensors are missing, "
            f"{missing[0]} first; found {len(present)}. Is the checkpoint complete?"
        )
    for piece in wanted:
        found = source.shape(piece.name)
        if found != piece.shape:
            raise WeightsError(
                f"{source.describe(piece.name)}: expected shape {piece.shape} from the model's "
                f"configuration, found {found}. Do weights and configuration belong together?"
            )
    unexpected = present - {piece.name for piece in wanted}
    unexpected = {name for name in unexpected if not name.endswith(ignored_suffixes)}
    if unexpected:
        raise WeightsError(
            f"{source.location}: {len(unexpected)} tensors have no place in this architecture, "
            f"{min(unexpected)} first. Is config.json's architecture right?"
        )


def load_leaves(
    source: TensorSource, leaves: Mapping[str, Leaf], pieces: Mapping[str, list[Piece]]
) -> dict[str, dict[str, jax.Array]]:
    """All leaves as device arrays, from the tensors that `checked_pieces` found.

    Raises:
        WeightsError: A tensor is unreadable.
        OutOfMemoryError: The system gave no memory for a leaf.
    """
    arrays: dict[str, dict[str, jax.Array]] = {}
    largest_first = sorted(leaves, key=lambda name: -leaves[name].num_bytes)
    with ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1)) as pool:
        for name in largest_first:
            with allocating(f"the weights {name}", leaves[name].num_bytes):
                arrays[name] = _load_leaf(source, leaves[name], pieces[name], pool)
    return arrays


def _load_leaf(
    source: TensorSource, leaf: Leaf, pieces: list[Piece], pool: ThreadPoolExecutor
) -> dict[str, jax.Array]:
    buffer = aligned_empty(leaf.matrix.shape, leaf.matrix.dtype)
    reads = [pool.submit(source.read_into, piece.name, buffer[piece.index]) for piece in pieces]
    for read in reads:
        read.result()
    return on_device(leaf, buffer)


def on_device(leaf: Leaf, values: np.ndarray) -> dict[str, jax.Array]:
    """The arrays of a leaf on the device, made from its numbers."""
    held = {VALUES: values}
    if leaf.format is not None and not leaf.unchanged:
        held = {name: aligned_empty(one.shape, one.dtype) for name, one in leaf.arrays.items()}
        leaf.format.pack(values, held, leaf.matrix)
    return {name: jax.device_put(one).block_until_ready() for name, one in held.items()}


def aligned_empty(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Uninitialised array on a 64-byte boundary, which a CPU device takes over without a copy."""
    num_bytes = math.prod(shape) * int(np.dtype(dtype).itemsize)
    raw = huge_pages.empty(num_bytes + 64)
    start = -raw.ctypes.data % 64
    aligned: np.ndarray = raw[start : start + num_bytes].view(dtype)
    return aligned.reshape(shape)
