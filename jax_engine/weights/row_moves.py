"""Which transforms move whole rows of matrices: those can be done with rows of codes, too."""

from jax_engine.weights.transforms import (
    Concatenate,
    Heads,
    Rows,
    Stack,
    Tensor,
    Transform,
    transform_of,
)


def moves_rows(made_of: Transform, axes: int) -> bool:
    """Whether a transform only moves whole rows.

    Args:
        axes: how many axes of the result are before those of a row: 1 for a matrix, 2 for experts.
    """
    match made_of:
        case Tensor():
            return axes >= 1
        case Stack(part=part) | Heads(part=part):
            return moves_rows(transform_of(part), axes - 1)
        case Rows(part=part, axis=axis):
            return axis < axes and moves_rows(transform_of(part), axes)
        case Concatenate(parts=parts, axis=axis):
            return 0 <= axis < axes and all(moves_rows(transform_of(one), axes) for one in parts)
    return False
