"""Which of the decoder's weights adapters change, and how an adapter is packed for their slots.

An adapter is in the checkpoint's modules, the decoder has them fused and their rows in an order of
its own. What a family declares for a weight's rows is true of B's as well: both have the product's
columns as rows. So B is read by the same transforms as the weight, out of the adapter.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

import jax.numpy as jnp
import numpy as np

from jax_engine.errors import WeightsError
from jax_engine.lora.adapter import AdaptedModule, Adapter
from jax_engine.lora.modules import EMBEDDING, HEAD, is_turned
from jax_engine.models.config import ModelConfig
from jax_engine.models.leaves import Leaf, abstract_leaves, transforms_of
from jax_engine.models.load import abstract_decoder
from jax_engine.weights.low_rank import RANKS, A, B, SlotLayout, halves_of
from jax_engine.weights.row_moves import moves_rows
from jax_engine.weights.transforms import Tensor, Transform, Words, elements, transform_of

_WEIGHT, _EXPERTS, _SHARED = ".weight", "layers.experts.", "layers.experts.shared."
Kind = Literal["product", "embedding", "tied head"]


@dataclass(frozen=True)
class AdaptedLeaf:
    """A weight of the decoder that adapters can change.

    Attributes:
        kind: what it does; a tied head has no weight of its own.
        path: the parts of its module's path in the decoder; of a tied head, none.
        layout: its slots.
        made_of: for each layer, how its matrix is made of tensors.
        modules: for each layer, the modules that it is made of, in the order of `layout`'s parts.
    """

    kind: Kind
    path: tuple[str | int, ...]
    layout: SlotLayout
    made_of: tuple[tuple[Transform, Words], ...]
    modules: tuple[tuple[str, ...], ...]


def adapted_leaves(
    config: ModelConfig, leaves: Mapping[str, Leaf], slots: int, max_rank: int
) -> list[AdaptedLeaf]:
    """The weights of a decoder that adapters can change, with their slots.

    Not those whose rows are more than moved: of latent attention's keys and values each head has a
    matrix of its own, one of them turned.
    """
    found = []
    for name, made_of in transforms_of(leaves, config.weights).items():
        leaf = leaves[name]
        each = [(part, words) for _, part, words in elements(made_of)]
        if _is_product(leaf) and _moves_rows(each[0][0]):
            found.append(_product(name, leaf, each, slots, max_rank))
        elif leaf.declared == EMBEDDING + _WEIGHT and isinstance(made_of, Tensor):
            found.append(_embedding(leaf, made_of, slots, max_rank))
    if config.spec.tied and config.head is None and HEAD in config.weights:
        made_of = transform_of(config.weights[HEAD]).renamed(_of_weight)
        if _moves_rows(made_of):
            found.append(_tied_head(config, made_of, slots, max_rank))
    return found


def _is_product(leaf: Leaf) -> bool:
    """Whether a leaf is a matrix that all tokens are multiplied with: a layer's, or the head."""
    name, axes = leaf.declared, len(leaf.matrix.shape)
    if leaf.format is None or not name.endswith(_WEIGHT):
        return False
    if leaf.layers is None:
        return name == HEAD + _WEIGHT
    return axes == 3 and (not name.startswith(_EXPERTS) or name.startswith(_SHARED))


def _moves_rows(made_of: Transform) -> bool:
    return moves_rows(made_of, 1) or moves_rows(made_of, 1, turned=True)


def _of_weight(template: str) -> str:
    return template.replace("{kind}", "weight")


def _embedding(leaf: Leaf, made_of: Tensor, slots: int, max_rank: int) -> AdaptedLeaf:
    """The table of tokens: A x of a token, which stands for a unit vector, is a column of A."""
    tokens, width = leaf.matrix.shape
    layout = SlotLayout(1, slots, tokens, width, max_rank, 1, _halves(width))
    module = made_of.name.removesuffix(_WEIGHT)
    return AdaptedLeaf("embedding", (EMBEDDING,), layout, ((made_of, {}),), ((module,),))


