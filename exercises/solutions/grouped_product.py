"""The rows of an adapter are taken out, multiplied with its thin matrices, and put back."""

import numpy as np

from exercises.grouped_product import Array, Read


def add_adapters(y: Array, x: Array, slots: Array, read: Read) -> Array:
    result = y.copy()
    for slot in np.unique(slots[slots > 0]):
        a, b, scaling = read(int(slot))
        rows = np.flatnonzero(slots == slot)
        result[rows] += scaling * ((x[rows] @ a.T) @ b.T)
    return result


ANSWER = add_adapters
