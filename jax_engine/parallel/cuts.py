"""Which rows or columns of each weight a device holds.

A cut names the axis of a leaf that the devices share, and for each device the places along it that
the device holds. A leaf without a cut is whole on each device.
"""

import dataclasses
from collections.abc import Mapping

import numpy as np

from jax_engine.model_spec import AttentionSpec, ExpertsSpec, LayerSpec, MlpSpec, ModelSpec
from jax_engine.parallel.collectives import share_of_rows
from jax_engine.weights.transforms import Columns, Declaration, Rows, Stack, Transform

HEADS, ROWS, COLUMNS = -3, -2, -1  # axes; of heads, or experts, where each has a matrix
EXPERTS = ("experts.gate_up", "experts.down")


@dataclasses.dataclass(frozen=True, eq=False)
class Cut:
    """How one leaf is cut.

    Attributes:
        axis: the axis that is cut, counted from the last one.
        places: for each device, what it holds of that axis, in its own order.
        total: the size of the axis in the whole model.
    """

    axis: int
    places: tuple[np.ndarray, ...]
    total: int

    def transform(self, whole: Transform, ndim: int, rank: int) -> Transform:
        """How a device's share is made of the checkpoint's tensors.

        Args:
            whole: how the leaf of the whole model is made of them.
            ndim: the number of axes of the leaf, that of layers included.
        """
        if isinstance(whole, Stack) and whole.word == "layer":
            part = self._rows(whole.part, ndim - 1, rank)
            return dataclasses.replace(whole, part=part)
        return self._rows(whole, ndim, rank)

    def _rows(self, part: Declaration, ndim: int, rank: int) -> Transform:
        axis = self.axis + ndim
        if axis == 0 and isinstance(part, Stack):  # others are not read
            values = [part.values[place] for place in self.places[rank]]
            return dataclasses.replace(part, values=values)
        if self.by_columns and ndim > 1:
            start, stop = (int(self.places[rank][place]) for place in (0, -1))
            return Columns(part, start, stop + 1, self.total)
        return Rows(part, self.places[rank], self.total, axis)

    @property
    def by_columns(self) -> bool:
        """Whether each device holds a run of columns, so that its products are part of a sum."""
        share = self.total // len(self.places)
        return self.axis == COLUMNS and all(
            np.array_equal(one, np.arange(share) + rank * share)
            for rank, one in enumerate(self.places)
        )

    def share(self, values: np.ndarray, rank: int) -> np.ndarray:
        """A device's share of the whole leaf's numbers."""
        return np.take(values, self.places[rank], self.axis)


def cuts_of(names: Mapping[str, tuple[int, ...]], spec: ModelSpec, size: int) -> dict[str, Cut]:
    """The cuts of those leaves that devices share.

    Args:
        names: The shape of each leaf of the whole model, by its dotted name.
        spec: The whole model.
    """
    found = {}
    for name, shape in names.items():
        cut = _cut(name, shape, spec, size)
        if cut is not None:
            found[name] = cut
    return found


def _cut(name: str, shape: tuple[int, ...], spec: ModelSpec, size: int) -> Cut | None:
    first, *parts, kind = name.split(".")
    axis = ROWS if kind == "weight" else COLUMNS
    if first in ("embed", "lm_head"):
        return Cut(axis, _padded(spec.vocab_size, size), spec.vocab_size)
    if first != "groups":
        return None
    group, _, place, *module = parts  # groups, number, places, number, and the path in the layer
    layer = spec.groups[int(group)].pattern[int(place)]
    where = ".".join(module)
    found = (
        _of_dealt(layer, where, kind, size)
        or _of_summed(layer, where, shape[axis], kind, size)
        or _of_layer(layer, where, kind, size)
    )
    if found is None:
        return None
    axis, places = found
    return Cut(axis, places, shape[axis])


Places = tuple[np.ndarray, ...]


def _of_dealt(layer: LayerSpec, module: str, kind: str, size: int) -> tuple[int, Places] | None:
    """The cut of experts that each device has whole; None for other leaves."""
    mlp = layer.mlp
    if isinstance(mlp, MlpSpec) or not mlp.dealt or module not in EXPERTS:
        return None
    return (HEADS if kind == "weight" else ROWS), _equal(mlp.router.num_experts, size)


