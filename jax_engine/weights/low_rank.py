"""Adapters of a weight: low-rank matrices A and B for each slot, and how they are held.

A product y = W x of a row with an adapter becomes y + B (A x). Slots are fixed arrays, so that an
adapter takes another's place without a program being compiled. A row without one is not touched.

Modules that the engine multiplies together (q, k and v; gate and up) are *parts*: each has its own
A, and its own rows of B. `cpu_kernels/low_rank/__init__.py` has the layout of the arrays, which all
devices share; ranks are held in blocks of `LANES`.

Where a weight is several matrices, and each row is multiplied by one of them (a mixture's experts,
the heads of latent attention), a slot has an A and a B for each. To the products they are slots as
any others: X of them, one after another, for each adapter.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import lax
from jaxtyping import Array, Float, Int

from jax_engine.weights.matrix import ArraySpec
from pallas_kernels.low_rank import Tiles, make_tiles

LANES = 16
PANEL = 2 * LANES
A, B, RANKS = "a", "b", "ranks"


@dataclass(frozen=True)
class SlotLayout:
    """The sizes of a weight's slots.

    Attributes:
        layers: how many layers are stacked.
        slots: how many adapters are held.
        in_size, out_size: the product's sizes.
        max_rank: the largest rank that a slot holds.
        parts: how many modules the weight has.
        halves: 16 columns of the product each: (the first, how many there are, their part). Two of
            them make a panel; those of gate and the same ones of up do in a gated product.
        bias_rows: rows of B behind its ranks: the biases, and zeros (`Device.bias_rows`).
        choices: the matrices among which each row has its own; 0: all rows have the same one.
    """

    layers: int
    slots: int
    in_size: int
    out_size: int
    max_rank: int
    parts: int
    halves: tuple[tuple[int, int, int], ...]
    bias_rows: int = 1
    choices: int = 0

    @property
    def pairs(self) -> int:
        """Slots as the products see them: pairs of an adapter and a matrix."""
        return self.slots * max(self.choices, 1)

    @property
    def held_rank(self) -> int:
        """The largest rank, up to a whole block."""
        return -(-self.max_rank // LANES) * LANES

    def arrays(self, dtype: jnp.dtype) -> dict[str, ArraySpec]:
        """The arrays of all slots."""
        stack, blocks = (self.layers, self.pairs), self.parts * self.held_rank // LANES
        pairs, panels = -(-self.in_size // 2), len(self.halves) // 2
        return {
            A: ArraySpec((*stack, blocks, pairs, PANEL), dtype),
            B: ArraySpec((*stack, panels, self.held_rank + self.bias_rows, PANEL), dtype),
            RANKS: ArraySpec((*stack, self.parts, 2), jnp.dtype(jnp.int32)),
        }

    def packed_a(self, values: Float[Array, "L ranks in"]) -> Float[Array, "L blocks pairs 32"]:
        """A of all parts, one after another, as slots hold it; ranks are `parts` of `held_rank`."""
        pairs = -(-self.in_size // 2)
        whole = jnp.pad(values, ((0, 0), (0, 0), (0, 2 * pairs - self.in_size)))
        whole = whole.reshape(len(values), -1, LANES, pairs, 2).transpose(0, 1, 3, 4, 2)
        return whole.reshape(len(values), -1, pairs, PANEL)

    def packed_b(self, values: Float[Array, "L out r1"]) -> Float[Array, "L panels rows 32"]:
        """All parts' B, biases behind `held_rank` ranks, as slots hold it, in all its rows."""
        columns = np.array([half[0] for half in self.halves])[:, None] + np.arange(LANES)
        missing = np.arange(LANES) >= np.array([half[1] for half in self.halves])[:, None]
        rows = values[:, np.where(missing, 0, columns)]  # [L, halves, LANES, ranks]
        rows = jnp.where(missing[..., None], jnp.zeros((), rows.dtype), rows)
        rows = jnp.pad(rows, ((0, 0), (0, 0), (0, 0), (0, self.bias_rows - 1)))
        rows = rows.reshape(len(values), -1, 2, LANES, rows.shape[-1]).transpose(0, 1, 4, 2, 3)
        return rows.reshape(*rows.shape[:3], PANEL)


