"""Sums of parts in an order that their number alone decides: a tree, first of neighbours."""

from jaxtyping import Array, Float


def in_tree(parts: list[Float[Array, "..."]]) -> Float[Array, "..."]:
    """The sum of parts: first of neighbours, then of these sums."""
    while len(parts) > 1:
        odd = parts[len(parts) & ~1 :]
        parts = [one + other for one, other in zip(parts[::2], parts[1::2], strict=False)] + odd
    total: Array = parts[0]
    return total