def _of_summed(
    layer: LayerSpec, module: str, rows: int, kind: str, size: int
) -> tuple[int, Places] | None:
    """The cut of a product whose inputs devices share; None for others, and for what is whole."""
    axis, attention = ROWS if kind == "weight" else COLUMNS, layer.attention
    network = None if module == "attention.o" else _network(layer.mlp, module)
    if module == "attention.o":
        whole_rows, columns = attention.whole_rows, attention.num_heads * attention.value_dim
    elif network is not None and module.endswith(".down"):
        whole_rows, columns = network.whole_rows, network.width
    else:
        return None
    if whole_rows:
        return axis, _padded(rows, size)
    return (COLUMNS, _equal(columns, size)) if kind == "weight" else None


def _of_layer(layer: LayerSpec, module: str, kind: str, size: int) -> tuple[int, Places] | None:
    """The axis and the places of a leaf of a layer; None if it is whole on each device."""
    axis, spec = ROWS if kind == "weight" else COLUMNS, layer.attention
    if module == "attention" and kind == "sinks":
        return COLUMNS, _equal(spec.num_heads, size)
    if module == "attention.qkv":
        return axis, tuple(_of_heads(spec, size, rank) for rank in range(size))
    if module == "attention" and kind in ("k_up", "v_up"):
        return HEADS, _equal(spec.num_heads, size)
    if module == "attention.q_up":
        return axis, _equal(spec.num_heads * spec.query_dim, size)
    if module == "attention.down":
        return (
            None if spec.latent is None or spec.latent.q_rank else (axis, _of_queries(spec, size))
        )
    if module in ("attention.q_norm", "attention.k_norm"):  # [heads, D], of bias and weight
        if spec.head_norm is None or spec.head_norm.whole:
            return None  # computed on each device, of latents or for the heads of all
        queries = module.endswith("q_norm")
        ranks = range(size)
        own = (kv_heads(spec, size, rank) for rank in ranks)
        return ROWS, _equal(spec.num_heads, size) if queries else tuple(own)
    network = _network(layer.mlp, module)
    if network is None:
        return None
    if module.endswith(".gate_up"):
        halves = _equal(network.width, size)
        return axis, tuple(np.concatenate([one, one + network.width]) for one in halves)
    if module.endswith(".up"):
        return axis, _equal(network.width, size)
    return None


def _network(mlp: MlpSpec | ExpertsSpec, module: str) -> MlpSpec | None:
    """The feed-forward network that a module belongs to."""
    if isinstance(mlp, MlpSpec):
        return mlp if module.startswith("mlp.") else None
    if module.startswith("experts.shared."):
        return mlp.shared
    return mlp.expert if module.startswith("experts.") else None


def _equal(count: int, size: int) -> Places:
    """Runs of equal length, one for each device."""
    return tuple(np.arange(count).reshape(size, -1))


def _padded(count: int, size: int) -> Places:
    """Runs of equal length, of which the last ones repeat the last place: nobody sees these."""
    share = share_of_rows(count, size)
    return tuple(np.minimum(np.arange(share) + rank * share, count - 1) for rank in range(size))


def kv_heads(spec: AttentionSpec, size: int, rank: int) -> np.ndarray:
    """A device's KV heads. If there are fewer than devices, several devices have the same."""
    count = spec.num_kv_heads
    if count >= size:
        return _equal(count, size)[rank]
    return np.array([rank * count // size])


def _of_queries(spec: AttentionSpec, size: int) -> Places:
    """Rows of a projection to queries and latents: of a device's queries, and all latents."""
    queries = spec.num_heads * spec.query_dim
    latents = np.arange(queries, queries + spec.head_dim)
    return tuple(np.concatenate([own, latents]) for own in _equal(queries, size))


def _of_heads(spec: AttentionSpec, size: int, rank: int) -> np.ndarray:
    """A device's rows of the fused projection: of its queries, then its keys, then its values."""
    heads, of_keys = spec.num_heads, spec.num_kv_heads
    queries, own = _equal(heads, size)[rank], kv_heads(spec, size, rank)
    of_heads = np.concatenate([queries, heads + own, heads + of_keys + own])
    return (of_heads[:, None] * spec.head_dim + np.arange(spec.head_dim)).reshape(-1)
