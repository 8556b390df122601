"""Matrices in codes for tests of the CPU's kernels: random rows, panels and numbers."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cpu_kernels.linear.coded_kinds import PanelKind, panel_kinds
from cpu_kernels.linear.coded_panels import matrix_bytes, pack, places_of
from jax_engine.weights.codes import E4M3, INT8, Kind, numbers, row_dtype

SEVEN_LESS = tuple(float(i - 8) for i in range(16))
FP4 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0)
NAN = 0x7F  # of E4M3, without the sign
KINDS = (
    Kind(SEVEN_LESS, 32, scale_dtype="float16"),
    Kind(SEVEN_LESS, 128, minimums=True),
    Kind(FP4, 16),
    Kind(FP4, 32, minimums=True, scale_dtype="float16"),
    Kind(INT8, 32, scale_dtype="float16"),
    Kind(INT8, 16, outer=256),
    Kind(SEVEN_LESS, 32, minimums=True, outer=256, scale_dtype="float16"),
    Kind(INT8, 4096),
    Kind(INT8, 64, minimums=True),
    Kind(E4M3, 128),
    Kind(E4M3, 96, minimums=True, scale_dtype="float16"),
)
WHOLE = (1.0, -2.0, 0.5)  # scales whose products with whole numbers are exact


class Packed(NamedTuple):
    """A matrix, or a stack of them, in panels."""

    panels: jax.Array
    places: jax.Array
    kinds: tuple[PanelKind, ...]


def rows_of(
    rng: np.random.Generator, kinds: Sequence[Kind], chosen: Any, size: int, *, whole: bool = False
) -> np.ndarray:
    """Random rows, of which `chosen` has the kinds' indices; with scales of WHOLE if asked for."""
    rows = np.zeros(len(chosen), row_dtype(tuple(kinds), size))
    rows["kind"] = chosen
    for number, kind in enumerate(kinds):
        mine = rows["kind"] == number
        codes = rng.integers(0, 2**kind.bits, (mine.sum(), size)).astype(np.uint8)
        if kind.code == E4M3:
            codes[codes & NAN == NAN] = 0x81
        rows["codes"][mine] = codes
        for name in ("scales", "minimums", "outer_scales", "outer_minimums"):
            shape = rows[name][mine].shape
            found: np.ndarray = rng.choice(WHOLE, shape) if whole else rng.standard_normal(shape)
            if kind.outer and not name.startswith("outer"):
                found = rng.integers(0 if kind.minimums else -32, 64, shape)
            rows[name][mine] = found.astype(np.float16)
    return rows


def packed(
    stack: Sequence[np.ndarray], kinds: Sequence[Kind], *, parts: int = 1, spare: int = 0
) -> Packed:
    """Matrices of rows in panels, in memory that held other bytes, with `spare` bytes unused."""
    size = stack[0].dtype["codes"].shape[0]
    held = panel_kinds(kinds, size)
    places = np.stack([places_of(held, rows["kind"], size, parts=parts) for rows in stack])
    most = max(matrix_bytes(held, of_one, size) for of_one in places)
    panels = np.full((len(stack), most + spare), 0xFF, np.uint8)
    for rows, one, of_one in zip(stack, panels, places, strict=True):
        pack(rows, kinds, one, of_one, parts=parts)
    return Packed(jnp.asarray(panels), jnp.asarray(places), held)


def meant(rows: np.ndarray, kinds: Sequence[Kind]) -> np.ndarray:
    """The numbers that rows stand for."""
    return numbers(rows, tuple(kinds))


def most_wrong(x: Any, rows: np.ndarray, kinds: Sequence[Kind]) -> np.ndarray:
    """The largest error of a product in float32 that adds up in any order: [rows of x, rows].

    Every number is rounded at most once with each addition after it. A number of the weight is the
    sum of two parts, whose sizes count.
    """
    apart = [_parts_of(rows[i : i + 1], kinds[rows["kind"][i]]) for i in range(len(rows))]
    size = rows.dtype["codes"].shape[0]
    sizes = np.abs(np.asarray(x, np.float64)) @ np.concatenate(apart).T
    return (2 * size + 64) * 2.0**-24 * sizes + 1e-30


def _parts_of(row: np.ndarray, kind: Kind) -> np.ndarray:
    found = meant(_of_kind(row, 0), (kind._replace(minimums=False),)).astype(np.float64)
    if not kind.minimums:
        return np.abs(found)
    return np.abs(found) + np.abs(meant(_of_kind(row, 0), (kind,)).astype(np.float64) - found)


def _of_kind(row: np.ndarray, number: int) -> np.ndarray:
    row = row.copy()
    row["kind"] = number
    return row
