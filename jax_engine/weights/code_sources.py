"""Checkpoints whose matrices can be read as rows of codes, and formats that hold such rows."""

import abc
from collections.abc import Mapping
from functools import partial

import numpy as np

from jax_engine.errors import WeightsError
from jax_engine.weights.codes import Kind, row_dtype
from jax_engine.weights.format import Matrix, WeightFormat
from jax_engine.weights.tensor_source import (
    CodesSource,
    TensorSource,
    check_finite,
    rows_are_finite,
)
from jax_engine.weights.transforms import (
    Columns,
    Concatenate,
    Heads,
    Rows,
    Shape,
    Stack,
    Transform,
    Words,
    moves_rows,
    resized,
    transform_of,
)

ORDER = "order"  # the array of the columns' order, in formats that have one


def parts_of_rows(
    source: TensorSource, made_of: Transform, shape: Shape, words: Words
) -> list[tuple[Kind, int]] | None:
    """The kinds of the rows that a matrix is made of, and how many rows of each follow each other.

    None: not all of it can be read as codes.
    """
    if not isinstance(source, CodesSource):
        return None
    tensors = list(made_of.tensors(shape, words))
    turned = {source.turned(name) for name, _ in tensors}
    if len(turned) != 1 or not moves_rows(made_of, len(shape) - 1, turned=turned.pop()):
        return None
    kinds = [source.kind(name) for name, _ in tensors]
    known = [kind for kind in kinds if kind is not None]
    if len(known) < len(kinds):
        return None
    numbers = _kinds_of_rows(source, made_of, shape, words).reshape(-1)
    starts = np.flatnonzero(np.diff(numbers, prepend=-1))
    counts = np.diff(starts, append=len(numbers))
    of_starts = [source.kinds[number] for number in numbers[starts]]
    return list(zip(of_starts, counts.tolist(), strict=True)) or None


def _kinds_of_rows(
    source: CodesSource, made_of: Transform, shape: Shape, words: Words
) -> np.ndarray:
    """The kind of each row [*stack, out] of a matrix: its index in `source.kinds`."""
    kinds = partial(_kinds_of_rows, source)
    match made_of:
        case Stack():
            each = made_of.each(words)
            return np.stack([kinds(part, shape[1:], of_part) for _, part, of_part in each])
        case Concatenate(axis=axis):
            parts = [
                kinds(part, resized(shape, axis, stop - start), words)
                for part, start, stop in made_of.each_part(shape)
            ]
            return np.concatenate(parts, axis)
        case Rows(part=part, order=order, total=total, axis=axis):
            every = kinds(transform_of(part), resized(shape, axis, total), words)
            return np.take(every, order, axis)
        case Heads(part=part):
            joined = (shape[0] * shape[1], *shape[2:])
            return kinds(transform_of(part), joined, words).reshape(shape[:-1])
        case Columns(part=part, total=total):
            return kinds(transform_of(part), (*shape[:-1], total), words)
    ((name, _),) = made_of.tensors(shape, words)
    kind = source.kind(name)
    assert kind is not None, "asked before"
    return np.full(shape[:-1], source.kinds.index(kind), np.int32)


def is_ordered(source: TensorSource, made_of: Transform, shape: Shape, words: Words) -> bool:
    """Whether columns of a tensor that a matrix is made of lie in another order."""
    assert isinstance(source, CodesSource)
    return any(source.order(name) is not None for name, _ in made_of.tensors(shape, words))


def read_rows(
    source: TensorSource, made_of: Transform, words: Words, shape: Shape, kinds: tuple[Kind, ...]
) -> np.ndarray:
    """Reads a matrix [*stack, out, in] as records [*stack, out].

    Args:
        kinds: those of the matrix. A record's `kind` is an index into it.

    Raises:
        WeightsError: A tensor is unreadable, or has numbers that are not finite.
    """
    assert isinstance(source, CodesSource)
    rows = np.empty(shape[:-1], row_dtype(kinds, shape[-1]))
    made_of.read_into(source, rows, words)
    known = {kind: number for number, kind in enumerate(kinds)}
    number = np.array([known.get(kind, len(kinds)) for kind in source.kinds], np.uint8)
    rows["kind"] = number[rows["kind"]]
    if not rows_are_finite(rows, kinds):
        for name, of_tensor in made_of.tensors(shape, words):
            values = np.empty(of_tensor, np.float32)
            source.read_into(name, values)
            check_finite(source, name, values)
    return rows


def order_of(source: TensorSource, made_of: Transform, words: Words) -> np.ndarray | None:
    """The one order of the columns of all tensors that a matrix is made of; None: as they are.

    Raises:
        WeightsError: The orders differ.
    """
    assert isinstance(source, CodesSource)
    first, *others = dict.fromkeys(name.format(**words) for name in made_of.templates())
    order = source.order(first)
    for name in others:
        other = source.order(name)
        if not np.array_equal([] if order is None else order, [] if other is None else other):
            raise WeightsError(
                f"{source.describe(name)}: its columns (g_idx) are in another order than those of "
                f"{first}, with which it is multiplied at once. Quantise with desc_act=False."
            )
    return order


class RowsOfCodes(WeightFormat):
    """A format that is loaded from rows of codes.

    Attributes:
        kinds: the kinds of the checkpoint's rows.
        ordered: whether the columns lie in another order, which x is put into.
    """

    kinds: tuple[Kind, ...]
    ordered: bool

    @abc.abstractmethod
    def store(self, rows: np.ndarray, held: Mapping[str, np.ndarray], matrix: Matrix) -> None:
        """Stores a matrix's rows, records [*stack, out], in its arrays."""

    def load(
        self,
        source: TensorSource,
        made_of: Transform,
        words: Words,
        held: Mapping[str, np.ndarray],
        matrix: Matrix,
    ) -> None:
        """Reads rows of codes, and the order of their columns."""
        self.store(read_rows(source, made_of, words, matrix.shape, self.kinds), held, matrix)
        if self.ordered:
            order = order_of(source, made_of, words)
            held[ORDER][...] = np.arange(matrix.shape[-1]) if order is None else order

    def pack(self, values: np.ndarray, held: Mapping[str, np.ndarray], matrix: Matrix) -> None:
        raise NotImplementedError("numbers have no codes: rows of codes are read by `load`")
