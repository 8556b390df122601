"""Which of the decoder's weights adapters change, and how an adapter is packed for their slots.

An adapter is in the checkpoint's modules, the decoder has them fused and their rows in an order of
its own. What a family declares for a weight's rows is true of B's as well: both have the product's
columns as rows. So B is read by the same transforms as the weight, out of the adapter.

Latent attention has the matrix W of `kv_b_proj` in two parts of each head: V is multiplied with
latents, and the transpose of K with queries. W + s B A has the rows K + s B_K A and V + s B_V A. So
V gets A and s B_V. The transpose of K, which becomes K^T + A^T (s B_K)^T, gets (s B_K)^T as its A
and A^T as its B. A bias of K adds the same to all scores of a query, which a softmax does not see.

Where several devices share the model, slots are cut like the weight beside which they stand. If a
device has some rows of the weight, it has the same rows of B, and all of A. If it has some columns,
which read its part of x, it has these columns of A, and all of B: what it adds to its part of the
product is a part of the same sum. If it has the matrices of some heads or experts, it has the A and
B of these. The embedding's are whole on each device: an adapter is added to the vector that a
device has got from another.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Literal

import jax.numpy as jnp
import numpy as np

from jax_engine.errors import WeightsError
from jax_engine.lora.adapter import AdaptedModule, Adapter
from jax_engine.lora.modules import EMBEDDING, HEAD, is_turned, modules_of_tensor, stem_of
from jax_engine.models.leaves import Leaf, abstract_leaves, transforms_of
from jax_engine.models.model_config import ModelConfig
from jax_engine.models.model_loader import abstract_decoder
from jax_engine.models.weight_loader import Shares
from jax_engine.parallel.cuts import COLUMNS, ROWS, Cut
from jax_engine.weights.low_rank import RANKS, A, B, SlotLayout, halves_of, parts_of_columns
from jax_engine.weights.transforms import (
    Tensor,
    Transform,
    Transpose,
    Words,
    elements,
    moves_rows,
    transform_of,
)

_WEIGHT = ".weight"
SLOTS = "slots"  # the attribute of a module
EXPERTS = ("layers.experts.gate_up.weight", "layers.experts.down.weight")
HEADS = ("layers.attention.k_up", "layers.attention.v_up")
Kind = Literal["product", "embedding", "tied head", "experts", "keys", "values"]


@dataclass(frozen=True)
class AdaptedLeaf:
    """A weight of the decoder that adapters can change.

    Attributes:
        kind: what it does; a tied head has no weight of its own. "keys" and "values" are of the
            heads of latent attention.
        weight: the name of the decoder's leaf; of a tied head, that of the embedding.
        path: where the decoder has its slots: the parts of an attribute's path.
        layout: its slots.
        made_of: for each layer, how its matrix is made of tensors.
        modules: for each layer, the modules that it is made of, in the order of `layout`'s parts;
            of experts those of each expert, one after another.
    """

    kind: Kind
    weight: str
    path: tuple[str | int, ...]
    layout: SlotLayout
    made_of: tuple[tuple[Transform, Words], ...]
    modules: tuple[tuple[str, ...], ...]


def adapted_leaves(
    config: ModelConfig, leaves: Mapping[str, Leaf], slots: int, max_rank: int
) -> list[AdaptedLeaf]:
    """The weights of a decoder that adapters can change, with their slots."""
    found = []
    for name, made_of in transforms_of(leaves, config.weights).items():
        leaf = leaves[name]
        each = [(part, words) for _, part, words in elements(made_of)]
        if _is_product(leaf) and _moves_rows(each[0][0], 1):
            found.append(_product(name, leaf, each, slots, max_rank))
        elif leaf.declared in EXPERTS and _moves_rows(each[0][0], 2):
            found.append(_experts(name, leaf, each, slots, max_rank))
        elif leaf.declared in HEADS and _moves_rows(_not_turned(each[0][0]), 2):
            found.append(_heads(name, leaf, each, slots, max_rank))
        elif leaf.declared == EMBEDDING + _WEIGHT and isinstance(made_of, Tensor):
            found.append(_embedding(leaf, made_of, slots, max_rank))
    if config.spec.tied and config.head is None and HEAD in config.weights:
        made_of = transform_of(config.weights[HEAD]).renamed(_of_weight)
        if _moves_rows(made_of, 1):
            found.append(_tied_head(config, made_of, slots, max_rank))
    return found


def _is_product(leaf: Leaf) -> bool:
    """Whether a leaf is a matrix that all tokens are multiplied with: a layer's, or the head."""
    name, axes = leaf.declared, len(leaf.matrix.shape)
    if leaf.format is None or not name.endswith(_WEIGHT):
        return False
    if leaf.layers is None:
        return name == HEAD + _WEIGHT
    return axes == 3


