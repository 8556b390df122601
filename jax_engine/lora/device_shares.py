"""What a device's slots hold of an adapter, where several devices share the model.

Slots are cut like the weight beside which they stand. If a device has some rows of the weight, it
has the same rows of B, and all of A. If it has some columns, which read its part of x, it has these
columns of A, and all of B: what it adds to its part of the product is a part of the same sum. If it
has the matrices of some heads or experts, it has the A and B of these. The embedding's are whole on
each device: an adapter is added to the vector that a device has got from another.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from jax_engine.lora.leaves import AdaptedLeaf
from jax_engine.models.shares import Shares
from jax_engine.parallel.cuts import COLUMNS, ROWS, Cut
from jax_engine.weights.low_rank import RANKS, A, B, SlotLayout, halves_of, parts_of_columns


@dataclass(frozen=True)
class SlotsOfDevice:
    """How the slots of one leaf are cut.

    Attributes:
        layout: Of one device's slots.
        cut: None: each device has all of them.
    """

    layout: SlotLayout
    cut: Cut | None = None

    def share(self, new: Mapping[str, np.ndarray], rank: int) -> dict[str, np.ndarray]:
        """What a device has of an adapter's matrices for the whole leaf: see `lora.matrices`."""
        cut = self.cut
        if cut is None:
            return dict(new)
        places = cut.places[rank]
        if cut.axis == ROWS:
            return {**new, B: np.take(new[B], places, 1)}
        if cut.axis == COLUMNS:
            own = {**new, A: np.take(new[A], places, 2)}
            return own if rank == 0 else _without_biases(own)
        return {name: np.take(array, places, 0) for name, array in new.items()}


def slots_of_device(leaf: AdaptedLeaf, shares: Shares | None) -> SlotsOfDevice:
    """How a leaf's slots are cut.

    Args:
        shares: None: one device has the whole model.
    """
    layout = leaf.layout
    cut = None if shares is None else shares.cuts.get(leaf.weight)
    if shares is None or cut is None or leaf.kind == "embedding":
        return SlotsOfDevice(layout)
    count = len(cut.places[0])
    if cut.axis == COLUMNS:
        return SlotsOfDevice(replace(layout, in_size=count), cut)
    if cut.axis != ROWS:
        return SlotsOfDevice(replace(layout, choices=count), cut)
    gated = shares.whole[leaf.weight].matrix.gated
    halves = halves_of(_parts(layout, cut), gated=gated)
    return SlotsOfDevice(replace(layout, out_size=count, halves=halves), cut)


def _parts(layout: SlotLayout, cut: Cut) -> list[range]:
    """The columns of a device's product that are each module's."""
    own = parts_of_columns(layout)[cut.places[0]]
    stops = np.cumsum(np.bincount(own, minlength=layout.parts)).tolist()
    return [range(start, stop) for start, stop in zip([0, *stops], stops, strict=False)]


def _without_biases(new: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Biases are a part of a sum over the devices once: the first one has them."""
    b, ranks = new[B].copy(), new[RANKS].copy()
    b[..., -1] = 0
    ranks[..., 1] = 0
    return {**new, B: b, RANKS: ranks}
