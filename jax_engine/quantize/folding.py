"""Where the scales of inputs go: into what makes the inputs, where the product stays the same.

    a norm                        its weight, and bias, are divided
    the value's rows of qkv       what attention mixes, if each query head has values of its own
    the up rows of a gated MLP    what the gate multiplies

Inputs that are made in another way are not scaled.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from jax_engine.layer_spec import MlpSpec
from jax_engine.quantize.layers import Layer
from jax_engine.weights.transforms import AddOne, Concatenate, Tensor, Transform, transform_of

Values = dict[str, np.ndarray]


class Fold(NamedTuple):
    """A parameter, whose matrices have the same inputs, and the tensors that make these.

    Attributes:
        makers: tensors whose rows are divided, the weight first.
        one: what is added to the weight before it is used, as in Gemma's norms.
    """

    reader: str
    makers: tuple[str, ...]
    one: int = 0

    def apply(self, values: Values, readers: Sequence[str], scales: np.ndarray) -> np.ndarray:
        """Divides what makes the inputs by scales [K], and multiplies the columns that read them.

        A norm keeps its dtype: its rounded weight decides by how much the inputs are divided.

        Returns:
            The scales as they came to be.
        """
        weight = self.makers[0]
        if values[weight].ndim == 1:
            whole = values[weight].astype(np.float32) + np.float32(self.one)
            rounded = (whole / scales - np.float32(self.one)).astype(values[weight].dtype)
            divided = rounded.astype(np.float32) + np.float32(self.one)
            usable = (whole != 0) & (divided != 0)
            scales = np.where(usable, whole / np.where(usable, divided, 1), scales)
            values[weight] = rounded
        else:
            values[weight] = values[weight].astype(np.float32) / scales[:, None]
        for name in self.makers[1:]:
            values[name] = values[name].astype(np.float32) / scales
        for name in readers:
            values[name] = values[name].astype(np.float32) * scales
        return scales


def folds_of(layer: Layer) -> Iterator[Fold]:
    """The inputs of a layer that can be scaled, in the order in which they are made."""
    spec, attention = layer.spec, layer.spec.attention
    assert isinstance(spec.mlp, MlpSpec)
    if not (spec.parallel and spec.mlp_norm is None):  # else the MLP reads the same norm
        yield from _norm(layer, "input_norm", "attention.qkv.weight")
    if attention.num_heads == attention.num_kv_heads and attention.clip is None:
        yield from _rows(layer, "attention.qkv", 3, "attention.o.weight")
    first = "mlp.gate_up.weight" if spec.mlp.gated else "mlp.up.weight"
    yield from _norm(layer, "mlp_norm", first)
    if spec.mlp.gated and spec.mlp.activation != "clipped_swiglu":
        yield from _rows(layer, "mlp.gate_up", 2, "mlp.down.weight")


def _norm(layer: Layer, norm: str, reader: str) -> Iterator[Fold]:
    names, one = [], 0
    for made in map(layer.transforms.get, (f"{norm}.weight", f"{norm}.bias")):
        if made is None:
            continue
        if isinstance(made, AddOne):
            one, made = made.one, transform_of(made.part)
        if not isinstance(made, Tensor):
            return
        names.append(made.name.format(**layer.words))
    if names:
        yield Fold(reader, tuple(names), one)


def _rows(layer: Layer, maker: str, count: int, reader: str) -> Iterator[Fold]:
    """The last of `count` tensors that a matrix, and its bias, are made of."""
    names = []
    for made in map(layer.transforms.get, (f"{maker}.weight", f"{maker}.bias")):
        if made is None:
            continue
        last = _last_of(made, count)
        if last is None:
            return
        names.append(last.name.format(**layer.words))
    yield Fold(reader, tuple(names))


def _last_of(made: Transform, count: int) -> Tensor | None:
    if not isinstance(made, Concatenate) or len(made.parts) != count:
        return None
    last = transform_of(made.parts[-1])
    return last if isinstance(last, Tensor) else None