def _moves_rows(made_of: Transform, axes: int) -> bool:
    return moves_rows(made_of, axes) or moves_rows(made_of, axes, turned=True)


def _not_turned(made_of: Transform) -> Transform:
    """How a head's matrix is made before it is turned, if it is."""
    return transform_of(made_of.part) if isinstance(made_of, Transpose) else made_of


def _of_weight(template: str) -> str:
    return template.replace("{kind}", "weight")


def _embedding(leaf: Leaf, made_of: Tensor, slots: int, max_rank: int) -> AdaptedLeaf:
    """The table of tokens: A x of a token, which stands for a unit vector, is a column of A."""
    tokens, width = leaf.matrix.shape
    layout = SlotLayout(1, slots, tokens, width, max_rank, 1, _halves(width))
    module = made_of.name.removesuffix(_WEIGHT)
    path, weight = (EMBEDDING, SLOTS), EMBEDDING + _WEIGHT
    return AdaptedLeaf("embedding", weight, path, layout, ((made_of, {}),), ((module,),))


def _tied_head(config: ModelConfig, made_of: Transform, slots: int, max_rank: int) -> AdaptedLeaf:
    """A head that multiplies with the embedding: an adapter changes one of them alone."""
    size, width = config.spec.vocab_size, config.spec.width
    layout = SlotLayout(1, slots, width, size, max_rank, 1, _halves(size))
    (module,) = (name.removesuffix(_WEIGHT) for name, _ in made_of.tensors((size, width), {}))
    path, weight = ("tied_slots",), EMBEDDING + _WEIGHT
    return AdaptedLeaf("tied head", weight, path, layout, ((made_of, {}),), ((module,),))


def _halves(size: int) -> tuple[tuple[int, int, int], ...]:
    return halves_of([range(size)], gated=False)


def _product(
    name: str, leaf: Leaf, each: list[tuple[Transform, Words]], slots: int, max_rank: int
) -> AdaptedLeaf:
    out_size, in_size = leaf.matrix.shape[-2:]
    modules = tuple(tuple(_modules(part, words, leaf)) for part, words in each)
    parts = _parts(each[0], out_size, modules[0])
    halves = halves_of(parts, gated=leaf.matrix.gated)
    layout = SlotLayout(len(each), slots, in_size, out_size, max_rank, len(parts), halves)
    return AdaptedLeaf("product", name, _slots_of(name), layout, tuple(each), modules)


def _slots_of(name: str) -> tuple[str | int, ...]:
    """Where the slots of a module's weight are."""
    module = name.removesuffix(_WEIGHT).split(".")
    return (*(int(part) if part.isdigit() else part for part in module), SLOTS)


