"""Runs a kernel's programs one by one in Python, and sees what Pallas's interpreter does not show.

The interpreter runs programs in order and clamps an index that is too large, so it hides races and
reads outside of an array. Here references are `WatchedRef`s. They raise `Wrong` if

- a program reads or writes outside of an array, or is given a part that lies outside;
- two programs write the same place: on a GPU they run at the same time, and either may win;
- a place of the result is read before it was written, or is never written;
- a value is written whose shape is not that of the place.

What is read behind the end of an array, or where a mask without `other` is false, is up to the
caller of `watch`: on a device it can be any number.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import product
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest.mock import patch

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plt

from exercises.checking import Wrong
from exercises.kernels.launch import Array, Launch

NOBODY = -1  # the writer of a place that was not written
OUTSIDE = -1  # the place of an element that lies outside of the array
ANY_NUMBER = 977  # what an array of integers holds there: the index of nothing


class Watched:
    """An array and, for each of its places, the number of the program that wrote it.

    Attributes:
        beyond: What a read behind the array's end gives.
        anything: What was read that can be any number, in words.
    """

    def __init__(self, name: str, array: Array, *, is_result: bool) -> None:
        self.name, self.array, self.is_result = name, array, is_result
        self.beyond: float = np.nan
        self.anything: set[str] = set()
        self.writers = np.full(array.size, NOBODY)

    def place(self, number: int) -> str:
        """The place as a text, such as out[2, 0]."""
        index = np.unravel_index(number, self.array.shape)
        return f"{self.name}[{', '.join(str(int(one)) for one in index)}]"

    def part(self, spec: pl.BlockSpec, program: tuple[int, ...]) -> Array:
        """The places of the part that a program sees; OUTSIDE behind the array's end."""
        places = np.arange(self.array.size).reshape(self.array.shape)
        if spec.block_shape is None:
            return places
        sizes: list[Any] = list(spec.block_shape)
        assert spec.index_map is not None
        numbers = [int(one) for one in spec.index_map(*program)]
        if len(sizes) != places.ndim or len(numbers) != places.ndim:
            raise Wrong(
                f"{self.name} has {places.ndim} axes, but its BlockSpec has a part of {len(sizes)} "
                f"and an index map that gives {len(numbers)} numbers"
            )
        for axis, (size, number) in enumerate(zip(sizes, numbers, strict=True)):
            places = self._cut(places, axis, size or 1, number, program)
        dropped = tuple(axis for axis, size in enumerate(sizes) if size is None)
        return places.squeeze(dropped)

    def _cut(
        self, places: Array, axis: int, size: int, number: int, program: tuple[int, ...]
    ) -> Array:
        length = self.array.shape[axis]
        if not 0 <= number * size < length:
            raise Wrong(
                f"program {shown(program)} is given part {number} of {self.name} on axis {axis}. "
                f"That begins at {number * size}, but the axis has {length}. An index map counts "
                "in parts, not in elements"
            )
        inside = places.take(range(number * size, min(number * size + size, length)), axis)
        missing = [(0, 0)] * places.ndim
        missing[axis] = (0, size - inside.shape[axis])
        return np.pad(inside, missing, constant_values=OUTSIDE)


