"""How an array of the model is made of a checkpoint's tensors: names, and transforms of them.

A declaration is a tensor's name or a transform of further declarations:

    "model.layers.{layer}.mlp.down_proj.weight"           a tensor, unchanged
    Concatenate((gate, up), sizes=(F, F))                 parts along the first axis
    Stack("expert", range(8), "experts.{expert}.w2")      along a new first axis
    Transpose("h.{layer}.attn.c_attn.weight")             GPT-2's Conv1D: [in, out]
    Rows("qkv_proj.weight", order, total)                 some rows, in any order
    Columns("o_proj.weight", start, stop, total)          what a device has of rows that are cut
    AddOne("input_layernorm.weight")                      Gemma's norms
    Repeat("q_norm.weight")                               one norm for all heads
    Flat("q_norm.weight")                                 heads that are stored as one vector
    OneRow("e_score_correction_bias")                     a vector that is stored as a matrix
    Number("act_fn.beta")                                 one number, stored without axes
    Heads("kv_b_proj.weight")                             a matrix for each head, rows below rows
    Constant(1.0)                                         OLMo's norms, which store nothing

Words in braces are replaced when a tensor is read. Tensors are read only on request: the loader
requests one layer at a time.

Transforms that only move rows of matrices, or cut them, can be done with rows of codes as well as
with numbers: `moves_rows` tells which do. `split`, `ungrouped`, `rope_halves` and the others at the
end make `Rows` that only select or reorder: parts of fused tensors, heads, RoPE's pairs.
"""

import abc
import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from jax_engine.weights.codes import Kind, columns_of, row_dtype
from jax_engine.weights.tensor_source import CodesSource, TensorSource, check_finite

Shape = tuple[int, ...]
Words = Mapping[str, Any]  # the values of the words in braces


class Transform(abc.ABC):
    """An array made of tensors, whose shapes are derived from the result's shape."""

    @abc.abstractmethod
    def tensors(self, shape: Shape, words: Words) -> Iterator[tuple[str, Shape]]:
        """Every tensor that a result of this shape is made of, with the shape it must have."""

    @abc.abstractmethod
    def read_into(self, source: TensorSource, out: np.ndarray, words: Words) -> None:
        """Writes the result into `out`. Thread-safe.

        Raises:
            WeightsError: A tensor is unreadable, or has numbers that are not finite.
        """

    @abc.abstractmethod
    def renamed(self, rename: Callable[[str], str]) -> "Transform":
        """The same transform of tensors with other names."""

    @abc.abstractmethod
    def templates(self) -> Iterator[str]:
        """All names of tensors, with words in braces."""


Declaration = str | Transform


def elements(transform: Transform) -> Iterator[tuple[tuple[int, ...], Transform, Words]]:
    """The parts to read one at a time, each with its index: elements of a stack, or the whole."""
    if not isinstance(transform, Stack):
        yield (), transform, {}
        return
    for place, part, words in transform.each({}):
        yield (place,), part, words


def transform_of(declared: Declaration) -> Transform:
    """The transform that is declared; a name stands for its unchanged tensor."""
    return Tensor(declared) if isinstance(declared, str) else declared


@dataclasses.dataclass(frozen=True)
class Tensor(Transform):
    """An unchanged tensor."""

    name: str

    def tensors(self, shape: Shape, words: Words) -> Iterator[tuple[str, Shape]]:
        yield self.name.format(**words), shape

    def read_into(self, source: TensorSource, out: np.ndarray, words: Words) -> None:
        name = self.name.format(**words)
        source.read_into(name, out)
        if out.dtype.fields is None:  # of codes, `read_rows` checks what belongs together
            check_finite(source, name, out)

    def renamed(self, rename: Callable[[str], str]) -> Transform:
        return Tensor(rename(self.name))

    def templates(self) -> Iterator[str]:
        yield self.name


@dataclasses.dataclass(frozen=True)
class Concatenate(Transform):
    """Parts one after another.

    Attributes:
        sizes: the parts' sizes along `axis`; None: they are equal.
    """

    parts: Sequence[Declaration]
    sizes: Sequence[int] | None = None
    axis: int = 0

    def each_part(self, shape: Shape) -> Iterator[tuple[Transform, int, int]]:
        """Each part of a result of this shape, with its start and end."""
        start, equal = 0, shape[self.axis] // len(self.parts)
        sizes = [equal] * len(self.parts) if self.sizes is None else self.sizes
        for part, size in zip(self.parts, sizes, strict=True):
            yield transform_of(part), start, start + size
            start += size

    def tensors(self, shape: Shape, words: Words) -> Iterator[tuple[str, Shape]]:
        for part, start, stop in self.each_part(shape):
            yield from part.tensors(resized(shape, self.axis, stop - start), words)

    def read_into(self, source: TensorSource, out: np.ndarray, words: Words) -> None:
        along = np.moveaxis(out, self.axis, 0)
        for part, start, stop in self.each_part(out.shape):
            part.read_into(source, np.moveaxis(along[start:stop], 0, self.axis), words)

    def renamed(self, rename: Callable[[str], str]) -> Transform:
        parts = tuple(transform_of(part).renamed(rename) for part in self.parts)
        return dataclasses.replace(self, parts=parts)

    def templates(self) -> Iterator[str]:
        for part in self.parts:
            yield from transform_of(part).templates()


