"""Temperature, top-k, top-p, min-p and the draw for all rows of a batch at once, in NumPy.

`reference.sampling` has the rules a row at a time. Here each rule is an array operation over [R, V]
logits, and each setting an array of R numbers, so that a batch may mix requests.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

BITS, SIGN = np.uint64, np.uint64(1) << np.uint64(63)
Rows = Float[np.ndarray, "R"]
Logits = Float[np.ndarray, "R V"]


@dataclass(frozen=True)
class Settings:
    """The settings of R requests; temperature 0 is greedy, top_k 0, top_p 1 and min_p 0 are off."""

    temperature: Rows
    top_k: Int[np.ndarray, "R"]
    top_p: Rows
    min_p: Rows


def sample_all(logits: Logits, settings: Settings, u: Rows) -> Int[np.ndarray, "R"]:
    """A token for each row, from one uniform number each. What no row needs is left out."""
    drawn, greedy = settings.temperature > 0, logits.argmax(axis=1)
    if not drawn.any():
        return greedy
    scaled = logits / np.where(drawn, settings.temperature, 1.0)[:, None]
    weights = np.exp(scaled - scaled.max(axis=1, keepdims=True))
    if (settings.top_k > 0).any() or (settings.top_p < 1).any():
        descending = -np.sort(-scaled, axis=1)
        weights = np.where(scaled >= kth_largest(descending, settings.top_k), weights, 0.0)
        weights = np.where(scaled >= boundary(descending, weights, settings.top_p), weights, 0.0)
    weights = np.where(weights >= settings.min_p[:, None], weights, 0.0)
    cumulative = np.cumsum(weights, axis=1)
    token = (cumulative / cumulative[:, -1:] > u[:, None]).argmax(axis=1)
    return np.where(drawn, token, greedy)


def kth_largest(descending: Logits, k: Int[np.ndarray, "R"]) -> Float[np.ndarray, "R 1"]:
    """Top-k as a threshold: keep what is at least so large, ties included."""
    vocab = descending.shape[1]
    last = np.where(k > 0, np.minimum(k, vocab), vocab) - 1
    return np.take_along_axis(descending, last[:, None], axis=1)


def boundary(descending: Logits, weights: Logits, p: Rows) -> Float[np.ndarray, "R 1"]:
    """Top-p as a threshold: the first token, from the best, at which the mass reaches p."""
    mass = np.cumsum(-np.sort(-weights, axis=1), axis=1)
    first = (mass >= (p * mass[:, -1])[:, None]).argmax(axis=1)
    reached = np.take_along_axis(descending, first[:, None], axis=1)
    return np.where(p[:, None] < 1, reached, -np.inf)


def largest_threshold(logits: Logits, weights: Logits, wanted: Rows) -> Float[np.ndarray, "R 1"]:
    """The same threshold without sorting: the largest t with the weight of logits >= t enough.

    Floats are ordered like their bits, once those of negative numbers are flipped. So t is found
    bit by bit, from the highest: a bit is set if enough weight is left.
    """
    keys = ordered_bits(logits)
    t = np.zeros(len(logits), BITS)
    for bit in range(63, -1, -1):
        higher = t | BITS(1 << bit)
        enough = np.where(keys >= higher[:, None], weights, 0.0).sum(axis=1) >= wanted
        t = np.where(enough, higher, t)
    bits = np.where(t >= SIGN, t ^ SIGN, ~t)
    return bits.view(np.float64)[:, None]


def ordered_bits(logits: Logits) -> np.ndarray:
    """Unsigned integers in the order of the floats."""
    bits = logits.astype(np.float64).view(BITS)
    return np.where(bits >= SIGN, ~bits, bits | SIGN)