class WatchedRef:
    """What a kernel gets in the place of a reference: a part of a watched array."""

    def __init__(self, watched: Watched, places: Array, number: int, program: Any) -> None:
        self._watched, self._places = watched, places
        self._number, self._program = number, program
        self.shape, self.dtype = places.shape, watched.array.dtype
        self.ndim = places.ndim
        self.at = _At(self)

    def __getitem__(self, index: Any) -> jax.Array:
        return self.read(index)

    def __setitem__(self, index: Any, value: Any) -> None:
        places, shape = self._find(index, None, "writes")[0], np.shape(value)
        if shape != places.shape:
            raise Wrong(
                f"a value of shape {shape} is written to {self._watched.name}, where the place has "
                f"shape {places.shape}. Pallas wants the same shape (`keepdims=True` keeps an axis "
                "that is summed over)"
            )
        self.write(index, value)

    def read(self, index: Any, mask: Any = None, other: Any = None) -> jax.Array:
        """As `ref[index]`; `beyond` behind the end, and where a mask without `other` is false."""
        found, chosen = self._find(index, mask, "reads")
        places, seen = found[chosen], found[chosen] != OUTSIDE
        if self._watched.is_result:
            for place in places[seen]:
                if self._watched.writers[place] == NOBODY:
                    raise Wrong(
                        f"program {self._program} reads {self._watched.place(place)} before "
                        "anything was written there: the memory holds anything"
                    )
        flat = self._watched.array.reshape(-1)
        nothing = self._watched.beyond if np.issubdtype(flat.dtype, np.floating) else ANY_NUMBER
        name = self._watched.name
        if not seen.all():
            self._watched.anything.add(f"what lies behind the end of {name}")
        if other is None and not chosen.all():
            self._watched.anything.add(f"what a load of {name} without `other` gives for False")
        values = np.full(found.shape, nothing if other is None else other, flat.dtype)
        values[chosen] = np.where(seen, flat[places], nothing)
        return jnp.asarray(values)

    def write(self, index: Any, value: Any, mask: Any = None) -> None:
        """As `ref[index] = value`; what lies behind the end of the array is dropped."""
        found, chosen = self._find(index, mask, "writes")
        if not self._watched.is_result:
            raise Wrong(f"program {self._program} writes to {self._watched.name}, an argument")
        value = np.asarray(value)
        if value.ndim > found.ndim:
            raise Wrong(f"a value of shape {value.shape} is written where {found.shape} is")
        values = np.broadcast_to(value, found.shape)[chosen]
        for place, one in zip(found[chosen], values, strict=True):
            if place == OUTSIDE:
                continue
            before = self._watched.writers[place]
            if before not in (NOBODY, self._number):
                raise Wrong(
                    f"program {self._program} writes {self._watched.place(place)}, which an "
                    "earlier program has written. That is a race: on a GPU the two run at the "
                    "same time, and either may be the last"
                )
            self._watched.writers[place] = self._number
            self._watched.array.reshape(-1)[place] = one

    def _find(self, index: Any, mask: Any, what: str) -> tuple[Array, Array]:
        """The places of an index, and which of them the mask chooses; others may lie anywhere."""
        parts = index if isinstance(index, tuple) else (index,)
        if Ellipsis in [one for one in parts if one is Ellipsis]:
            at = next(i for i, one in enumerate(parts) if one is Ellipsis)
            rest = (slice(None),) * (self.ndim - len(parts) + 1)
            parts = (*parts[:at], *rest, *parts[at + 1 :])
        chosen = None if mask is None else np.asarray(mask)
        plain = tuple(self._inside(axis, one, chosen, what) for axis, one in enumerate(parts))
        found = np.asarray(self._places[plain])
        if chosen is None:
            return found, np.ones(found.shape, bool)
        return found, np.broadcast_to(chosen, found.shape)

    def _inside(self, axis: int, one: Any, chosen: Array | None, what: str) -> Any:
        """An index for NumPy.

        Raises:
            Wrong: it lies outside of the axis.
        """
        length = self.shape[axis]
        if isinstance(one, pl.Slice):
            one = slice(int(one.start), int(one.start) + one.size)
        if isinstance(one, slice):
            wanted = np.array([0 if one.start is None else int(one.start)])
            if one.stop is not None:
                wanted = np.append(wanted, int(one.stop) - 1)
        else:
            one = wanted = np.asarray(one)
        inside = (wanted >= 0) & (wanted < length)
        if chosen is not None and wanted.ndim:
            inside = inside | ~np.broadcast_to(chosen, np.broadcast_shapes(chosen.shape, one.shape))
            wanted = np.broadcast_to(wanted, inside.shape)
        if not inside.all():
            raise Wrong(
                f"program {self._program} {what} {self._watched.name} at "
                f"{int(wanted[~inside].flat[0])} of axis {axis}, which has {length}. The "
                "interpreter clamps such an index. A GPU follows it to memory that is not yours"
            )
        return one if isinstance(one, slice) else np.clip(one, 0, length - 1)


class _At:
    """`ref.at[index]`, for `plt.load` and `plt.store`."""

    def __init__(self, ref: WatchedRef) -> None:
        self._ref = ref

    def __getitem__(self, index: Any) -> SimpleNamespace:
        return SimpleNamespace(ref=self._ref, index=index)


class Seen(NamedTuple):
    """What a run under watch gave, and what it read that can be any number."""

    result: Array
    anything: list[str]


def watch(launch: Launch, arrays: dict[str, Array], beyond: float = np.nan) -> Seen:
    """Runs all programs under watch.

    Args:
        launch: The launch.
        arrays: Its arguments by name, in order.
        beyond: The number in the place of anything that is not a number of the array.

    Raises:
        Wrong: One does what it must not, or the result is not written whole.
    """
    result = np.full(launch.out_shape, np.nan, np.float32)
    named = [Watched(name, one, is_result=False) for name, one in arrays.items()]
    out = Watched("out", result, is_result=True)
    for one in (*named, out):
        one.beyond = beyond
    if len(launch.in_specs) != len(named):
        raise Wrong(f"there are {len(named)} arguments, but {len(launch.in_specs)} in_specs")
    specs = [*launch.in_specs, launch.out_specs]
    for number, program in enumerate(product(*map(range, launch.grid))):
        refs = [
            WatchedRef(one, one.part(spec, program), number, shown(program))
            for one, spec in zip([*named, out], specs, strict=True)
        ]
        with _as_program(program, launch.grid):
            returned = launch.kernel(*refs)  # type: ignore[func-returns-value]
        if returned is not None:
            raise Wrong("the kernel returns a value, which nobody gets: write it to `out_ref`")
    unwritten = np.flatnonzero(out.writers == NOBODY)
    if len(unwritten):
        raise Wrong(
            f"{out.place(int(unwritten[0]))} is written by no program. (A kernel writes by "
            "`out_ref[...] = value`, and the grid must have a program for each part)"
        )
    return Seen(result, sorted(set().union(*(one.anything for one in (*named, out)))))


@contextmanager
def _as_program(program: tuple[int, ...], grid: tuple[int, ...]) -> Iterator[None]:
    """`pl.program_id` and the rest, for a kernel that is called as a function."""

    def load(place: Any, *, mask: Any = None, other: Any = None, **_: Any) -> jax.Array:
        loaded: jax.Array = place.ref.read(place.index, mask, other)
        return loaded

    def store(place: Any, value: Any, *, mask: Any = None, **_: Any) -> None:
        place.ref.write(place.index, value, mask)

    with ExitStack() as stack:
        stack.enter_context(jax.disable_jit())
        for module, name, instead in (
            (pl, "program_id", lambda axis: jnp.int32(program[axis])),
            (pl, "num_programs", lambda axis: grid[axis]),
            (plt, "load", load),
            (plt, "store", store),
        ):
            stack.enter_context(patch.object(module, name, instead))
        yield


def shown(program: tuple[int, ...]) -> str:
    """A program's number: 3, or (3, 1)."""
    return str(program[0]) if len(program) == 1 else str(program)