def _tied_head(config: ModelConfig, made_of: Transform, slots: int, max_rank: int) -> AdaptedLeaf:
    """A head that multiplies with the embedding: an adapter changes one of them alone."""
    size, width = config.spec.vocab_size, config.spec.width
    layout = SlotLayout(1, slots, width, size, max_rank, 1, _halves(size))
    (module,) = (name.removesuffix(_WEIGHT) for name, _ in made_of.tensors((size, width), {}))
    return AdaptedLeaf("tied head", (), layout, ((made_of, {}),), ((module,),))


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
    path = tuple(int(part) if part.isdigit() else part for part in name.split(".")[:-1])
    return AdaptedLeaf("product", path, layout, tuple(each), modules)


def _modules(made_of: Transform, words: Words, leaf: Leaf) -> Iterator[str]:
    """The modules of one layer's matrix, each once."""
    shape = leaf.matrix.shape[-2:]
    yield from dict.fromkeys(
        tensor.removesuffix(_WEIGHT) for tensor, _ in made_of.tensors(shape, words)
    )


def _parts(one: tuple[Transform, Words], out_size: int, modules: tuple[str, ...]) -> list[range]:
    """The columns of a product that are each module's: found by reading their numbers as rows."""
    made_of, words = one
    numbers = np.empty((out_size, 1), np.float32)
    made_of.read_into(_Rows({name: at for at, name in enumerate(modules)}), numbers, words)
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
        return np.shape(self.values[name.removesuffix(_WEIGHT)])

    def describe(self, name: str) -> str:
        return f"the adapter of {name.removesuffix(_WEIGHT)}"

    def read_into(self, name: str, out: np.ndarray) -> None:
        """Writes a module's numbers as the checkpoint would store them."""
        value = np.asarray(self.values.get(name.removesuffix(_WEIGHT), 0.0))
        out[...] = value.T if self.turned else value


def matrices(adapter: Adapter, leaves: list[AdaptedLeaf]) -> list[dict[str, np.ndarray] | None]:
    """An adapter's matrices for one slot of each leaf: see `of_no_adapter`.

    None for a leaf that it does not change.

    Raises:
        WeightsError: a module is none that the leaves have, or its rank is larger than theirs.
    """
    modules = {one.name: one for one in adapter.modules}
    check_supported(adapter, leaves)
    return [_matrices(modules, leaf) for leaf in leaves]


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

    @cache
    def leaves() -> list[AdaptedLeaf]:
        _, state = abstract_decoder(config.spec, jnp.float32)
        return adapted_leaves(config, abstract_leaves(state, config.spec), 1, max_rank)

    return lambda adapter: check_supported(adapter, leaves())


def _matrices(
    modules: Mapping[str, AdaptedModule], leaf: AdaptedLeaf
) -> dict[str, np.ndarray] | None:
    if not any(name in modules for names in leaf.modules for name in names):
        return None
    made = of_no_adapter(leaf)
    for layer, names in enumerate(leaf.modules):
        own = {name: modules[name] for name in names if name in modules}
        if own:
            _of_layer(own, leaf, layer, {name: array[layer] for name, array in made.items()})
    return made


def of_no_adapter(leaf: AdaptedLeaf) -> dict[str, np.ndarray]:
    """The matrices of a leaf that no adapter changes, in float32; `SlotLayout` packs them.

    Returns:
        A [L, parts * held_rank, in]; B [L, out, held_rank + 1], the biases behind the ranks;
        RANKS [L, parts, 2].
    """
    layout = leaf.layout
    layers, ranks = layout.layers, layout.held_rank
    return {
        A: np.zeros((layers, layout.parts * ranks, layout.in_size), np.float32),
        B: np.zeros((layers, layout.out_size, ranks + 1), np.float32),
        RANKS: np.zeros((layers, layout.parts, 2), np.int32),
    }


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