@dataclasses.dataclass(frozen=True)
class OfOne(Transform):
    """A transform of one part."""

    part: Declaration

    def renamed(self, rename: Callable[[str], str]) -> Transform:
        return dataclasses.replace(self, part=transform_of(self.part).renamed(rename))

    def templates(self) -> Iterator[str]:
        yield from transform_of(self.part).templates()


@dataclasses.dataclass(frozen=True)
class Stack(Transform):
    """The same part for each value of a word, along a new first axis: layers, or experts."""

    word: str
    values: Sequence[int]
    part: Declaration

    def each(self, words: Words) -> Iterator[tuple[int, Transform, Words]]:
        """Each element's place, its part and its words."""
        part = transform_of(self.part)
        for place, value in enumerate(self.values):
            yield place, part, {**words, self.word: value}

    def tensors(self, shape: Shape, words: Words) -> Iterator[tuple[str, Shape]]:
        for _, part, of_part in self.each(words):
            yield from part.tensors(shape[1:], of_part)

    def read_into(self, source: TensorSource, out: np.ndarray, words: Words) -> None:
        for place, part, of_part in self.each(words):
            part.read_into(source, out[place], of_part)

    def renamed(self, rename: Callable[[str], str]) -> Transform:
        return dataclasses.replace(self, part=transform_of(self.part).renamed(rename))

    def templates(self) -> Iterator[str]:
        yield from transform_of(self.part).templates()


@dataclasses.dataclass(frozen=True)
class Transpose(OfOne):
    """Swaps the last two axes; leaves a vector, such as a bias, unchanged."""

    def tensors(self, shape: Shape, words: Words) -> Iterator[tuple[str, Shape]]:
        turned = (*shape[:-2], *shape[:-3:-1])
        yield from transform_of(self.part).tensors(turned, words)

    def read_into(self, source: TensorSource, out: np.ndarray, words: Words) -> None:
        if out.dtype.fields is not None:  # rows of codes are those of the turned matrix
            transform_of(self.part).read_into(source, out, words)
            return
        values = np.empty((*out.shape[:-2], *out.shape[:-3:-1]), out.dtype)
        transform_of(self.part).read_into(source, values, words)
        out[...] = values.swapaxes(-1, -2) if out.ndim > 1 else values


@dataclasses.dataclass(frozen=True, eq=False)
class Rows(OfOne):
    """Some of a part's rows, in any order.

    Attributes:
        order: for each row of the result, its row in the part.
        total: how many rows the part has.
        axis: the axis of the rows; 1 after an axis of experts.
    """

    order: np.ndarray
    total: int
    axis: int = 0

    def tensors(self, shape: Shape, words: Words) -> Iterator[tuple[str, Shape]]:
        yield from transform_of(self.part).tensors(resized(shape, self.axis, self.total), words)

    def read_into(self, source: TensorSource, out: np.ndarray, words: Words) -> None:
        values = np.empty(resized(out.shape, self.axis, self.total), out.dtype)
        transform_of(self.part).read_into(source, values, words)
        out[...] = np.take(values, self.order, self.axis)


@dataclasses.dataclass(frozen=True)
class AddOne(OfOne):
    """The part plus one, added in float32; with `one=-1` less one, for files that have it added."""

    one: int = 1

    def tensors(self, shape: Shape, words: Words) -> Iterator[tuple[str, Shape]]:
        yield from transform_of(self.part).tensors(shape, words)

    def read_into(self, source: TensorSource, out: np.ndarray, words: Words) -> None:
        values = np.empty(out.shape, np.float32)
        transform_of(self.part).read_into(source, values, words)
        out[...] = values + self.one


@dataclasses.dataclass(frozen=True)
class Repeat(OfOne):
    """The part once for each place along a new first axis."""

    def tensors(self, shape: Shape, words: Words) -> Iterator[tuple[str, Shape]]:
        yield from transform_of(self.part).tensors(shape[1:], words)

    def read_into(self, source: TensorSource, out: np.ndarray, words: Words) -> None:
        values = np.empty(out.shape[1:], out.dtype)
        transform_of(self.part).read_into(source, values, words)
        out[...] = values