def _experts(
    name: str, leaf: Leaf, each: list[tuple[Transform, Words]], slots: int, max_rank: int
) -> AdaptedLeaf:
    """A matrix for each expert; all are made of modules in the same way."""
    count, out_size, in_size = leaf.matrix.shape[-3:]
    modules = tuple(tuple(_modules(part, words, leaf)) for part, words in each)
    parts = _parts(each[0], out_size, modules[0][: len(modules[0]) // count], count)
    halves = halves_of(parts, gated=leaf.matrix.gated)
    sizes = len(each), slots, in_size, out_size, max_rank, len(parts)
    layout = SlotLayout(*sizes, halves, choices=count)
    return AdaptedLeaf("experts", name, _slots_of(name), layout, tuple(each), modules)


def _heads(
    name: str, leaf: Leaf, each: list[tuple[Transform, Words]], slots: int, max_rank: int
) -> AdaptedLeaf:
    """A matrix for each head of latent attention; all heads are parts of one module."""
    count, out_size, in_size = leaf.matrix.shape[-3:]
    modules = tuple(tuple(_modules(part, words, leaf)) for part, words in each)
    sizes = len(each), slots, in_size, out_size, max_rank, 1
    layout = SlotLayout(*sizes, _halves(out_size), choices=count)
    kind: Kind = "keys" if isinstance(each[0][0], Transpose) else "values"
    *module, last = _slots_of(name)[:-1]
    path = (*module, f"{last}_{SLOTS}")
    made_of = tuple((_not_turned(part), words) for part, words in each)
    return AdaptedLeaf(kind, name, path, layout, made_of, modules)


def _modules(made_of: Transform, words: Words, leaf: Leaf) -> Iterator[str]:
    """The modules of one layer's matrix or matrices, each once."""
    shape = leaf.matrix.shape[1 if leaf.layers is not None else 0 :]
    for tensor, its_shape in dict(made_of.tensors(shape, words)).items():
        yield from modules_of_tensor(tensor, its_shape)


def _parts(
    one: tuple[Transform, Words], out_size: int, modules: tuple[str, ...], experts: int = 0
) -> list[range]:
    """The columns of a product that are each module's: found by reading their numbers as rows.

    Args:
        experts: how many matrices there are, with the columns of the first one's; 0: a single one.
    """
    made_of, words = one
    numbers = np.empty((*[experts] * bool(experts), out_size, 1), np.float32)
    made_of.read_into(_Rows({name: at for at, name in enumerate(modules)}), numbers, words)
    numbers = numbers.reshape(-1, 1)[:out_size]
    borders = np.searchsorted(numbers[:, 0], np.arange(len(modules) + 1)).tolist()
    if (np.diff(numbers[:, 0]) < 0).any():
        raise WeightsError(f"{modules[0]}: its rows are not one after another; got {one[0]}.")
    return [range(start, stop) for start, stop in itertools.pairwise(borders)]


class _Rows:
    """In a checkpoint's place: every tensor's numbers are those of its module.

    Attributes:
        values: numbers, or matrices [rows, ranks], by module; zeros for the others.
        turned: whether the checkpoint's matrices are stored as [in, out].
    """

    location = Path("adapter")

    def __init__(self, values: Mapping[str, float | np.ndarray], turned: bool = False):
        self.values, self.turned = values, turned

    def names(self) -> list[str]:
        return [f"{name}{_WEIGHT}" for name in self.values]

    def shape(self, name: str) -> tuple[int, ...]:
        return np.shape(self.values[stem_of(name)])

    def describe(self, name: str) -> str:
        return f"the adapter of {stem_of(name)}"

    def read_into(self, name: str, out: np.ndarray) -> None:
        """Writes the numbers of a module, or of all experts, as the checkpoint would store them."""
        matrices = out if out.ndim > 2 else [out]
        for module, matrix in zip(modules_of_tensor(name, out.shape), matrices, strict=True):
            value = np.asarray(self.values.get(module, 0.0))
            matrix[...] = value.T if self.turned else value


def check_supported(adapter: Adapter, leaves: list[AdaptedLeaf]) -> None:
    """Refuses an adapter that slots cannot hold.

    Raises:
        WeightsError: a module is none that the leaves have, or its rank is larger than theirs.
    """
    known = {name: leaf for leaf in leaves for names in leaf.modules for name in names}
    for one in adapter.modules:
        leaf = known.get(one.name)
        if leaf is None:
            raise WeightsError(
                f"the adapter changes {one.name}, which cannot be computed: only products whose "
                "rows the engine moves whole can be adapted. Train it without this module."
            )
        if one.rank > leaf.layout.max_rank:
            raise WeightsError(
                f"the adapter's rank of {one.name} must be at most max_lora_rank "
                f"({leaf.layout.max_rank}), got {one.rank}."
            )


def check_of(config: ModelConfig, max_rank: int) -> Callable[[Adapter], None]:
    """`check_supported` for a model with this configuration. Reads no weights, needs no device."""
    whole = config.undivided

    @cache
    def leaves() -> list[AdaptedLeaf]:
        _, state = abstract_decoder(whole.spec, jnp.float32)
        return adapted_leaves(whole, abstract_leaves(state, whole.spec), 1, max_rank)

    return lambda adapter: check_supported(adapter, leaves())


def is_changed(leaf: AdaptedLeaf, modules: Mapping[str, AdaptedModule]) -> bool:
    """Whether an adapter with these modules, by name, changes a leaf."""
    return any(name in modules for names in leaf.modules for name in names)


def matrices(
    leaf: AdaptedLeaf, modules: Mapping[str, AdaptedModule]
) -> Iterator[tuple[int, dict[str, np.ndarray]]]:
    """What a slot of a leaf holds of an adapter with these modules, by name; zeros where none.

    Yields:
        The first layer, and the matrices in float32, which `SlotLayout` packs: of all layers; of
        experts and of heads those of one layer after another, since they are many.
        A [n, parts * held_rank, in]; B [n, out, held_rank + 1], the biases behind the ranks; RANKS
        [n, parts, 2]. n are the layers, or the experts or heads of one.
    """
    layout = leaf.layout
    if layout.choices:
        for layer, names in enumerate(leaf.modules):
            made, own = _zeros(layout, layout.choices), _chosen(modules, names)
            if own:
                _of_choices(own, leaf, layer, made)
            yield layer, made
        return
    made = _zeros(layout, layout.layers)
    for layer, names in enumerate(leaf.modules):
        own = _chosen(modules, names)
        if own:
            _of_layer(own, leaf, layer, {name: array[layer] for name, array in made.items()})
    yield 0, made


def _chosen(
    modules: Mapping[str, AdaptedModule], names: tuple[str, ...]
) -> dict[str, AdaptedModule]:
    return {name: modules[name] for name in names if name in modules}


def _zeros(layout: SlotLayout, count: int) -> dict[str, np.ndarray]:
    ranks = layout.held_rank
    return {
        A: np.zeros((count, layout.parts * ranks, layout.in_size), np.float32),
        B: np.zeros((count, layout.out_size, ranks + 1), np.float32),
        RANKS: np.zeros((count, layout.parts, 2), np.int32),
    }


def _of_choices(
    own: Mapping[str, AdaptedModule], leaf: AdaptedLeaf, layer: int, made: dict[str, np.ndarray]
) -> None:
    """Writes the modules of one layer's experts or heads."""
    if leaf.kind == "experts":
        _of_experts(own, leaf, layer, made)
        return
    (one,) = own.values()
    made_of, words = leaf.made_of[layer]
    rows = leaf.layout.out_size if leaf.kind == "values" else leaf.layout.in_size
    scaled = np.empty((leaf.layout.choices, rows, leaf.layout.held_rank + 1), np.float32)
    made_of.read_into(_Rows({one.name: _scaled(one, leaf.layout.held_rank)}), scaled, words)
    if leaf.kind == "values":
        made[A][:, : one.rank], made[B][...] = one.a, scaled
        made[RANKS][:, 0] = one.rank, one.bias is not None
    else:
        made[A][...] = scaled[..., :-1].swapaxes(1, 2)
        made[B][..., : one.rank] = one.a.T
        made[RANKS][:, 0] = one.rank, False


def _of_experts(
    own: Mapping[str, AdaptedModule], leaf: AdaptedLeaf, layer: int, made: dict[str, np.ndarray]
) -> None:
    """Writes those experts of one layer that an adapter changes."""
    layout, values = leaf.layout, dict[str, np.ndarray]()
    for place, name in enumerate(leaf.modules[layer]):
        if name not in own:
            continue
        one, (expert, part) = own[name], divmod(place, layout.parts)
        first = part * layout.held_rank
        made[A][expert, first : first + one.rank] = one.a
        made[RANKS][expert, part] = one.rank, one.bias is not None
        values[name] = _scaled(one, layout.held_rank)
    made_of, words = leaf.made_of[layer]
    made_of.read_into(_Rows(values, is_turned(made_of)), made[B], words)


def _of_layer(
    own: Mapping[str, AdaptedModule], leaf: AdaptedLeaf, layer: int, made: dict[str, np.ndarray]
) -> None:
    """Writes the modules of one layer. s becomes part of B and of the biases."""
    layout, values = leaf.layout, dict[str, np.ndarray]()
    for name, one in own.items():
        part = leaf.modules[layer].index(name)
        first = part * layout.held_rank
        made[A][first : first + one.rank] = one.a
        made[RANKS][part] = one.rank, one.bias is not None
        values[name] = _scaled(one, layout.held_rank)
    if leaf.kind == "embedding":
        made[B][...] = values[leaf.modules[0][0]]
        return
    made_of, words = leaf.made_of[layer]
    made_of.read_into(_Rows(values, is_turned(made_of)), made[B], words)


def _scaled(one: AdaptedModule, held_rank: int) -> np.ndarray:
    """s B and behind its ranks s times the biases, in float32."""
    found = np.zeros((len(one.b), held_rank + 1), np.float32)
    scaling = np.float32(one.scaling)
    np.multiply(one.b, scaling, out=found[:, : one.rank], dtype=np.float32)
    if one.bias is not None:
        np.multiply(one.bias, scaling, out=found[:, -1], dtype=np.float32)
    return found


@dataclass(frozen=True)
class SlotsOfDevice:
    """How the slots of one leaf are cut.

    Attributes:
        layout: Layout of one device's slots.
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
    halves = halves_of(_parts_of_device(layout, cut), gated=gated)
    return SlotsOfDevice(replace(layout, out_size=count, halves=halves), cut)


def _parts_of_device(layout: SlotLayout, cut: Cut) -> list[range]:
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
