"""The kinds of panels: how the kernels hold the codes and scales of a quantised matrix.

A code is 4 bits, an index into a table of 16 numbers; or the 8 bits of an int8 or float8_e4m3fn.
Processors without AVX-512 look up slowly. There a table of consecutive whole numbers is a kind of
its own, WHOLE.
Columns in groups of a multiple of 16 share a scale and perhaps a minimum: a number is

    scale * meaning(code) + minimum

Of K-quants both are whole numbers of 8 bits, times outer ones that 256 columns share.

A panel's kind may differ from that of the panel beside it, and from one layer to the next.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import jax.numpy as jnp
import numpy as np

from cpu_kernels.simd.coded_scales import FLOAT16, FLOAT32, OUTER
from cpu_kernels.simd.coded_words import PERMUTES_16
from cpu_kernels.simd.micro_kernel import COLUMNS
from cpu_kernels.simd.words import MULTIPLIES_PAIRS

TABLE, INT8, FLOAT8, WHOLE = 0, 1, 2, 3  # what a code is
NAMES = {"int8": INT8, "float8_e4m3fn": FLOAT8}
STEP = 16  # groups, and rows as they are held, are multiples of this
LONGEST = 128  # columns of a group; longer ones are cut into several with the same scale
FIELDS = 5  # int32s of a kind as the kernels read it


class Coded(Protocol):
    """The fields of a checkpoint's kind that decide how its matrices are held."""

    @property
    def code(self) -> tuple[float, ...] | str: ...
    @property
    def group(self) -> int: ...
    @property
    def minimums(self) -> bool: ...
    @property
    def scale_dtype(self) -> str: ...
    @property
    def outer(self) -> int: ...


class PanelKind(NamedTuple):
    """How a panel is held.

    Attributes:
        code: TABLE, WHOLE, INT8 or FLOAT8.
        group: columns that share a scale.
        scales: FLOAT32 or FLOAT16, of scales and minimums; or of the outer ones, if there are any.
        minimums: whether groups have minimums.
        outer: whether there are outer scales and minimums. The others are then int8.
        table: the 16 numbers, or none.
    """

    code: int
    group: int
    scales: int
    minimums: bool
    outer: bool
    table: tuple[float, ...]

    @property
    def item(self) -> int:
        """Bytes of a scale; of an outer one, if there are any."""
        return 2 if self.scales == FLOAT16 else 4

    @property
    def head_bytes(self) -> int:
        """Bytes of a group's scales and minimums."""
        return COLUMNS * (1 if self.outer else self.item) * (1 + self.minimums)

    def outer_bytes(self, size: int) -> int:
        """Bytes of the outer scales and minimums, with which a panel begins."""
        blocks = -(-padded(size) // OUTER) if self.outer else 0
        return blocks * COLUMNS * self.item * (1 + self.minimums)

    @property
    def column_bytes(self) -> int:
        """Bytes of the codes of one column of x."""
        return COLUMNS * self.bits // 8

    @property
    def bits(self) -> int:
        """The size of a code."""
        return 4 if self.code in (TABLE, WHOLE) else 8


def panel_kinds(kinds: Sequence[Coded], size: int) -> tuple[PanelKind, ...]:
    """How matrices with rows of `size` columns in these kinds are held.

    All groups with minimums get the same size, so that the sums of x over them are shared.

    Raises:
        ValueError: a group is no multiple of 16, though a row has several; or a table has not 16
            finite numbers.
    """
    groups = [_group(kind, size) for kind in kinds]
    shared = math.gcd(*(group for kind, group in zip(kinds, groups, strict=True) if kind.minimums))
    return tuple(
        _held(kind, shared if kind.minimums else group)
        for kind, group in zip(kinds, groups, strict=True)
    )


def _held(kind: Coded, group: int) -> PanelKind:
    """Outer scales of other blocks than K-quants' are multiplied with the others."""
    outer = kind.outer == OUTER and OUTER % group == 0
    table = () if isinstance(kind.code, str) else _table(kind.code)
    narrow = kind.scale_dtype == "float16" and outer == bool(kind.outer)
    return PanelKind(
        NAMES[kind.code] if isinstance(kind.code, str) else _code_of(table),
        group,
        FLOAT16 if narrow else FLOAT32,
        kind.minimums,
        outer,
        table,
    )


def _code_of(table: tuple[float, ...]) -> int:
    """TABLE, or WHOLE where that is faster."""
    whole = table == tuple(int(table[0]) + i for i in range(len(table)))
    return WHOLE if whole and not PERMUTES_16 else TABLE


def _group(kind: Coded, size: int) -> int:
    """The largest part of a group, of at most LONGEST columns, that divides it."""
    if kind.group >= size:
        return min(LONGEST, padded(size))
    if kind.group % STEP:
        raise ValueError(
            f"groups of columns must be multiples of {STEP} for the kernels of a CPU, "
            f"got {kind.group}"
        )
    sizes = range(STEP, min(kind.group, LONGEST) + 1, STEP)
    return max(one for one in sizes if kind.group % one == 0)


def _table(numbers: tuple[float, ...]) -> tuple[float, ...]:
    if len(numbers) != 16 or not np.isfinite(numbers).all():
        raise ValueError(f"a table of codes must be 16 finite numbers, got {numbers}")
    return numbers


def padded(size: int) -> int:
    """Columns of a row as it is held: the others have code 0."""
    return -(-size // STEP) * STEP


def panel_bytes(kind: PanelKind, size: int) -> int:
    """Bytes of a panel with rows of `size` columns, a multiple of 64."""
    groups = -(-padded(size) // kind.group)
    used = groups * kind.head_bytes + padded(size) * kind.column_bytes
    used += kind.outer_bytes(size)
    return -(-used // 64) * 64


def forms_of(kinds: Sequence[PanelKind]) -> np.ndarray:
    """The kinds as the kernels read them: int32 [kinds, FIELDS]."""
    rows = [(kind.code, kind.group, kind.scales, kind.minimums, kind.outer) for kind in kinds]
    return np.array(rows, np.int32).reshape(-1, FIELDS)


def tables_of(kinds: Sequence[PanelKind], *, pairs: bool) -> np.ndarray:
    """The tables as the kernels read them: a vector of 64 bytes for each kind.

    Args:
        kinds: the panels' kinds.
        pairs: whether the kernels multiply pairs of bfloat16: then the vector has the 16 numbers
            twice, rounded to bfloat16. Otherwise it has float32.
    """
    tables = np.zeros((len(kinds), 16), np.float32)
    for table, kind in zip(tables, kinds, strict=True):
        table[: len(kind.table)] = kind.table
    if pairs:
        return np.concatenate([tables.astype(jnp.bfloat16)] * 2, -1).view(np.uint32)
    return tables.view(np.uint32)


def sums_group(kinds: Sequence[PanelKind]) -> int:
    """Columns whose sums of x the kernels need; 0 if they need none."""
    return max((kind.group for kind in kinds if kind.minimums), default=0)


def pairs_of(dtype: jnp.dtype) -> bool:
    """Whether rows of x in this dtype are multiplied as pairs of bfloat16."""
    return MULTIPLIES_PAIRS and dtype == jnp.bfloat16
