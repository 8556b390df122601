"""Rotary position embeddings, and the ways to stretch them.

A head of D numbers is read as D/2 points of the plane, (x[i], x[i + D/2]). At position p point i
is turned by the angle p * f_i, where f_i = theta ** (-2i/D). The product of a query and a key then
depends on how far apart they are, not on where.

A model trained on short texts is stretched to longer ones by lowering frequencies (`rope_scaling`
of a Hugging Face config.json). The rules are those of transformers 5, but for "dynamic":

* linear    all frequencies are divided by `factor`;
* dynamic   theta grows with the length of the sequence. Keys in a cache cannot be turned again when
            the sequence gets longer, so theta is taken once, for the longest sequence there can be,
            `max_position_embeddings * factor`. vLLM does the same;
* llama3    long waves are divided by `factor`, short ones kept, those between blended;
* yarn      likewise, with a ramp over the dimensions, and the result is made a little larger;
* longrope  each frequency has a divisor of its own, from one of two lists. As with "dynamic" the
            choice is made once, by the longest sequence there can be. The result is made larger.

Angles are formed in float32 from frequencies rounded to float32, as all engines form them: far
into a text the rounding can be seen, so it is part of the definition. The rest is float64.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float, Int

RopeScaling = Mapping[str, Any]


def rope_frequencies(
    head_dim: int,
    theta: float,
    max_position_embeddings: int,
    scaling: RopeScaling | None = None,
) -> tuple[Float[np.ndarray, "half"], float]:
    """Radians a position for each of the D/2 planes (float32), and the factor on cos and sin.

    `scaling` is `rope_scaling` of a config.json (`rope_parameters` since transformers 5, which may
    hold `rope_theta` too). Raises ValueError for a rope type that is not listed above.

    >>> rope_frequencies(4, 100.0, 64)
    (array([1. , 0.1], dtype=float32), 1.0)
    >>> rope_frequencies(4, 100.0, 64, {"rope_type": "linear", "factor": 2.0})
    (array([0.5 , 0.05], dtype=float32), 1.0)
    """
    scaling = scaling or {}
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    theta = float(scaling.get("rope_theta") or theta)
    plain = _frequencies(head_dim, theta)
    attention_factor = 1.0
    match kind:
        case "default":
            stretched = plain
        case "linear":
            stretched = plain / scaling["factor"]
        case "dynamic":
            stretched = _frequencies(
                head_dim, _dynamic_theta(head_dim, theta, float(scaling["factor"]))
            )
        case "llama3":
            stretched = _llama3(plain, max_position_embeddings, scaling)
        case "yarn":
            stretched, attention_factor = _yarn(plain, theta, max_position_embeddings, scaling)
        case "longrope":
            stretched, attention_factor = _longrope(plain, max_position_embeddings, scaling)
        case _:
            raise ValueError(
                f"rope_scaling has rope_type {kind!r}; known are "
                "'default', 'linear', 'dynamic', 'llama3', 'yarn' and 'longrope'"
            )
    return stretched.astype(np.float32), attention_factor


def apply_rope(
    x: Float[np.ndarray, "T H D"],
    positions: Int[np.ndarray, "T"],
    frequencies: Float[np.ndarray, "half"],
    attention_factor: float = 1.0,
) -> Float[np.ndarray, "T H D"]:
    """Turn each head of each token by its position.

    If there are fewer frequencies, only the first numbers of a head are turned; the rest stays.

    A quarter turn takes the first axis to the second; position 0 turns nothing:

    >>> x = np.array([[[1.0, 0.0]], [[1.0, 0.0]]])
    >>> apply_rope(x, np.array([0, 1]), np.array([np.pi / 2])).round(6).tolist()
    [[[1.0, 0.0]], [[-0.0, 1.0]]]
    """
    angles = positions.astype(np.float32)[:, None] * frequencies.astype(np.float32)
    cos = np.cos(angles.astype(np.float64))[:, None, :] * attention_factor
    sin = np.sin(angles.astype(np.float64))[:, None, :] * attention_factor
    half = len(frequencies)
    first, second, rest = np.split(x.astype(np.float64), [half, 2 * half], axis=-1)
    turned = [first * cos - second * sin, second * cos + first * sin, rest]
    return np.concatenate(turned, axis=-1).astype(x.dtype)


def _frequencies(head_dim: int, theta: float) -> Float[np.ndarray, "half"]:
    return np.asarray(theta ** (-np.arange(0, head_dim, 2) / head_dim))


def _dynamic_theta(head_dim: int, theta: float, factor: float) -> float:
    """NTK-aware theta for a sequence `factor` times as long as the model was trained on.

    transformers: theta * (factor * length / max_position_embeddings - (factor - 1)) ** (D/(D-2)),
    here with length / max_position_embeddings = factor.
    """
    return float(theta * (factor * factor - (factor - 1)) ** (head_dim / (head_dim - 2)))


def _llama3(
    plain: Float[np.ndarray, "half"], max_position_embeddings: int, scaling: RopeScaling
) -> Float[np.ndarray, "half"]:
    """Llama 3.1: what turns less than `low_freq_factor` times in the old context is stretched,
    what turns more than `high_freq_factor` times is not, and between there is a straight line."""
    old_context = scaling.get("original_max_position_embeddings") or max_position_embeddings
    low, high = float(scaling["low_freq_factor"]), float(scaling["high_freq_factor"])
    turns = old_context * plain / (2 * math.pi)
    kept = np.clip((turns - low) / (high - low), 0.0, 1.0)
    return np.asarray((1 - kept) * plain / scaling["factor"] + kept * plain)


def _yarn(
    plain: Float[np.ndarray, "half"],
    theta: float,
    max_position_embeddings: int,
    scaling: RopeScaling,
) -> tuple[Float[np.ndarray, "half"], float]:
    """YaRN (arXiv 2309.00071): a ramp over the planes, between the plane that turns `beta_fast`
    times in the old context (and those before it: kept) and the one that turns `beta_slow` times
    (and those after it: divided by `factor`)."""
    head_dim = 2 * len(plain)
    old_context = scaling.get("original_max_position_embeddings") or max_position_embeddings
    factor = float(scaling.get("factor") or max_position_embeddings / old_context)

    def plane_with(turns: float) -> float:
        """The (fractional) plane that turns so many times in the old context."""
        return head_dim * math.log(old_context / (turns * 2 * math.pi)) / (2 * math.log(theta))

    low = plane_with(float(scaling.get("beta_fast") or 32))
    high = plane_with(float(scaling.get("beta_slow") or 1))
    if scaling.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, head_dim - 1)
    if low == high:
        high += 0.001  # a step instead of a ramp
    stretched = np.clip((np.arange(head_dim // 2) - low) / (high - low), 0.0, 1.0)
    return plain / factor * stretched + plain * (1 - stretched), _yarn_factor(factor, scaling)


def _yarn_factor(factor: float, scaling: RopeScaling) -> float:
    """How much larger cos and sin are made: `attention_factor` if given, else 0.1 ln(factor) + 1,
    or the quotient of two of these where both `mscale` and `mscale_all_dim` are given."""

    def grown(weight: float) -> float:
        return 0.1 * weight * math.log(factor) + 1.0 if factor > 1 else 1.0

    given = scaling.get("attention_factor")
    if given is not None:
        return float(given)
    if scaling.get("mscale") and scaling.get("mscale_all_dim"):
        return grown(float(scaling["mscale"])) / grown(float(scaling["mscale_all_dim"]))
    return grown(1.0)


def _longrope(
    plain: Float[np.ndarray, "half"], max_position_embeddings: int, scaling: RopeScaling
) -> tuple[Float[np.ndarray, "half"], float]:
    """LongRoPE (arXiv 2402.13753), as Phi-3 has it: the long list beyond the old context."""
    old_context = scaling["original_max_position_embeddings"]
    longest = scaling.get("max_model_len") or max_position_embeddings
    divisors = np.asarray(scaling["long_factor" if longest > old_context else "short_factor"])
    factor = float(scaling.get("factor") or max_position_embeddings / old_context)
    grown = math.sqrt(1 + math.log(factor) / math.log(old_context)) if factor > 1 else 1.0
    return plain / divisors, float(scaling.get("attention_factor") or grown)
