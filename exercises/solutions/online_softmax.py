"""exp(old m - new m) turns what was computed with the old m into what the new one would give."""

import numpy as np

from exercises.online_softmax import Array, Blocks


def attend(q: Array, blocks: Blocks) -> Array:
    largest, total, weighted = -np.inf, 0.0, np.zeros_like(q)
    for keys, values in blocks:
        scores = keys @ q
        new_largest = max(largest, scores.max())
        rescale = np.exp(largest - new_largest)
        weights = np.exp(scores - new_largest)
        total = total * rescale + weights.sum()
        weighted = weighted * rescale + weights @ values
        largest = new_largest
    return np.asarray(weighted / total)


ANSWER = attend
