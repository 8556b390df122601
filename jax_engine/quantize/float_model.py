"""The layers of a float checkpoint, with the tensors that each is made of."""

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax.numpy as jnp
from flax import nnx

from jax_engine.errors import ConfigError
from jax_engine.model_spec import LayerSpec
from jax_engine.models.checkpoints.checkpoint import checked_tensors, open_files, read_config
from jax_engine.models.checkpoints.mistral_params import read_fields
from jax_engine.models.checkpoints.quantization.method import RawSource
from jax_engine.models.checkpoints.quantization.quantized_source import quantization_config
from jax_engine.models.checkpoints.resolve import HUB, HubOptions, resolve_model
from jax_engine.models.decoder import DecoderLayer
from jax_engine.models.leaves import Leaf, abstract_leaves, leaf_name, transforms_of
from jax_engine.models.model_config import ModelConfig
from jax_engine.models.model_loader import abstract_decoder
from jax_engine.weights.dense import Dense
from jax_engine.weights.format import Matrix, Weight, WeightFormat
from jax_engine.weights.tensor_source import TensorSource
from jax_engine.weights.transforms import Tensor, Transform, Transpose, transform_of

FLOAT32 = jnp.dtype(jnp.float32)
ROUTER = "router"
WEIGHT = ".weight"


@dataclasses.dataclass(frozen=True)
class Layer:
    """One layer.

    Attributes:
        spec: as if it were the only layer: its rotation and window are single ones.
        leaves: its parameters by their names in a `DecoderLayer`.
        transforms: how each of them is made of tensors.
    """

    number: int
    spec: LayerSpec
    leaves: Mapping[str, Leaf]
    transforms: Mapping[str, Transform]

    @property
    def words(self) -> dict[str, Any]:
        """The values of words in the names of tensors."""
        return {"layer": self.number}

    def tensors(self) -> Iterator[str]:
        """All tensors of the layer."""
        for name, leaf in self.leaves.items():
            for tensor, _ in self.transforms[name].tensors(leaf.matrix.shape, self.words):
                yield tensor

    def matrices(self) -> dict[str, str]:
        """The tensors that can be quantised, each with the parameter that it is a part of.

        Raises:
            ConfigError: a matrix is stored in a form that no format has.
        """
        found = {}
        for name, leaf in self.leaves.items():
            if leaf.format is None or ROUTER in name.split("."):
                continue
            transform = self.transforms[name]
            turned = {one.format(**self.words) for one in _turned(transform)}
            for tensor, shape in transform.tensors(leaf.matrix.shape, self.words):
                if not tensor.endswith(WEIGHT) or len(shape) != 2 or tensor in turned:
                    raise ConfigError(
                        f"tensor {tensor} of shape {shape} is not a single matrix [out, in]; "
                        "no format here can hold it."
                    )
                found[tensor] = name
        return found


def _turned(transform: Transform) -> Iterator[str]:
    """The tensors that are stored [in, out]."""
    if isinstance(transform, Transpose) and isinstance(transform_of(transform.part), Tensor):
        yield from transform.templates()
        return
    below = [getattr(transform, "part", None), *getattr(transform, "parts", ())]
    for one in below:
        if one is not None:
            yield from _turned(transform_of(one))


@dataclasses.dataclass(frozen=True)
class FloatModel:
    """A checkpoint in Hugging Face layout that is not quantised.

    Attributes:
        raw_config: the fields of config.json.
        files: the tensors by their names in the files.
        source: the tensors by the names that the family declares.
    """

    path: Path
    raw_config: dict[str, Any]
    config: ModelConfig
    files: RawSource
    source: TensorSource
    layers: tuple[Layer, ...]

    def name_in_file(self, tensor: str) -> str:
        """A declared name as the files have it: those of a bare decoder lack the first part."""
        return tensor if tensor in self.files.names() else tensor.partition(".")[2]


def open_float_model(model: str | None, hub: HubOptions = HUB) -> FloatModel:
    """Finds a model and checks its tensors. No weight is read.

    Raises:
        ConfigError: it is a GGUF file, or quantised, or of an unknown architecture.
        ModelNotFoundError, WeightsError: as `open_model`.
    """
    path = resolve_model(model, hub=hub)
    if path.is_file():
        raise ConfigError(
            f"model {path} is a GGUF file; a directory in Hugging Face layout is needed."
        )
    raw = read_fields(path)
    if quantization_config(raw, path) is not None:
        raise ConfigError(f"model {path} is quantised already; its float checkpoint is needed.")
    config = read_config(path, None, None)
    files = open_files(path, raw)
    leaves = abstract_leaves(abstract_decoder(config.spec, FLOAT32)[1], config.spec)
    source = checked_tensors(files, config, leaves).source
    return FloatModel(path, raw, config, files, source, tuple(_layers(config)))


def _layers(config: ModelConfig) -> list[Layer]:
    spec, found = config.spec, []
    for number, group in enumerate(spec.groups):
        for place, layer in enumerate(group.pattern):
            for repetition, index in enumerate(spec.numbers(number, place)):
                one = _single(layer, repetition)
                leaves = layer_leaves(one, spec.width)
                transforms = transforms_of(leaves, config.weights)
                found.append(Layer(index, one, leaves, transforms))
    return sorted(found, key=lambda layer: layer.number)


def _single(layer: LayerSpec, repetition: int) -> LayerSpec:
    """The layer of one repetition."""
    attention = layer.attention
    for name in ("rope", "window"):
        given = getattr(attention, name)
        if isinstance(given, tuple):
            attention = dataclasses.replace(attention, **{name: given[repetition]})
    return dataclasses.replace(layer, attention=attention)


def layer_leaves(spec: LayerSpec, width: int) -> dict[str, Leaf]:
    """The parameters of a layer, in float32, under the names that families declare."""
    state = nnx.split(abstract_layer(spec, width))[1]
    return {
        leaf_name(path): _leaf(leaf_name(path), variable)
        for path, variable in nnx.to_flat_state(state)
    }


def abstract_layer(spec: LayerSpec, width: int, weight_format: WeightFormat | None = None) -> Any:
    """A layer with shapes in place of arrays."""
    chosen = weight_format or Dense()
    return nnx.eval_shape(lambda: DecoderLayer(spec, width, dtype=FLOAT32, weight_format=chosen))


def _leaf(name: str, variable: nnx.Variable) -> Leaf:
    declared = f"layers.{name}"
    if isinstance(variable, Weight):
        return Leaf(variable.matrix, declared, variable.format)
    value = variable.get_value()
    return Leaf(Matrix(value.shape, value.dtype), declared)
