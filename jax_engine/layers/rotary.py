"""Rotary position embedding (rotate-half, Hugging Face's layout), with context extensions.

Frequencies are computed once from the configuration, in NumPy float32. What all layers need of the
positions of a step's tokens, such as their angles, is computed once a step, outside the scan over
layers.
"""

import math
from collections import OrderedDict
from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jax_engine.model_spec import AttentionSpec, QueryGrowth, RopeConfig, choices
from jax_engine.operations.equal_bits import in_whole_vectors


def inverse_frequencies(
    rope: RopeConfig, head_dim: int
) -> tuple[Float[np.ndarray, " half"], float]:
    """Returns frequencies [D/2] in radians per position, and the scale of cos and sin."""
    plain = _plain(rope.theta, head_dim)
    if rope.frequency_factors is not None:
        plain = plain / np.asarray(rope.frequency_factors, np.float32)
    elif rope.type == "llama3":
        plain = _llama3(rope, plain)
    if rope.type == "linear":
        return plain / np.float32(rope.factor), 1.0
    if rope.type == "dynamic":
        return _plain(_dynamic_theta(rope, head_dim), head_dim), 1.0
    if rope.type == "yarn":
        return _yarn(rope, plain, head_dim), _yarn_attention_factor(rope)
    if rope.type == "longrope":
        return plain, _longrope_attention_factor(rope)
    return plain, 1.0


def _plain(theta: float, head_dim: int) -> Float[np.ndarray, " half"]:
    exponents = np.arange(0, head_dim, 2, dtype=np.float32) / np.float32(head_dim)
    frequencies: np.ndarray = np.float32(1.0) / np.float32(theta) ** exponents
    return frequencies


def _dynamic_theta(rope: RopeConfig, head_dim: int) -> float:
    """NTK-aware base for the longest possible context, `factor` times the trained one.

    Hugging Face grows the base with each sequence, which would make cached keys wrong. This
    engine fixes it once, as vLLM does. The trained length cancels out.
    """
    stretch = rope.factor * rope.factor - (rope.factor - 1)
    return float(rope.theta * stretch ** (head_dim / (head_dim - 2)))


def _llama3(rope: RopeConfig, plain: Float[np.ndarray, " half"]) -> Float[np.ndarray, " half"]:
    """Stretches long wavelengths, keeps short ones, and blends those in between (Llama 3.1)."""
    context = float(rope.original_max_position_embeddings or 0)
    wavelength = np.float32(2 * math.pi) / plain
    stretched = plain / np.float32(rope.factor)
    blend = (np.float32(context) / wavelength - np.float32(rope.low_freq_factor)) / np.float32(
        rope.high_freq_factor - rope.low_freq_factor
    )
    between = (1 - blend) * stretched + blend * plain
    long, short = context / rope.low_freq_factor, context / rope.high_freq_factor
    out = np.where(wavelength > long, stretched, np.where(wavelength < short, plain, between))
    return out.astype(np.float32)


