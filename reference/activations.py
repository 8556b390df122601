"""Activation functions of the feed-forward networks, number by number, in float64."""

import math

import numpy as np
from jaxtyping import Float

Numbers = Float[np.ndarray, "..."]

# gpt-oss clips gate and up at LIMIT, and its sigmoid is steeper than that of silu.
LIMIT, SLOPE = 7.0, 1.702


def sigmoid(x: Numbers) -> Numbers:
    """1 / (1 + exp(-x)), safe from overflow.

    >>> sigmoid(np.array([-1000.0, 0.0, 1000.0])).tolist()
    [0.0, 0.5, 1.0]
    """
    return np.asarray(np.exp(-np.logaddexp(0.0, -x)))


def activate(name: str, x: Numbers) -> Numbers:
    """The activation of this name. Names are those of `hidden_act` in a config.json; "gelu_tanh" is
    called gelu_new or gelu_pytorch_tanh there. Raises ValueError for an unknown name.

    >>> x = np.array([-1.0, 0.0, 2.0])
    >>> activate("relu2", x).tolist()
    [0.0, 0.0, 4.0]
    >>> activate("gelu", x).round(4).tolist(), activate("gelu_tanh", x).round(4).tolist()
    ([-0.1587, 0.0, 1.9545], [-0.1588, 0.0, 1.9546])
    """
    match name:
        case "silu":
            bent = x * sigmoid(x)
        case "gelu":  # x times the probability that a normal number is below x
            below = [math.erfc(-number / math.sqrt(2)) / 2 for number in x.flat]
            bent = x * np.reshape(below, x.shape)
        case "gelu_tanh":
            bent = x * sigmoid(math.sqrt(8 / math.pi) * (x + 0.044715 * x**3))
        case "relu":
            bent = np.maximum(x, 0.0)
        case "relu2":
            bent = np.maximum(x, 0.0) ** 2
        case _:
            raise ValueError(f"hidden_act must be a known activation, found {name!r}")
    return np.asarray(bent)


def gate(name: str, gates: Numbers, up: Numbers) -> Numbers:
    """The activation of the gates, times up; "clipped_swiglu" is gpt-oss's.

    >>> gate("relu", np.array([-1.0, 2.0]), np.array([5.0, 5.0])).tolist()
    [0.0, 10.0]
    >>> gate("clipped_swiglu", np.array([100.0]), np.array([-100.0])).round(3).tolist()
    [-42.0]
    """
    if name == "clipped_swiglu":
        gates, up = np.minimum(gates, LIMIT), np.clip(up, -LIMIT, LIMIT)
        return np.asarray(gates * sigmoid(SLOPE * gates) * (up + 1))
    return np.asarray(activate(name, gates) * up)


def xielu(x: Numbers, numbers: Float[np.ndarray, "4"]) -> Numbers:
    """xIELU (Huang and Schlag, 2024; Apertus), whose slopes are learned: four numbers a layer.

    With p, n, b and eps in this order: log(1 + e^p) x^2 + b x for positive x. For others the
    exponential (e^min(x, eps) - 1 - x) (b + log(1 + e^n)) + b x.

    >>> xielu(np.array([2.0, 0.0, -1.0]), np.array([0.0, 0.0, 0.5, -1e-6])).round(4).tolist()
    [3.7726, -0.0, -0.0611]
    """
    positive, negative, b, eps = numbers.astype(np.float64)
    above = np.logaddexp(0.0, positive) * x**2
    below = (np.expm1(np.minimum(x, eps)) - x) * (b + np.logaddexp(0.0, negative))
    return np.asarray(np.where(x > 0, above, below) + b * x)
