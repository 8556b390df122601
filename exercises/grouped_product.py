"""Exercise: one product for rows with different adapters (LoRA).

A step has rows x [T, in], and y [T, out] are their products with the model's own matrix. Row t has
the adapter of slot slots[t], or none if that is 0. With an adapter it is to become

    y_t + s B (A x_t)        A is [r, in], B is [out, r]; r differs from adapter to adapter

Write `add_adapters(y, x, slots, read)`, which returns all rows; y stays as it is. `read(slot)`
returns an adapter's (A, B, s). Reading is what takes time: read each adapter once, and none that no
row has. Do not make B A, which is as large as the model's matrix. A row without an adapter keeps
its bits: -0.0 stays -0.0.

Run it: python -m exercises.grouped_product
"""

from collections import Counter
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import numpy as np

from exercises.checking import Wrong, expect, report, returned
from exercises.variants import given_seed

Array = np.ndarray
Read = Callable[[int], tuple[Array, Array, float]]
Add = Callable[[Array, Array, Array, Read], Array]

IN, OUT = 6, 5


def add_adapters(y: Array, x: Array, slots: Array, read: Read) -> Array:
    raise NotImplementedError


class Numbers(NamedTuple):
    """What a seed changes: adapters are in the slots 1 to num_slots."""

    num_slots: Annotated[int, range(4, 10)] = 3


def check(answer: Add = add_adapters, seed: int = 0) -> bool:
    """Print what is wrong with it; True if nothing is."""
    return report(_test, answer, Numbers, seed)


class _Watched(np.ndarray):
    """A matrix of an adapter, which notices when it becomes one as large as the model's."""

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **more: Any) -> Any:
        found = getattr(ufunc, method)(*map(np.asarray, inputs), **more)
        if np.shape(found) in ((OUT, IN), (IN, OUT)):
            raise Wrong("B A was made, as large as the model's matrix: multiply x with A first")
        return found


class _Adapters:
    """Slots 1, 2, .. and how often each was read."""

    def __init__(self, num_slots: int) -> None:
        rng = np.random.default_rng(0)
        self.reads = Counter[int]()
        self.held = {
            slot: (rng.normal(size=(rank, IN)), rng.normal(size=(OUT, rank)), 0.5 * slot)
            for slot, rank in zip(range(1, num_slots + 1), (2, 1, 3) * num_slots, strict=False)
        }

    def read(self, slot: int) -> tuple[Array, Array, float]:
        if slot not in self.held:
            raise Wrong(f"slot {slot} was read, which has no adapter")
        self.reads[slot] += 1
        a, b, scaling = self.held[slot]
        return a.view(_Watched), b.view(_Watched), scaling

    def row(self, y: Array, x: Array, slot: int) -> Array:
        """One row by itself."""
        if slot == 0:
            return y
        a, b, scaling = self.held[slot]
        return np.asarray(y + scaling * (b @ (a @ x)))


def _test(answer: Add, numbers: Numbers) -> None:
    rng = np.random.default_rng(1)

    def case(slots: list[int]) -> None:
        adapters, what = _Adapters(numbers.num_slots), f"slots {slots}"
        x, y = rng.normal(size=(len(slots), IN)), rng.normal(size=(len(slots), OUT))
        none = np.array(slots) == 0
        x[none], y[none] = np.inf, -0.0
        kept = y.copy()
        found = np.asarray(returned(answer(y, x, np.array(slots), adapters.read), "add_adapters"))
        expect(found.shape, (len(slots), OUT), f"{what}: the shape of the result")
        if y.tobytes() != kept.tobytes():
            raise Wrong(f"{what}: y was changed")
        if found[none].tobytes() != y[none].tobytes():
            raise Wrong(f"{what}: a row without an adapter has other bits: got {found[none][0]}")
        for row, slot in enumerate(slots):
            if not np.allclose(found[row], adapters.row(y[row], x[row], slot)):
                raise Wrong(f"{what}: row {row} is not y + s B (A x) with the adapter of its slot")
        for slot, count in sorted(adapters.reads.items()):
            expect(count, 1, f"{what}: how often the adapter in slot {slot} was read")
        expect(
            sorted(adapters.reads), sorted({*slots} - {0}), f"{what}: the adapters that were read"
        )

    case([1])
    case([2, 2, 2])
    case([numbers.num_slots, 0, numbers.num_slots])
    case([0, 0])
    case([2, 0, 1, numbers.num_slots, 1, 0, 2, 1])


if __name__ == "__main__":
    raise SystemExit(not check(seed=given_seed()))