def _yarn(
    rope: RopeConfig, plain: Float[np.ndarray, " half"], head_dim: int
) -> Float[np.ndarray, " half"]:
    """Blends stretched and plain frequencies along a ramp over the dimensions (YaRN)."""
    context = float(rope.original_max_position_embeddings or 0)

    def dimension_of(rotations: float) -> float:
        return head_dim * math.log(context / (rotations * 2 * math.pi)) / (2 * math.log(rope.theta))

    low, high = dimension_of(rope.beta_fast), dimension_of(rope.beta_slow)
    if rope.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, head_dim - 1)
    span = np.float32(high - low if high != low else 0.001)
    ramp = np.clip((np.arange(head_dim // 2, dtype=np.float32) - np.float32(low)) / span, 0, 1)
    blended: np.ndarray = plain / np.float32(rope.factor) * ramp + plain * (1 - ramp)
    return blended.astype(np.float32)


def _yarn_attention_factor(rope: RopeConfig) -> float:
    if rope.attention_factor is not None:
        return rope.attention_factor
    if rope.mscale and rope.mscale_all_dim:
        return _mscale(rope.factor, rope.mscale) / _mscale(rope.factor, rope.mscale_all_dim)
    return _mscale(rope.factor, 1.0)


def _mscale(factor: float, weight: float) -> float:
    return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0


def _longrope_attention_factor(rope: RopeConfig) -> float:
    """How much cos and sin grow, by how far the context is stretched (LongRoPE, Phi-3)."""
    if rope.attention_factor is not None:
        return rope.attention_factor
    if rope.factor <= 1:
        return 1.0
    context = float(rope.original_max_position_embeddings or 0)
    return math.sqrt(1 + math.log(rope.factor) / math.log(context))


def rotary_angles(
    positions: Int[Array, " T"], frequencies: Float[np.ndarray, " half"], scaling: float
) -> tuple[Float[Array, "T 1 half"], Float[Array, "T 1 half"]]:
    """cos and sin of every token's angles in float32, with an axis for the heads."""
    angles = positions.astype(jnp.float32)[:, None, None] * frequencies
    cos, sin = (in_whole_vectors(function, angles) for function in (jnp.cos, jnp.sin))
    return cos * scaling, sin * scaling


def apply_rotary(
    x: Float[Array, "T H D"],
    angles: tuple[Float[Array, "T 1 half"], Float[Array, "T 1 half"]],
) -> Float[Array, "T H D"]:
    """Rotates the pairs (i, i + half) of each head; the rest of a head, if any, stays.

    Computed in float32, returned in x's dtype.
    """
    cos, sin = angles
    half, wide = cos.shape[-1], x.astype(jnp.float32)
    first, second, rest = jnp.split(wide, (half, 2 * half), axis=-1)
    turned = (first * cos - second * sin, second * cos + first * sin, rest)
    return jnp.concatenate(turned, axis=-1).astype(x.dtype)


Angles = tuple[Float[Array, "*tables T 1 half"], Float[Array, "*tables T 1 half"]]
LayerAngles = tuple[Float[Array, "T 1 pairs"], Float[Array, "T 1 pairs"]]  # one of the tables'
# The rotary embeddings that repetitions of a layer choose from, and the rotated numbers of a head.
Tables = tuple[tuple[RopeConfig | None, ...], int]
# Dictionaries here are ordered: of any other, JAX would sort the keys, which have no order.


def all_angles(
    attentions: Sequence[AttentionSpec], positions: Int[Array, " T"]
) -> OrderedDict[Tables, Angles]:
    """Cos and sin of all rotary embeddings. A single table has no axis of tables.

    A barrier keeps XLA from computing them anew within a rotation, where the number of tokens would
    decide how their products are rounded.
    """
    tables = (_tables(spec) for spec in attentions if spec.ropes)
    angles = OrderedDict((one, _angles(positions, one)) for one in dict.fromkeys(tables))
    kept: OrderedDict[Tables, Angles] = jax.lax.optimization_barrier(angles)
    return kept


def all_growth(
    attentions: Sequence[AttentionSpec], positions: Int[Array, " T"]
) -> OrderedDict[QueryGrowth, Float[Array, "T 1 1"]]:
    """Factors of queries, for each rule of growth."""
    rules = (spec.query_growth for spec in attentions if spec.query_growth)
    return OrderedDict((one, _growth(positions, one)) for one in dict.fromkeys(rules))


def angles_of(
    spec: AttentionSpec, angles: Mapping[Tables, Angles], table: Int[Array, ""] | None
) -> LayerAngles | None:
    """A layer's angles; None if it rotates nothing.

    Args:
        table: the number of the layer's embedding among the choices; None for a single one.
    """
    found = angles.get(_tables(spec))
    if found is None or table is None:
        return found
    cos, sin = (jax.lax.dynamic_index_in_dim(one, table, 0, False) for one in found)
    return cos, sin


def _tables(spec: AttentionSpec) -> Tables:
    return tuple(choices(spec.rope)), spec.rotated


def _angles(positions: Int[Array, " T"], tables: Tables) -> Angles:
    ropes, rotated = tables
    each = [_of_one(positions, rope, rotated) for rope in ropes]
    if len(each) == 1:
        return each[0]
    cosines, sines = zip(*each, strict=True)
    return jnp.stack(cosines), jnp.stack(sines)


def _of_one(positions: Int[Array, " T"], rope: RopeConfig | None, rotated: int) -> Angles:
    """The angles of one table. A layer without RoPE, where others have it, rotates by angle 0."""
    if rope is None:
        ones = jnp.ones((positions.shape[0], 1, rotated // 2))
        return ones, jnp.zeros_like(ones)
    return rotary_angles(positions, *inverse_frequencies(rope, rotated))


def _growth(positions: Int[Array, " T"], growth: QueryGrowth) -> Float[Array, "T 1 1"]:
    periods = ((positions + growth.first) // growth.length).astype(jnp.float32)
    return (1 + growth.beta * in_whole_vectors(jnp.log1p, periods))[:, None, None]
