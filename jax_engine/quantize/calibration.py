"""Runs the engine's decoder one layer at a time, and records the inputs of each matrix.

What a layer reads was computed by quantised layers before it, so that a layer also makes up for
their errors. Only one layer's weights are in memory, and the residual stream of all samples. Codes
of activations are not simulated.
"""

import dataclasses
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from jax_engine.errors import ConfigError
from jax_engine.layers.attention import LayerNumbers
from jax_engine.layers.batch import one_sequence
from jax_engine.model_spec import LayerGroup
from jax_engine.models.decoder import Decoder
from jax_engine.models.leaves import Leaf, abstract_leaves, fill_state, leaf_name, transforms_of
from jax_engine.quantize.awq import cut
from jax_engine.quantize.folding import QKV
from jax_engine.quantize.gptq import solve
from jax_engine.quantize.grids import Grid
from jax_engine.quantize.layers import FLOAT32, FloatModel, Layer, abstract_layer
from jax_engine.quantize.options import Options
from jax_engine.quantize.recording import Recorded, recording
from jax_engine.quantize.rounding import Coded, round_to_nearest
from jax_engine.quantize.samples import calibration_tokens
from jax_engine.quantize.scaling import check_folds, chooser, scale_inputs
from jax_engine.quantize.shard_source import read_shard
from jax_engine.quantize.statistics import Inputs, nothing
from jax_engine.weights.dense import Dense
from jax_engine.weights.format import VALUES, Formats, Weight
from jax_engine.weights.tensor_source import TensorSource
from jax_engine.weights.transforms import Transform


class Prepared(NamedTuple):
    """A layer that is about to be coded.

    Attributes:
        changed: tensors in place of the model's, by names in the files.
        code: codes a matrix, given its tensor's name.
    """

    changed: Mapping[str, np.ndarray]
    code: Callable[[str, np.ndarray], Coded]


class Calibrator:
    """The samples on their way through the layers.

    Attributes:
        streams: the residual stream of each, float32[T, E].

    Args:
        grid: how groups are coded.
        group: the columns of a group, for so many inputs.
        config: `quantization_config` of the finished shards.
        chosen: the matrices that are quantised.

    Raises:
        ConfigError: the model has experts, whose inputs are not recorded; no inputs can be scaled;
            the text is too short.
    """

    def __init__(
        self,
        model: FloatModel,
        options: Options,
        grid: Grid,
        group: Callable[[int], int],
        config: Mapping[str, Any],
        chosen: Collection[str],
    ) -> None:
        spec = model.config.spec
        if spec.experts or any(one.latent is not None for one in spec.attentions):
            raise ConfigError(
                f"calibration does not record the inputs of experts and latent attention, which "
                f"{model.path} has; use algorithm 'rtn', without smoothing_strength."
            )
        self._model, self._options, self._chosen = model, options, chosen
        self._choose = chooser(options, grid, group)
        if self._choose is not None:
            check_folds(model, chosen)
        self._grid, self._group, self._config = grid, group, config
        tokens = calibration_tokens(model.path, options, spec.max_context_len)
        self._length = tokens.shape[1]
        self.streams = _embedded(model, tokens)
        self._step = jax.jit(self._run_layer, static_argnums=0)
        self._recorded = jax.jit(self._record, static_argnums=0)

    def prepared(self, layer: Layer) -> Prepared:
        """Codes a layer's matrices by the inputs that they get, scaled where that is asked for."""
        inputs = self._inputs(layer)
        changed: Mapping[str, np.ndarray] = {}
        if self._choose is not None:
            changed, inputs = scale_inputs(self._model, layer, inputs, self._chosen, self._choose)
        parameter_of = {
            self._model.name_in_file(tensor): name for tensor, name in layer.matrices().items()
        }

        def code(tensor: str, values: np.ndarray) -> Coded:
            parameter = parameter_of[tensor]
            return self._code(values, parameter, inputs[parameter])

        return Prepared(changed, code)

    def _code(self, values: np.ndarray, parameter: str, inputs: Inputs) -> Coded:
        options, grid, group = self._options, self._grid, self._group(values.shape[1])
        if options.algorithm == "gptq":
            return solve(
                values,
                inputs.products,
                grid,
                group,
                damping=options.damping,
                act_order=options.act_order,
            )
        if options.algorithm == "awq" and parameter != QKV:
            return cut(values, inputs, grid, group)  # scores would magnify what is cut off
        return round_to_nearest(values, grid, group)

    def advance(self, layer: Layer, shard: Path) -> None:
        """Lets the samples pass the layer as the shard has it."""
        source = read_shard(shard, self._config, self._model.name_in_file)
        graphdef, state = _loaded(layer, source, self._model)
        for number, stream in enumerate(self.streams):
            self.streams[number] = np.asarray(self._step(graphdef, state, stream))

    def _inputs(self, layer: Layer) -> dict[str, Inputs]:
        """What the samples are when they come to the matrices, by parameter."""
        graphdef, state = _loaded(layer, self._model.source, self._model)
        totals: dict[str, Inputs] = {}
        for stream in self.streams:
            for name, one in self._recorded(graphdef, state, stream).items():
                before = totals.get(name) or nothing(len(one.sizes))
                totals[name] = before.joined(one)
        return totals

    def _run_layer(self, graphdef: Any, state: nnx.State, stream: Any) -> Any:
        """The residual stream after a layer."""
        layer = nnx.merge(graphdef, state)
        batch, kv_cache = one_sequence([layer.spec.attention], 1, self._length, FLOAT32)
        carry = (stream, jnp.zeros_like(stream), kv_cache)
        x, residual, _ = layer(carry, batch, LayerNumbers(jnp.int32(0), jnp.int32(0)))
        return x + residual

    def _record(self, graphdef: Any, state: nnx.State, stream: Any) -> Any:
        """What a layer's matrices get."""
        with recording() as records:
            self._run_layer(graphdef, state, stream)
        return records


