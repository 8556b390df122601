"""Which modules of a model an adapter may change, by the checkpoint's names, and their shapes.

The engine computes some of them in one product: q, k and v, gate and up. An adapter stays in the
checkpoint's modules; `leaf` says which of the decoder's parameters a module is a part of.

An expert is a module of its own. Where a checkpoint has a tensor for all experts of a layer, they
are its elements: "model.layers.0.mlp.experts.gate_up_proj[7]". transformers 5 has such parameters
for all families, whatever their checkpoints have: `peft.py` reads adapters of those.
"""

import dataclasses
import difflib
import functools
import re
from collections.abc import Collection, Mapping
from typing import Literal, NamedTuple

import jax.numpy as jnp

from jax_engine.models.leaves import abstract_leaves, transforms_of
from jax_engine.models.model_config import ModelConfig
from jax_engine.models.model_loader import abstract_decoder
from jax_engine.weights.transforms import (
    Heads,
    Transform,
    Transpose,
    UnitColumns,
    UnitRows,
    transform_of,
)

HEAD, EMBEDDING = "lm_head", "embed"
_WEIGHT = ".weight"
_ROUTER = "layers.experts.router"
Kind = Literal["linear", "embedding", "head", "experts", "router"]
# How transformers 5 calls what checkpoints of Mixtral and Granite still have by older names.
_RENAMED = {
    ".block_sparse_moe.gate": ".mlp.gate",
    ".block_sparse_moe.experts": ".mlp.experts",
    ".block_sparse_moe.router.layer": ".block_sparse_moe.router",
}
# The matrices of a layer's experts, and the parameter of all of them in transformers 5.
_PARAMETERS = {"layers.experts.gate_up": "gate_up_proj", "layers.experts.down": "down_proj"}
_NUMBERED = re.compile(r"(?P<container>.+\.experts)\.(?P<expert>\d+)\.[^.]+")
_ELEMENT = re.compile(r"(?P<tensor>(?P<block>.+?)(?:\.experts)?\.[^.]+)\[(?P<expert>\d+)\]")


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
        by_name: its modules.
        renamed: the names that transformers 5 has for some of them.
        fused: parameters of all experts of a layer, by transformers' names. For each expert the
            modules whose rows follow each other in it.
    """

    config: ModelConfig
    by_name: Mapping[str, Module]
    renamed: Mapping[str, str] = dataclasses.field(default_factory=dict)
    fused: Mapping[str, tuple[tuple[str, ...], ...]] = dataclasses.field(default_factory=dict)

    def named(self, name: str) -> str | None:
        """The module of this name, or of a bare decoder's, which lacks the first part; or None."""
        if name in self.by_name:
            return name
        if name in self._older:
            return self._older[name]
        whole = self.whole(name)
        return whole if whole in self.by_name else self._older.get(whole)

    def whole(self, name: str) -> str:
        """A name of a bare decoder's, with the first part that it lacks."""
        first = transform_of(self.config.weights[EMBEDDING])
        return f"{next(first.templates()).partition('.')[0]}.{name}"

    def names(self, name: str) -> list[str]:
        """How a module is called: in the checkpoint, and in transformers 5."""
        return [name, self.renamed[name]] if name in self.renamed else [name]

    @functools.cached_property
    def experts_turned(self) -> bool:
        """Whether the checkpoint has a tensor of all experts as [X, in, out], as gpt-oss does."""
        names = [f"{leaf}{_WEIGHT}" for leaf in _PARAMETERS]
        declared = [self.config.weights[name] for name in names if name in self.config.weights]
        return any(is_turned(transform_of(one)) for one in declared)

    @functools.cached_property
    def _older(self) -> dict[str, str]:
        return {new: old for old, new in self.renamed.items()}

    def nearest(self, name: str) -> str:
        """The names that are most like one that there is not, as messages have them."""
        known: Collection[str] = self.by_name
        near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
        return ", ".join(near or sorted(known)[:3])


def modules_of(config: ModelConfig) -> Modules:
    """The modules of a model with this configuration. Reads no weights."""
    config = config.undivided
    _, state = abstract_decoder(config.spec, jnp.float32)
    leaves = abstract_leaves(state, config.spec)
    found: dict[str, Module] = {}
    for name, made_of in transforms_of(leaves, config.weights).items():
        leaf, declared = leaves[name], leaves[name].declared.removesuffix(_WEIGHT)
        what = _kind(declared)
        if what is None or leaf.format is None or _is_normed(made_of):
            continue  # a norm or a bias
        turned = what == "embedding" or is_turned(made_of)
        for tensor, shape in leaf.tensors(made_of):
            rows, columns = shape[-2:][::-1] if turned else shape[-2:]
            for module in modules_of_tensor(tensor, shape):
                found[module] = Module(what, rows, columns, declared)
    if config.spec.tied and config.head is None and HEAD in config.weights:
        name = next(transform_of(config.weights[HEAD]).templates()).replace(".{kind}", "")
        found[name] = Module("head", config.vocab_size, config.hidden_size, HEAD)
    renamed = {
        name: name.replace(old, new)
        for name, one in found.items()
        for old, new in _RENAMED.items()
        if one.kind in ("experts", "router") and old in name
    }
    return Modules(config, found, renamed, _fused(found))


def stem_of(tensor: str) -> str:
    """The module of a tensor, or what its experts are elements of."""
    return tensor.removesuffix(_WEIGHT)


def modules_of_tensor(tensor: str, shape: tuple[int, ...]) -> list[str]:
    """The modules whose matrices are in a tensor: of a tensor of all experts, each of them."""
    stem = stem_of(tensor)
    return [f"{stem}[{expert}]" for expert in range(shape[0])] if len(shape) > 2 else [stem]


def _fused(by_name: Mapping[str, Module]) -> dict[str, tuple[tuple[str, ...], ...]]:
    """See `Modules.fused`. Of a layer first the parameter of gate and up, then that of down."""
    found: dict[str, dict[int, list[str]]] = {}
    for name, module in by_name.items():
        for key, expert in _places(name, module) if module.kind == "experts" else ():
            found.setdefault(key, {}).setdefault(expert, []).append(name)
    order = sorted(found, key=lambda key: key.endswith(".down_proj"))
    return {key: tuple(tuple(found[key][at]) for at in sorted(found[key])) for key in order}


def _places(name: str, module: Module) -> list[tuple[str, int]]:
    """The parameters that an expert's module is a part of, and the expert's number.

    Granite's experts were modules of their own before transformers 5: block.input_linear.weight.
    """
    parameter = _PARAMETERS[module.leaf]
    numbered, element = _NUMBERED.fullmatch(name), _ELEMENT.fullmatch(name)
    if numbered is not None:
        container = numbered["container"]
        for old, new in _RENAMED.items():
            container = container.replace(old, new)
        return [(f"{container}.{parameter}", int(numbered["expert"]))]
    if element is None:
        return []
    keys = dict.fromkeys((f"{element['block']}.experts.{parameter}", element["tensor"]))
    return [
        (key if key.endswith(parameter) else f"{key}{_WEIGHT}", int(element["expert"]))
        for key in keys
    ]


def _kind(declared: str) -> Kind | None:
    """What a module of the decoder is to an adapter; None: what cannot have one."""
    if declared in (EMBEDDING, HEAD):
        return "embedding" if declared == EMBEDDING else "head"
    if declared in _PARAMETERS:
        return "experts"
    if declared == _ROUTER:
        return "router"
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
    """Whether rows or columns are normed when they are read (heads of Baichuan 2, of Ling).

    W + sBA would not be.
    """
    return isinstance(made_of, UnitRows | UnitColumns)
