"""Loads a model to the devices of this process that share it: to each its own rows and columns.

One device is filled after another, so that the host never holds more than one leaf of one share.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import jax
import numpy as np

from jax_engine.host_memory import allocating
from jax_engine.model_spec import ModelSpec
from jax_engine.models.dummy import random_values
from jax_engine.models.leaves import Leaf
from jax_engine.models.load_leaves import load_leaves, packed
from jax_engine.parallel.cuts import Cut, cuts_of
from jax_engine.parallel.mesh import DeviceMesh, OneOfMany
from jax_engine.weights.tensor_source import TensorSource
from jax_engine.weights.transforms import Transform

Arrays = dict[str, dict[str, jax.Array]]


def shares_of(
    mesh: DeviceMesh | OneOfMany,
    spec: ModelSpec,
    whole: Mapping[str, Leaf],
    leaves: dict[str, Leaf],
) -> "Shares":
    """How the leaves of the whole model become those of the devices.

    Args:
        spec: the whole model.
        leaves: those of one device's share.
    """
    return Shares(mesh, whole, leaves, cuts_of(shapes_of(whole), spec, mesh.size))


def shapes_of(leaves: Mapping[str, Leaf]) -> dict[str, tuple[int, ...]]:
    """The shape of each leaf's numbers."""
    return {name: leaf.matrix.shape for name, leaf in leaves.items()}


@dataclass(frozen=True)
class Shares:
    """How a model's leaves are cut over devices.

    Attributes:
        whole: the leaves of the whole model.
        leaves: those of one device's share.
        cuts: the cuts of those that are not whole on each device.
    """

    mesh: DeviceMesh | OneOfMany
    whole: Mapping[str, Leaf]
    leaves: dict[str, Leaf]
    cuts: Mapping[str, Cut]

    def load(self, source: TensorSource, transforms: Mapping[str, Transform]) -> Arrays:
        """All leaves, each joined of the shares of this process's devices; see `load_leaves`.

        Args:
            transforms: how the leaves of the whole model are made.
        """
        each = []
        for rank, device in self.mesh.ranks:
            own = self.transforms(transforms, rank)
            with jax.default_device(device):
                each.append(load_leaves(source, self.leaves, own))
        return {name: self._joined([one[name] for one in each]) for name in self.leaves}

    def random(self, seed: int) -> Arrays:
        """Random weights, the same as of one device; see `random_leaves`."""
        return {name: self._random(name, leaf, seed) for name, leaf in self.whole.items()}

    def transforms(self, transforms: Mapping[str, Transform], rank: int) -> dict[str, Transform]:
        """How a device's leaves are made, from how those of the whole model are."""
        return {name: self._transform(name, one, rank) for name, one in transforms.items()}

    def _transform(self, name: str, whole: Transform, rank: int) -> Transform:
        cut = self.cuts.get(name)
        ndim = len(self.whole[name].matrix.shape)
        return whole if cut is None else cut.transform(whole, ndim, rank)

    def _random(self, name: str, leaf: Leaf, seed: int) -> dict[str, jax.Array]:
        cut, each = self.cuts.get(name), []
        with allocating(f"the weights {name}", leaf.num_bytes):
            values = np.asarray(random_values(leaf, seed))
            for rank, device in self.mesh.ranks:
                share = values if cut is None else cut.share(values, rank)
                with jax.default_device(device):
                    each.append(packed(self.leaves[name], share))
        return self._joined(each)

    def _joined(self, each: list[dict[str, jax.Array]]) -> dict[str, jax.Array]:
        return {part: self.mesh.joined([one[part] for one in each]) for part in each[0]}
