"""Compares what a puzzle's kernel gives with NumPy, and says in words what is wrong with it."""

from typing import Any

import numpy as np

from exercises.checking import Wrong, returned
from exercises.kernels.launch import Array, Launch
from exercises.kernels.watching import watch

POISONS = (3.0, 1e30, np.nan, np.inf)
"""What memory that must not count may hold, a run each. Each finds mistakes that the others do not:
NaN and infinity find a product with 0, finite numbers find a kernel that looks for NaN."""


def examine(
    launch: Any,
    arrays: dict[str, Array],
    wanted: Array,
    mistakes: dict[str, Array] | None = None,
    note: str = "",
) -> None:
    """Runs a launch under watch and in Pallas's interpreter; under watch with each poison.

    Args:
        launch: What the answer returned.
        arrays: Its arguments by name, in order.
        wanted: The result by NumPy.
        mistakes: What a typical mistake gives, by the words to say of it.
        note: What the arrays hold in this run: to be said of a result that is no typical one.

    Raises:
        Wrong: It is no launch, it does what it must not, or the result is another one.
    """
    given = returned(launch, "launch")
    if not isinstance(given, Launch):
        raise Wrong(f"launch returned a {type(given).__name__}: it should return a `Launch(...)`")
    if tuple(given.out_shape) != wanted.shape:
        raise Wrong(f"out_shape is {given.out_shape}: the result has shape {wanted.shape}")
    seen = watch(given, arrays)
    _compare(given.run(*arrays.values()), wanted, mistakes or {}, note)
    if not same(seen.result, wanted):
        raise Wrong(
            f"on a GPU, {_differs(seen.result, wanted)}. The interpreter's compiler makes a choice "
            "of `x * mask`. A GPU multiplies, and 0 times NaN is NaN: choose with `jnp.where`"
        )
    for poison in POISONS if seen.anything else ():
        held = f"in this run {poison:g} is {' and '.join(seen.anything)}"
        why = f"{held}. It can be any number, so compare positions, and not what was read"
        _compare(watch(given, arrays, poison).result, wanted, {}, why)


def _compare(found: Array, wanted: Array, mistakes: dict[str, Array], note: str) -> None:
    """Raises Wrong, with a typical mistake's words or a place, unless they are the same."""
    if same(found, wanted):
        return
    for words, mistake in mistakes.items():
        if same(found, mistake):
            raise Wrong(words)
    text = _differs(found, wanted)
    if note:
        raise Wrong(f"{text} ({note})")
    if np.isfinite(wanted).all() and not np.isfinite(found).all():
        raise Wrong(
            f"{text}. Something that must not be seen was read and used (0 times NaN is NaN), or a "
            "number became too large for exp()"
        )
    raise Wrong(text)


def _differs(found: Array, wanted: Array) -> str:
    """Says of one place what it is and what it should be: one that is not finite, if there is."""
    wrong = ~np.isclose(found, wanted, 1e-5, 1e-5)
    worst = wrong & ~np.isfinite(found)
    place = tuple(int(one) for one in np.argwhere(worst if worst.any() else wrong)[0])
    index = ", ".join(map(str, place))
    return f"out[{index}] is {_number(found[place])}, but should be {_number(wanted[place])}"


def _number(one: Any) -> str:
    return f"{one:.4f}" if abs(one) < 1e6 else f"{one:g}"


def same(found: Array, wanted: Array) -> bool:
    """Whether two results are equal up to rounding; NaN equals NaN."""
    return bool(np.allclose(found, wanted, rtol=1e-5, atol=1e-5, equal_nan=True))