@dataclasses.dataclass(frozen=True)
class Flat(OfOne):
    """A part that is stored as one vector."""

    def tensors(self, shape: Shape, words: Words) -> Iterator[tuple[str, Shape]]:
        yield from transform_of(self.part).tensors((math.prod(shape),), words)

    def read_into(self, source: TensorSource, out: np.ndarray, words: Words) -> None:
        values = np.empty(out.size, out.dtype)
        transform_of(self.part).read_into(source, values, words)
        out[...] = values.reshape(out.shape)


@dataclasses.dataclass(frozen=True)
class OneRow(OfOne):
    """A vector that is stored as a matrix of one row (ERNIE 4.5)."""

    def tensors(self, shape: Shape, words: Words) -> Iterator[tuple[str, Shape]]:
        yield from transform_of(self.part).tensors((1, *shape), words)

    def read_into(self, source: TensorSource, out: np.ndarray, words: Words) -> None:
        transform_of(self.part).read_into(source, out[None], words)


@dataclasses.dataclass(frozen=True)
class Number(OfOne):
    """A vector of one number, which is stored without axes (Apertus)."""

    def tensors(self, shape: Shape, words: Words) -> Iterator[tuple[str, Shape]]:
        yield from transform_of(self.part).tensors((), words)

    def read_into(self, source: TensorSource, out: np.ndarray, words: Words) -> None:
        transform_of(self.part).read_into(source, out.reshape(()), words)


@dataclasses.dataclass(frozen=True)
class Heads(OfOne):
    """A part whose rows are those of several matrices, one matrix after another."""

    def tensors(self, shape: Shape, words: Words) -> Iterator[tuple[str, Shape]]:
        joined = (shape[0] * shape[1], *shape[2:])
        yield from transform_of(self.part).tensors(joined, words)

    def read_into(self, source: TensorSource, out: np.ndarray, words: Words) -> None:
        values = np.empty((out.shape[0] * out.shape[1], *out.shape[2:]), out.dtype)
        transform_of(self.part).read_into(source, values, words)
        out[...] = values.reshape(out.shape)


@dataclasses.dataclass(frozen=True)
class UnitRows(OfOne):
    """The part's rows, each divided by its length (Baichuan 2's head)."""

    def tensors(self, shape: Shape, words: Words) -> Iterator[tuple[str, Shape]]:
        yield from transform_of(self.part).tensors(shape, words)

    def read_into(self, source: TensorSource, out: np.ndarray, words: Words) -> None:
        rows = np.empty(out.shape, np.float32)
        transform_of(self.part).read_into(source, rows, words)
        out[...] = rows / np.maximum(np.linalg.norm(rows, axis=-1, keepdims=True), 1e-7)


@dataclasses.dataclass(frozen=True)
class UnitColumns(OfOne):
    """The part's columns, each divided by its length (Ling's head)."""

    def tensors(self, shape: Shape, words: Words) -> Iterator[tuple[str, Shape]]:
        yield from transform_of(self.part).tensors(shape, words)

    def read_into(self, source: TensorSource, out: np.ndarray, words: Words) -> None:
        columns = np.empty(out.shape, np.float32)
        transform_of(self.part).read_into(source, columns, words)
        out[...] = columns / (np.linalg.norm(columns, axis=0, keepdims=True) + 1e-7)


@dataclasses.dataclass(frozen=True)
class Constant(Transform):
    """A number everywhere, made of no tensor."""

    value: float

    def tensors(self, shape: Shape, words: Words) -> Iterator[tuple[str, Shape]]:
        yield from ()

    def read_into(self, source: TensorSource, out: np.ndarray, words: Words) -> None:
        out[...] = self.value

    def renamed(self, rename: Callable[[str], str]) -> Transform:
        return self

    def templates(self) -> Iterator[str]:
        yield from ()


def resized(shape: Shape, axis: int, size: int) -> Shape:
    """The shape with another size of one axis."""
    return (*shape[:axis], size, *shape[axis + 1 :])


