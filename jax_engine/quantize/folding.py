"""Where the scales of a matrix's inputs go: into what makes the inputs.

Columns of the matrix are multiplied by scales, and its inputs are divided by them:

    a norm's weight, and its bias     if one matrix reads it
    the value's rows of qkv           if each query head has values of its own
    the up rows of a gated MLP        which the gate multiplies

The float model stays the same, and the checkpoint is an ordinary one.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from jax_engine.layer_spec import MlpSpec
from jax_engine.quantize.layers import Layer
from jax_engine.weights.transforms import AddOne, Concatenate, Tensor, Transform, transform_of

QKV = "attention.qkv.weight"


class Fold(NamedTuple):
    """What makes the inputs of a parameter.

    Attributes:
        makers: tensors that are divided along their first axis; a weight, then perhaps its bias.
        one: what is added to them before they are used, as in Gemma's norms.
    """

    makers: tuple[str, ...]
    one: int = 0

    def divided(self, values: np.ndarray, scales: np.ndarray) -> np.ndarray:
        """A maker divided: a vector in its dtype, a matrix, which is quantised, in float32."""
        whole = values.astype(np.float32) + np.float32(self.one)
        divided = whole / scales.reshape(-1, *(1,) * (whole.ndim - 1)) - np.float32(self.one)
        return np.asarray(divided.astype(values.dtype) if values.ndim == 1 else divided)

    def possible(self, weight: np.ndarray, scales: np.ndarray) -> np.ndarray:
        """The scales that are left when the divided weight is rounded to its dtype."""
        if weight.ndim > 1:
            return scales
        one = np.float32(self.one)
        before, after = (
            values.astype(np.float32) + one for values in (weight, self.divided(weight, scales))
        )
        usable = (before * after > 0) & np.isfinite(after)
        return np.where(usable, before, 1) / np.where(usable, after, np.float32(1))


def folds_of(layer: Layer) -> dict[str, Fold | str]:
    """For each matrix its fold, in the order of the layer, or why its inputs cannot be scaled."""
    spec = layer.spec
    assert isinstance(spec.mlp, MlpSpec)
    attention, first = spec.attention, "mlp.gate_up.weight" if spec.mlp.gated else "mlp.up.weight"
    found: dict[str, Fold | str] = {}
    shared = spec.parallel and spec.mlp_norm is None
    found[QKV] = "the norm has other readers" if shared else _norm(layer, "input_norm")
    if attention.num_heads != attention.num_kv_heads:
        found["attention.o.weight"] = "query heads share values"
    elif attention.clip is not None:
        found["attention.o.weight"] = "values are clipped"
    else:
        found["attention.o.weight"] = _rows(layer, "attention.qkv", 3)
    found[first] = "the norm has other readers" if shared else _norm(layer, "mlp_norm")
    if not spec.mlp.gated or spec.mlp.activation == "clipped_swiglu":
        found["mlp.down.weight"] = "the activation is not linear"
    else:
        found["mlp.down.weight"] = _rows(layer, "mlp.gate_up", 2)
    return found


def _parts(layer: Layer, name: str) -> Iterator[Transform]:
    for end in ("weight", "bias"):
        if f"{name}.{end}" in layer.transforms:
            yield layer.transforms[f"{name}.{end}"]


def _norm(layer: Layer, norm: str) -> Fold | str:
    names, one = [], 0
    for made in _parts(layer, norm):
        if isinstance(made, AddOne):
            one, made = made.one, transform_of(made.part)
        if not isinstance(made, Tensor):
            return "the norm stores nothing"
        names.append(made.name.format(**layer.words))
    if not names:
        return "no norm is before it"
    used = [*layer.tensors()]
    if any(used.count(name) > 1 for name in names):
        return "the norm has other readers"
    return Fold(tuple(names), one)


def _rows(layer: Layer, maker: str, count: int) -> Fold | str:
    """The last of `count` tensors that a matrix, and its bias, are made of."""
    names = []
    for made in _parts(layer, maker):
        if not isinstance(made, Concatenate) or len(made.parts) != count:
            return "the product before is not a tensor of its own"
        last = transform_of(made.parts[-1])
        if not isinstance(last, Tensor):
            return "the product before is not a tensor of its own"
        names.append(last.name.format(**layer.words))
    return Fold(tuple(names))
