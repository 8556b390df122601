"""What all layers need of the positions of a step's tokens: computed once a step."""

from collections import OrderedDict
from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jax_engine.layer_spec import AttentionSpec, QueryGrowth, choices
from jax_engine.layers.rotary import inverse_frequencies, rotary_angles
from jax_engine.operations.whole_vectors import in_whole_vectors
from jax_engine.rope_config import RopeConfig

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
    periods = (positions // growth.length).astype(jnp.float32)
    return (1 + growth.beta * in_whole_vectors(jnp.log1p, periods))[:, None, None]