@dataclasses.dataclass(frozen=True)
class Columns(OfOne):
    """Columns `start` to `stop - 1` of a part with `total` columns.

    Of rows of codes: the borders must be those of groups, or lie within one: see `cuts_groups`.
    """

    start: int
    stop: int
    total: int

    def tensors(self, shape: Shape, words: Words) -> Iterator[tuple[str, Shape]]:
        yield from transform_of(self.part).tensors((*shape[:-1], self.total), words)

    def read_into(self, source: TensorSource, out: np.ndarray, words: Words) -> None:
        part: Any = transform_of(self.part)
        if out.dtype.fields is None:
            values = np.empty((*out.shape[:-1], self.total), out.dtype)
            part.read_into(source, values, words)
            out[...] = values[..., self.start : self.stop]
            return
        assert isinstance(source, CodesSource)
        rows = np.empty(out.shape, row_dtype(source.kinds, self.total))
        part.read_into(source, rows, words)
        columns_of(rows, source.kinds, self.start, out)


def cuts_groups(kind: Kind, share: int) -> bool:
    """Whether shares of so many columns end between columns that have one scale or minimum.

    Shares that lie in one group as a whole do not: they have its scale.
    """
    groups = [size for size in (kind.group, kind.outer) if size]
    return any(share % size and size % share for size in groups)


def moves_rows(made_of: Transform, axes: int, *, turned: bool = False) -> bool:
    """Whether a transform only moves rows, whole or what a device has of them.

    Args:
        axes: how many axes of the result are before those of a row: 1 for a matrix, 2 for experts.
        turned: whether its tensors have rows of codes where a checkpoint of numbers has columns:
            then a `Transpose` leaves rows as they are.
    """
    match made_of:
        case Tensor():
            return axes >= 1 and not turned
        case Transpose(part=part):
            return axes >= 1 and turned and isinstance(transform_of(part), Tensor)
        case Stack(part=part) | Heads(part=part):
            return moves_rows(transform_of(part), axes - 1, turned=turned)
        case Columns(part=part):
            return moves_rows(transform_of(part), axes, turned=turned)
        case Rows(part=part, axis=axis):
            return axis < axes and moves_rows(transform_of(part), axes, turned=turned)
        case Concatenate(parts=parts, axis=axis):
            each = (moves_rows(transform_of(one), axes, turned=turned) for one in parts)
            return 0 <= axis < axes and all(each)
    return False


def split(part: Declaration, start: int, stop: int, total: int, *, axis: int = 0) -> Rows:
    """Rows `start` to `stop - 1` of a tensor with `total` rows."""
    return Rows(part, np.arange(start, stop), total, axis)


def ungrouped(
    part: Declaration, groups: int, counts: Sequence[int], size: int = 1, *, axis: int = 0
) -> Rows:
    """Reorders rows that are stored group by group, so that each kind of row is contiguous.

    NeoX and BLOOM interleave q, k and v of each head: `groups=H, counts=(1, 1, 1), size=D`.
    Falcon stores a KV head's queries, k and v: `groups=K, counts=(H // K, 1, 1), size=D`.
    gpt-oss interleaves rows of gate and up: `groups=F, counts=(1, 1)`.

    Args:
        counts: how many blocks of `size` rows each kind has in a group.
    """
    total = groups * sum(counts) * size
    blocks = np.arange(total).reshape(groups, sum(counts), size)
    kinds = np.split(blocks, np.cumsum(counts)[:-1], axis=1)
    return Rows(part, np.concatenate([kind.reshape(-1) for kind in kinds]), total, axis)


def regrouped(
    part: Declaration, groups: int, counts: Sequence[int], size: int = 1, *, axis: int = 0
) -> Rows:
    """The reverse of `ungrouped`: rows of one kind, stored together, go back to their groups."""
    order = np.argsort(ungrouped(part, groups, counts, size).order)
    return Rows(part, order, len(order), axis)


def rope_halves(
    part: Declaration, heads: int, head_dim: int, rotary_dim: int | None = None, *, start: int = 0
) -> Rows:
    """Reorders rows of q or k from interleaved RoPE to halves.

    RoPE rotates row 2i of a head with row 2i + 1 if interleaved, row i with row i + D/2 in halves.

    Args:
        rotary_dim: how many of a head's rows are rotated; None: all.
        start: the first of them.
    """
    order = np.arange(heads)[:, None] * head_dim + _halves(head_dim, rotary_dim, start)
    return Rows(part, order.reshape(-1), heads * head_dim)


def rope_halves_of_norm(part: Declaration, head_dim: int) -> Rows:
    """Reorders the numbers [heads, D] of a norm of q or k in the same way."""
    return Rows(part, _halves(head_dim, None), head_dim, axis=1)


def _halves(head_dim: int, rotary_dim: int | None, start: int = 0) -> np.ndarray:
    """For each row of a head, its row in the interleaved order."""
    stop = start + (rotary_dim or head_dim)
    order = np.arange(head_dim)
    order[start:stop] = order[start:stop].reshape(-1, 2).T.reshape(-1)
    return order
