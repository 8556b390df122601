"""Random rows of codes in every kind, and a checkpoint of them."""

from collections.abc import Collection
from pathlib import Path

import numpy as np

from jax_engine.weights.codes import E4M3, INT8, Kind, numbers, row_dtype

NIBBLES = tuple(float(code) for code in range(16))
FP4 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0)
KINDS = (
    Kind(tuple(code - 8 for code in NIBBLES), 32, scale_dtype="float16"),
    Kind(NIBBLES, 32, True, "float16"),
    Kind(NIBBLES, 64, True),
    Kind(NIBBLES, 32, True, outer=256),
    Kind(FP4, 32),
    Kind(INT8, 32, scale_dtype="float16"),
    Kind(INT8, 16, outer=256),
    Kind(INT8, 128),
    Kind(E4M3, 128),
)


def random_rows(
    shape: tuple[int, ...], size: int, kinds: tuple[Kind, ...], used: Collection[int], seed: int
) -> np.ndarray:
    """Records of rows, each in one of the kinds that are used. Scales are powers of two."""
    rng = np.random.default_rng(seed)
    rows = np.zeros(shape, row_dtype(kinds, size))
    rows["kind"] = rng.choice(sorted(used), shape)
    rows["codes"] = rng.integers(0, 256, rows["codes"].shape)
    for number, kind in enumerate(kinds):
        here = rows["kind"] == number
        if kind.bits == 4:
            rows["codes"][here] &= 15
        elif kind.code == E4M3:
            rows["codes"][here] &= 0xBF  # none is NaN
        for field in ("scales", "minimums", "outer_scales", "outer_minimums"):
            drawn = 2.0 ** rng.integers(-6, -2, rows[field].shape)
            if kind.outer and not field.startswith("outer"):
                drawn = rng.integers(1, 16, rows[field].shape)
            rows[field][here] = drawn[here]
    return rows


class RowsSource:
    """Tensors of rows of codes, and of their numbers."""

    location = Path("rows")

    def __init__(
        self,
        tensors: dict[str, np.ndarray],
        kinds: tuple[Kind, ...],
        orders: dict[str, np.ndarray] | None = None,
    ):
        self.tensors, self.kinds, self.orders = tensors, kinds, orders or {}

    def names(self) -> Collection[str]:
        return self.tensors.keys()

    def shape(self, name: str) -> tuple[int, ...]:
        rows = self.tensors[name]
        return (*rows.shape, *rows.dtype["codes"].shape)

    def describe(self, name: str) -> str:
        return f"rows, tensor {name}"

    def kind(self, name: str) -> Kind | None:
        return self.kinds[self.tensors[name]["kind"].flat[0]]

    def order(self, name: str) -> np.ndarray | None:
        return self.orders.get(name)

    def turned(self, name: str) -> bool:
        return name.startswith("turned")

    def read_into(self, name: str, out: np.ndarray) -> None:
        if out.dtype.fields is not None:
            rows = self.tensors[name]
            out["kind"], out["codes"] = rows["kind"], rows["codes"]
            for field in ("scales", "minimums", "outer_scales", "outer_minimums"):
                out[field] = rows[field][..., : out[field].shape[-1]]
            return
        values = numbers(self.tensors[name], self.kinds)
        order = self.order(name)
        if order is not None:
            values[..., order] = values.copy()
        out[...] = values
