"""How an array of the model is made of a checkpoint's tensors: names, and transforms of them.

A declaration is a tensor's name or a transform of further declarations:

    "model.layers.{layer}.mlp.down_proj.weight"           a tensor, unchanged
    Concatenate((gate, up), sizes=(F, F))                 parts along the first axis
    Stack("expert", range(8), "experts.{expert}.w2")      along a new first axis
    Transpose("h.{layer}.attn.c_attn.weight")             GPT-2's Conv1D: [in, out]
    Rows("qkv_proj.weight", order, total)                 some rows, in any order
    AddOne("input_layernorm.weight")                      Gemma's norms
    Repeat("q_norm.weight")                               one norm for all heads
    Flat("q_norm.weight")                                 heads that are stored as one vector
    Heads("kv_b_proj.weight")                             a matrix for each head, rows below rows
    Constant(1.0)                                         OLMo's norms, which store nothing

Words in braces are replaced when a tensor is read. Tensors are read only on request: the loader
requests one layer at a time.
"""

import abc
import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from jax_engine.weights.finite import check_finite
from jax_engine.weights.tensor_source import TensorSource

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
