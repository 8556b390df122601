"""Which transforms move rows of matrices, or cut them: those can be done with rows of codes."""

from jax_engine.weights.columns import Columns
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


def moves_rows(made_of: Transform, axes: int, *, turned: bool = False) -> bool:
    """Whether a transform only moves rows, whole or what a device has of them.

    Args:
        axes: how many axes of the result are before those of a row: 1 for a matrix, 2 for experts.
        turned: whether its tensors have rows of codes where a checkpoint of numbers has columns:
            then a `Transpose` leaves rows as they are.
    """
    match made_of:
        case Tensor():
            return axes >= 1 and not turned
        case Transpose(part=part):
            return axes >= 1 and turned and isinstance(transform_of(part), Tensor)
        case Stack(part=part) | Heads(part=part):
            return moves_rows(transform_of(part), axes - 1, turned=turned)
        case Columns(part=part):
            return moves_rows(transform_of(part), axes, turned=turned)
        case Rows(part=part, axis=axis):
            return axis < axes and moves_rows(transform_of(part), axes, turned=turned)
        case Concatenate(parts=parts, axis=axis):
            each = (moves_rows(transform_of(one), axes, turned=turned) for one in parts)
            return 0 <= axis < axes and all(each)
    return False