def halves_of(parts: list[range], *, gated: bool) -> tuple[tuple[int, int, int], ...]:
    """The halves of panels for a product's columns: see `SlotLayout`.

    Args:
        parts: the columns of each part, one after another.
        gated: whether the first half of the columns is the gate of the second.
    """
    size = parts[-1].stop
    borders = {0, size // 2, size} if gated else {0, size}
    borders |= {part.stop for part in parts}
    runs: list[list[tuple[int, int, int]]] = [[], []]
    for start, stop in zip(sorted(borders), sorted(borders)[1:], strict=False):
        part = next(number for number, one in enumerate(parts) if start in one)
        run = runs[1 if gated and start >= size // 2 else 0]
        run += [(at, min(LANES, stop - at), part) for at in range(start, stop, LANES)]
    if gated:
        return tuple(half for both in zip(*runs, strict=True) for half in both)
    found = runs[0]
    if len(found) % 2:
        found.append((0, 0, found[-1][2]))
    return tuple(found)


class Slots(nnx.Variable):  # type: ignore[misc]
    """The slots of one weight: its value is the arrays of a `SlotLayout` by name, of all layers."""

    layout: SlotLayout


class AdapterRows(NamedTuple):
    """Which rows of a step have which adapter.

    Attributes:
        slot: each row's slot; 0 for none, and for padding.
        order: the rows, sorted by slot.
        starts: the rows of slot s are order[starts[s]:starts[s + 1]].
        tiles: which adapters each tile of rows has, for the kernels of a GPU; None elsewhere.
    """

    slot: Int[Array, " T"]
    order: Int[Array, " T"]
    starts: Int[Array, " starts"]
    tiles: Tiles | None = None


def sort_rows(slot: Int[Array, " T"], slots: int) -> AdapterRows:
    """Sorts rows by their slots."""
    order = jnp.argsort(slot, stable=True).astype(jnp.int32)
    before = slot[:, None] < jnp.arange(slots + 2)
    starts = before.sum(axis=0, dtype=jnp.int32)
    return AdapterRows(slot, order, starts, make_tiles(slot, slots))


def rows_that_choose(
    rows: AdapterRows, token: Int[Array, " R"], choice: Int[Array, " R"], layout: SlotLayout
) -> AdapterRows:
    """Rows of tokens, each with one of several matrices, sorted by the pairs of both.

    Args:
        rows: the tokens' rows.
        token: each row's token.
        choice: the number of each row's matrix; of a row without an adapter any number. Rows whose
            number is too high have a matrix of another device, and no adapter here.
    """
    slot = rows.slot[token]
    pair = jnp.where(
        (slot > 0) & (choice < layout.choices), (slot - 1) * layout.choices + choice + 1, 0
    )
    return sort_rows(pair, layout.pairs)


class LowRank(NamedTuple):
    """What adapters add to one product.

    Attributes:
        x: what is multiplied, as no product has rounded it.
        arrays: the arrays of `Slots`.
        layer: the layer's index.
        add: computes `added_to`: see `operations/xla.py`.
    """

    x: Float[Array, "T in"]
    arrays: Mapping[str, Array]
    layout: SlotLayout
    layer: Int[Array, ""]
    rows: AdapterRows
    add: Callable[[Array, "LowRank"], Array]

    def added_to(self, out: Float[Array, "T out"]) -> Float[Array, "T out"]:
        """out + B (A x), added in float32. Rows without an adapter keep their bits."""
        return self.add(out, self)

    @property
    def halves(self) -> Int[Array, "halves 3"]:
        return jnp.array(self.layout.halves, jnp.int32)


def of_tokens(
    token_ids: Int[Array, " T"],
    arrays: Mapping[str, Array],
    layout: SlotLayout,
    rows: AdapterRows,
    add: Callable[[Array, LowRank], Array],
) -> LowRank:
    """What adapters add to an embedding: A x of a token is a column of A, which is looked up.

    The columns then take the place of x, and the identity that of A.
    """
    token = jnp.clip(token_ids, 0, layout.in_size - 1)
    slot = jnp.maximum(rows.slot - 1, 0)
    pairs = arrays[A][0, slot, :, token // 2].reshape(len(token), -1, 2, LANES)
    odd = (token % 2 == 1)[:, None, None]
    found = jnp.where(odd, pairs[:, :, 1], pairs[:, :, 0]).reshape(len(token), -1)
    own = replace(layout, in_size=layout.held_rank)
    spec = own.arrays(arrays[A].dtype)[A]
    same = own.packed_a(jnp.eye(own.in_size, dtype=spec.dtype)[None])
    held = {**arrays, A: jnp.broadcast_to(same, spec.shape)}
    return LowRank(found, held, own, jnp.int32(0), rows, add)


def dense_of(
    low: LowRank, slots: Int[Array, " slots"] | None = None
) -> tuple[Float[Array, "slots ranks in"], Float[Array, "slots out r1"]]:
    """A and B of a layer's slots as matrices; B has zeros where a column is of another part.

    The ranks of all parts follow each other. The last column of B is the biases.

    Args:
        slots: which ones, from 0 on; None: all.
    """
    layout = low.layout
    a, b = (
        lax.dynamic_index_in_dim(low.arrays[name], low.layer, keepdims=False)
        if slots is None
        else low.arrays[name][low.layer, slots]
        for name in (A, B)
    )
    count, blocks, pairs, _ = a.shape
    a = a.reshape(count, blocks, pairs, 2, LANES).transpose(0, 1, 4, 2, 3)
    a = a.reshape(count, blocks * LANES, 2 * pairs)[..., : layout.in_size]
    _, panels, ranks, _ = b.shape
    b = b.reshape(count, panels, ranks, 2, LANES).transpose(0, 1, 3, 4, 2)
    place, part = _columns(layout)
    rows = b.reshape(count, -1, ranks)[:, place]
    own = part[:, None] == np.arange(layout.parts)
    values, biases = rows[:, :, None, : layout.held_rank], rows[..., layout.held_rank, None]
    each = jnp.where(own[None, :, :, None], values, jnp.zeros((), b.dtype))
    each = each.reshape(count, layout.out_size, -1)
    return a, jnp.concatenate([each, biases], axis=-1)


def parts_of_columns(layout: SlotLayout) -> np.ndarray:
    """For each column of the product, its part."""
    return _columns(layout)[1]


def _columns(layout: SlotLayout) -> tuple[np.ndarray, np.ndarray]:
    """For each column of the product, its place among those of all halves, and its part."""
    place = np.zeros(layout.out_size, np.int64)
    part = np.zeros(layout.out_size, np.int64)
    for number, (first, count, of) in enumerate(layout.halves):
        place[first : first + count] = number * LANES + np.arange(count)
        part[first : first + count] = of
    return place, part


def expand_of(low: LowRank) -> Any:
    """What a CPU's gated kernels take; computes A x."""
    from cpu_kernels.low_rank.gate import Expand
    from cpu_kernels.low_rank.shrink import shrink

    a, b, ranks = (low.arrays[name] for name in (A, B, RANKS))
    rows = low.rows
    shrunk = shrink(low.x, a, ranks, low.layer, rows.order, rows.starts)
    return Expand(shrunk, b, ranks, low.halves, rows.order, rows.starts)
