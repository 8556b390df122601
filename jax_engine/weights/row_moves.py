"""Which transforms move whole rows of matrices: those can be done with rows of codes, too."""

from collections.abc import Callable

from jax_engine.weights.transforms import (
    Concatenate,
    Heads,
    Rows,
    Stack,
    Tensor,
    Transform,
    Transpose,
    transform_of,
)


def moves_rows(made_of: Transform, axes: int, turned: Callable[[str], bool]) -> bool:
    """Whether a transform only moves whole rows.

    Args:
        axes: how many axes of the result are before those of a row: 1 for a matrix, 2 for experts.
        turned: whether a tensor, given by its template, has rows of codes where a checkpoint of
            numbers has columns: then a `Transpose` leaves rows as they are.
    """
    match made_of:
        case Tensor(name=name):
            return axes >= 1 and not turned(name)
        case Transpose(part=part) if isinstance(transform_of(part), Tensor):
            return axes >= 1 and all(map(turned, made_of.templates()))
        case Stack(part=part) | Heads(part=part):
            return moves_rows(transform_of(part), axes - 1, turned)
        case Rows(part=part, axis=axis):
            return axis < axes and moves_rows(transform_of(part), axes, turned)
        case Concatenate(parts=parts, axis=axis):
            each = (moves_rows(transform_of(one), axes, turned) for one in parts)
            return 0 <= axis < axes and all(each)
    return False
