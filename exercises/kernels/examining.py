"""Compares what a puzzle's kernel gives with NumPy, and says in words what is wrong with it."""

from typing import Any

import numpy as np

from exercises.checking import Wrong, returned
from exercises.kernels.launch import Array, Launch
from exercises.kernels.watching import watch


def examine(
    launch: Any, arrays: dict[str, Array], wanted: Array, mistakes: dict[str, Array] | None = None
) -> None:
    """Runs a launch under watch, then in Pallas's interpreter.

    Args:
        launch: What the answer returned.
        arrays: Its arguments by name, in order.
        wanted: The result by NumPy.
        mistakes: What a typical mistake gives, by the words to say of it.

    Raises:
        Wrong: It is no launch, it does what it must not, or the result is another one.
    """
    given = returned(launch, "launch")
    if not isinstance(given, Launch):
        raise Wrong(f"launch returned a {type(given).__name__}: it should return a `Launch(...)`")
    if tuple(given.out_shape) != wanted.shape:
        raise Wrong(f"out_shape is {given.out_shape}: the result has shape {wanted.shape}")
    watch(given, arrays)
    found = given.run(*arrays.values())
    if same(found, wanted):
        return
    for words, mistake in (mistakes or {}).items():
        if same(found, mistake):
            raise Wrong(words)
    if np.isfinite(wanted).all() and not np.isfinite(found).all():
        place = tuple(int(one) for one in np.argwhere(~np.isfinite(found))[0])
        raise Wrong(
            f"out[{_text(place)}] is {found[place]}. Something that must not be seen was read and "
            "used (0 times NaN is NaN), or a number became too large for exp()"
        )
    place = tuple(int(one) for one in np.argwhere(~np.isclose(found, wanted, 1e-5, 1e-5))[0])
    raise Wrong(f"out[{_text(place)}] is {found[place]:.4f}, but should be {wanted[place]:.4f}")


def same(found: Array, wanted: Array) -> bool:
    """Whether two results are equal up to rounding; NaN equals NaN."""
    return bool(np.allclose(found, wanted, rtol=1e-5, atol=1e-5, equal_nan=True))


def _text(place: tuple[int, ...]) -> str:
    return ", ".join(map(str, place))