def _loaded(layer: Layer, source: TensorSource, model: FloatModel) -> tuple[Any, nnx.State]:
    """Graph and state of a layer whose matrices record their inputs."""
    abstract = abstract_layer(layer.spec, model.config.spec.width)
    for path, node in nnx.iter_graph(abstract):
        if isinstance(node, Weight):
            node.set_metadata(
                format=Recorded(leaf_name(path[:-1] if path[-1] == "value" else path))
            )
    graphdef, state = nnx.split(abstract)
    return graphdef, _filled(state, layer.leaves, layer.transforms, source, layer.words)


def _embedded(model: FloatModel, tokens: np.ndarray) -> list[np.ndarray]:
    """What the first layer reads, for each sample."""
    config = model.config
    one_layer = (LayerGroup((model.layers[0].spec,), 1),)
    spec = dataclasses.replace(config.spec, groups=one_layer)
    decoder = nnx.eval_shape(
        lambda: Decoder(spec, dtype=FLOAT32, formats=Formats(Dense(), Dense()))
    )
    del decoder.groups, decoder.lm_head, decoder.norm  # what is read is the embedding's
    graphdef, state = nnx.split(decoder)
    leaves = abstract_leaves(state, spec)
    transforms = transforms_of(leaves, config.weights)
    state = _filled(state, leaves, transforms, model.source, {})
    length = tokens.shape[1]

    @jax.jit
    def embed(state: nnx.State, token_ids: Any) -> Any:
        batch, _ = one_sequence(spec.attentions, 1, length, FLOAT32)
        return nnx.merge(graphdef, state).embedded(token_ids, batch)

    return [np.asarray(embed(state, jnp.asarray(one))) for one in tokens]


def _filled(
    state: nnx.State,
    leaves: Mapping[str, Leaf],
    transforms: Mapping[str, Transform],
    source: TensorSource,
    words: Mapping[str, Any],
) -> nnx.State:
    arrays = {}
    for name, leaf in leaves.items():
        values = np.empty(leaf.matrix.shape, leaf.matrix.dtype)
        transforms[name].read_into(source, values, words)
        arrays[name] = {VALUES: jnp.asarray(values)}
    return fill_state(state, arrays)
