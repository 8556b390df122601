"""Which modules of a model an adapter may change, by the checkpoint's names, and their shapes.

The engine computes some of them in one product: q, k and v, gate and up. An adapter stays in the
checkpoint's modules; `leaf` says which of the decoder's parameters a module is a part of.
"""

import dataclasses
import difflib
from collections.abc import Collection, Mapping
from typing import Literal, NamedTuple

import jax.numpy as jnp

from jax_engine.models.config import ModelConfig
from jax_engine.models.leaves import abstract_leaves, transforms_of
from jax_engine.models.load import abstract_decoder
from jax_engine.weights.transforms import (
    Heads,
    Transform,
    Transpose,
    UnitRows,
    transform_of,
)

HEAD, EMBEDDING = "lm_head", "embed"
_WEIGHT, _EXPERTS, _SHARED = ".weight", "layers.experts.", "layers.experts.shared."
Kind = Literal["linear", "embedding", "head", "experts"]


class Module(NamedTuple):
    """A module of the model, as an adapter sees it.

    Attributes:
        out_size: rows of B.
        in_size: columns of A; the vocabulary for an embedding.
        leaf: the decoder's module that its weight is a part of: "layers.attention.qkv".
    """

    kind: Kind
    out_size: int
    in_size: int
    leaf: str


@dataclasses.dataclass(frozen=True)
class Modules:
    """The modules of a model.

    Attributes:
        config: the model.
        by_name: its modules; those of kind "experts" cannot be adapted.
    """

    config: ModelConfig
    by_name: Mapping[str, Module]

    def named(self, name: str) -> str | None:
        """The module of this name, or of a bare decoder's, which lacks the first part; or None."""
        if name in self.by_name:
            return name
        first = transform_of(self.config.weights[EMBEDDING])
        whole = f"{next(first.templates()).partition('.')[0]}.{name}"
        return whole if whole in self.by_name else None

    def nearest(self, name: str) -> str:
        """The names that are most like one that there is not, as messages have them."""
        known: Collection[str] = self.by_name
        near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
        return ", ".join(near or sorted(known)[:3])


def modules_of(config: ModelConfig) -> Modules:
    """The modules of a model with this configuration. Reads no weights."""
    _, state = abstract_decoder(config.spec, jnp.float32)
    leaves = abstract_leaves(state, config.spec)
    found: dict[str, Module] = {}
    for name, made_of in transforms_of(leaves, config.weights).items():
        leaf, declared = leaves[name], leaves[name].declared.removesuffix(_WEIGHT)
        what = _kind(declared)
        if what is None or (leaf.format is None and what != "experts"):
            continue  # a norm or a bias
        for tensor, shape in leaf.tensors(made_of):
            if tensor.endswith(_WEIGHT) and len(shape) == 2 and not _is_normed(made_of):
                turned = what == "embedding" or is_turned(made_of)
                rows, columns = shape[::-1] if turned else shape
                found[tensor.removesuffix(_WEIGHT)] = Module(what, rows, columns, declared)
    if config.spec.tied and config.head is None and HEAD in config.weights:
        name = next(transform_of(config.weights[HEAD]).templates()).replace(".{kind}", "")
        found[name] = Module("head", config.vocab_size, config.hidden_size, HEAD)
    return Modules(config, found)


def _kind(declared: str) -> Kind | None:
    """What a module of the decoder is to an adapter; None: what cannot have one."""
    if declared in (EMBEDDING, HEAD):
        return "embedding" if declared == EMBEDDING else "head"
    if declared.startswith(_EXPERTS) and not declared.startswith(_SHARED):
        return "experts"
    return "linear" if declared.startswith("layers.") else None


def is_turned(made_of: Transform) -> bool:
    """Whether the checkpoint stores [in, out], as GPT-2's Conv1D does.

    Latent attention turns a matrix of each head, which is a part of a module that is not turned.
    """
    kinds, part = [type(made_of)], getattr(made_of, "part", None)
    while part is not None:
        kinds.append(type(transform_of(part)))
        part = getattr(transform_of(part), "part", None)
    return Transpose in kinds and Heads not in kinds


def _is_normed(made_of: Transform) -> bool:
    """Whether rows are normed when they are read (Baichuan 2's head): W + sBA would not be."""
    return isinstance(made_of, UnitRows)
