"""Matrices that are stored as codes: packed in bytes or words, with scales for groups of columns.

A *stream* puts one code after another from the lowest bit on, so that a code of 3 bits may begin in
one word and end in the next. *Whole words* have floor(32 / bits) codes each; the bits above are
unused. Both are alike for 2, 4 and 8 bits.

A `Grouped` matrix has scales, and perhaps zero points, for groups of columns. A number is
scale (meaning(code) - zero). Rows of codes have minimum = -scale zero in place of the
zero point: scale meaning(code) + minimum. For scales of float16 and bfloat16 these are the same
float32 numbers: a scale has 11 bits at most, a code or zero point 9, and a product of both is
exact, as is the difference of two such products, a multiple of the scale's last bit. For other
float32 scales, only with zero points, the rows' number differs by three roundings: at most
2^-24 (|scale code| + |scale zero| + |number|). `read_numbers` is exact for all.

A `Plain` matrix is stored as codes too, but there are no rows of codes of it: it is read as numbers
only.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from jax_engine.weights.codes import Kind, meaning


def stream_words(count: int, bits: int) -> int:
    """How many 32-bit words a stream of so many codes has."""
    return -(-count * bits // 32)


def unpack_stream(data: np.ndarray, bits: int, out: np.ndarray) -> None:
    """Writes the first codes of each row of a stream into `out` [rows, count].

    Args:
        data: bytes [rows, n], or integers, which are taken as their bytes.
    """
    raw = np.ascontiguousarray(data).view(np.uint8)
    missing = -raw.shape[1] % bits  # `bits` bytes have eight codes
    if missing:
        raw = np.pad(raw, ((0, 0), (0, missing)))
    eights = raw.reshape(len(raw), -1, bits)
    for place in range(min(8, out.shape[1])):
        here = out[:, place::8]
        byte, shift = divmod(place * bits, 8)
        code = eights[:, : here.shape[1], byte] >> np.uint8(shift)
        if shift + bits > 8:
            code |= eights[:, : here.shape[1], byte + 1] << np.uint8(8 - shift)
        here[...] = code & np.uint8(2**bits - 1)


def unpack_words(words: np.ndarray, bits: int, out: np.ndarray) -> None:
    """Writes the first codes of each row of whole words [rows, n] into `out` [rows, count]."""
    in_word = 32 // bits
    for place in range(min(in_word, out.shape[1])):
        here = out[:, place::in_word]
        shifted = words[:, : here.shape[1]].view(np.uint32) >> np.uint32(place * bits)
        here[...] = shifted & np.uint32(2**bits - 1)


CHUNK = 1 << 17  # numbers that are decoded at a time: they stay in the cache
UNSIGNED = tuple(float(code) for code in range(16))
E2M1 = tuple(sign * x for sign in (1.0, -1.0) for x in (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0))


def centred(bits: int) -> tuple[float, ...]:
    """What codes of up to 4 bits mean whose zero point is in their middle."""
    return tuple(code - 2.0 ** (bits - 1) for code in range(16))


@dataclass(frozen=True)
class Grouped:
    """One matrix of a checkpoint, read on request. Its functions may raise WeightsError.

    Attributes:
        shape: rows and columns.
        code: what codes mean, as in `Kind`.
        group: how many columns share a scale.
        codes_into: writes codes [N, K] in the columns' natural order.
        scales: the scales [N, G], in float32.
        zeros: the zero points [N, G], in the meaning of codes; None: there are none.
        column_groups: the group of each column, checked to be in range; None: `group` columns
            after another.
        activations: as in `Kind`.
        halves: whether all scales are float16 numbers; None: this is seen from the scales.
    """

    shape: tuple[int, int]
    code: tuple[float, ...] | str
    group: int
    codes_into: Callable[[np.ndarray], None]
    scales: Callable[[], np.ndarray]
    zeros: Callable[[], np.ndarray] | None = None
    column_groups: Callable[[], np.ndarray] | None = None
    activations: str | None = None
    halves: Callable[[], bool] | None = None

    @functools.cached_property
    def kind(self) -> Kind | None:
        """None if groups are not of one size: then there are no rows of codes."""
        if self._order_of_columns[1]:
            return None
        minimums = self.zeros is not None
        halves = not minimums and (self.halves or functools.partial(_are_halves, self.scales))()
        dtype = "float16" if halves else "float32"
        return Kind(self.code, self.group, minimums, dtype, activations=self.activations)

    @property
    def order(self) -> np.ndarray | None:
        """Act-order: the column of x for each code of a row; None: codes are where x is."""
        return self._order_of_columns[0]

    @functools.cached_property
    def _order_of_columns(self) -> tuple[np.ndarray | None, bool]:
        """The order, and whether the groups are of unequal sizes."""
        if self.column_groups is None:
            return None, False
        found = self.column_groups()
        order = np.argsort(found, kind="stable")
        equal = np.array_equal(found[order], np.arange(self.shape[1]) // self.group)
        in_place = not equal or bool((found[1:] >= found[:-1]).all())
        return None if in_place else order, not equal

    def read_rows(self, out: np.ndarray) -> None:
        """Writes records [N] of `codes.row_dtype`: codes, and the first scales and minimums."""
        order = self.order
        if order is None:
            self.codes_into(out["codes"])
        else:
            codes = np.empty(self.shape, np.uint8)
            self.codes_into(codes)
            out["codes"] = np.take(codes, order, axis=1)  # much faster than codes[:, order]
        scales = self.scales()
        out["scales"][:, : scales.shape[1]] = scales
        if self.zeros is not None:
            with np.errstate(all="ignore"):
                out["minimums"][:, : scales.shape[1]] = -(scales * self.zeros())

    def read_numbers(self, out: np.ndarray) -> None:
        """Writes the numbers [N, K]."""
        codes = np.empty(self.shape, np.uint8)
        self.codes_into(codes)
        scales, zeros = self.scales(), None if self.zeros is None else self.zeros()
        if self.column_groups is None:
            groups = np.arange(self.shape[1]) // self.group
        else:
            groups = self.column_groups()
        kind = Kind(self.code, self.group)
        step = max(1, CHUNK // self.shape[1])
        with np.errstate(all="ignore"):  # infinite scales are what the file says
            for start in range(0, len(codes), step):
                rows = slice(start, start + step)
                numbers = meaning(codes[rows], kind)
                if zeros is not None:
                    numbers -= np.take(zeros[rows], groups, axis=1)
                out[rows] = np.take(scales[rows], groups, axis=1) * numbers


def _are_halves(read: Callable[[], np.ndarray]) -> bool:
    scales = read()
    with np.errstate(all="ignore"):
        return bool((scales.astype(np.float16).astype(np.float32) == scales).all())


@dataclass(frozen=True)
class Plain:
    """One matrix; `numbers` returns it in float32, and may raise WeightsError."""

    shape: tuple[int, int]
    numbers: Callable[[], np.ndarray]
    kind: Kind | None = None
    order: np.ndarray | None = None

    def read_rows(self, out: np.ndarray) -> None:
        raise TypeError("a matrix of kind None has no rows of codes")

    def read_numbers(self, out: np.ndarray) -> None:
        """Writes the numbers [N, K]."""
        with np.errstate(all="ignore"):
            out[...] = self.numbers()
