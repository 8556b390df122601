"""Runs the engine's decoder one layer at a time, and records the inputs of each matrix.

What a layer reads was computed by quantised layers before it, so that a layer also makes up for
their errors. Only one layer's weights are in memory, and the residual stream of all samples. Codes
of activations are not simulated.

The samples are pieces of a text, of one length. `Recorded` is a weight format that records in the
compiled function what its products get. A function that is traced inside `recording()` finds the
records there, and returns them.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Float, Int

from jax_engine.errors import ConfigError
from jax_engine.layers.attention import LayerNumbers
from jax_engine.layers.batch import one_sequence
from jax_engine.model_spec import LayerGroup
from jax_engine.models.checkpoints.file_schema import read_text
from jax_engine.models.decoder import Decoder
from jax_engine.models.leaves import Leaf, abstract_leaves, fill_state, leaf_name, transforms_of
from jax_engine.quantize.float_model import FLOAT32, FloatModel, Layer, abstract_layer
from jax_engine.quantize.input_scales import (
    QKV,
    Inputs,
    check_folds,
    chooser,
    cut,
    no_inputs,
    scale_inputs,
)
from jax_engine.quantize.options import Options
from jax_engine.quantize.rounding import Coded, Grid, round_to_nearest, solve
from jax_engine.quantize.shards import read_shard
from jax_engine.tokenization.tokenizer import load_tokenizer
from jax_engine.weights.dense import Dense
from jax_engine.weights.format import VALUES, Formats, Weight
from jax_engine.weights.tensor_source import TensorSource
from jax_engine.weights.transforms import Transform

LEAST = 8  # tokens of a text


def calibration_tokens(model: Path, options: Options, max_length: int) -> np.ndarray:
    """Token ids int32[samples, length], drawn by the seed from the pieces of the text.

    Args:
        max_length: the model's longest context.

    Raises:
        ConfigError: the text is too short.
        WeightsError: the text or the tokenizer is unreadable.
    """
    text = default_text() if options.calibration is None else read_text(Path(options.calibration))
    tokens = np.array(load_tokenizer(str(model)).encode(text), np.int32)
    return pieces(tokens, options, max_length)


def pieces(tokens: np.ndarray, options: Options, max_length: int) -> np.ndarray:
    """Pieces of a text's tokens, in the text's order. A short text is one piece."""
    if len(tokens) < LEAST:
        raise ConfigError(f"calibration: the text has {len(tokens)} tokens, at least {LEAST}.")
    length = min(options.sample_length, max_length, len(tokens))
    all_pieces = tokens[: len(tokens) // length * length].reshape(-1, length)
    count = min(options.samples, len(all_pieces))
    rng = np.random.default_rng(options.seed)
    return all_pieces[np.sort(rng.permutation(len(all_pieces))[:count])]


def default_text() -> str:
    """The topics of Python's help: half a megabyte of English that every Python brings."""
    try:
        from pydoc_data.topics import topics
    except ImportError:
        raise ConfigError(
            "calibration: this Python has no help topics to calibrate with; name a file of text."
        ) from None
    return "\n\n".join(topics[name] for name in sorted(topics))


Records = dict[str, Inputs]
KEPT = 16  # rows of a sample that are kept, about
_records: ContextVar[Records | None] = ContextVar("records", default=None)


@contextlib.contextmanager
def recording() -> Iterator[Records]:
    """Collects what `Recorded` products get, by their names."""
    found: Records = {}
    token = _records.set(found)
    try:
        yield found
    finally:
        _records.reset(token)


@dataclasses.dataclass(frozen=True)
class Recorded(Dense):
    """`Dense` whose inputs are recorded.

    Attributes:
        name: name of the parameter.
    """

    name: str = ""

    def matmul(
        self,
        x: Float[Array, "T in"],
        weight: Weight,
        layer: Int[Array, ""] | None,
        num_rows: Int[Array, ""] | None,
        *,
        out_dtype: jnp.dtype,
    ) -> Float[Array, "T out"]:
        records = _records.get()
        if records is not None:
            wide = x.astype(jnp.float32)
            products = jnp.matmul(wide.T, wide, precision=jax.lax.Precision.HIGHEST)
            sizes, every = jnp.abs(wide), -(-len(x) // KEPT)
            records[self.name] = Inputs(
                products, sizes.sum(axis=0), sizes.max(axis=0), wide[every // 2 :: every]
            )
        return super().matmul(x, weight, layer, num_rows, out_dtype=out_dtype)


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
                before = totals.get(name) or no_inputs(len(one.sizes))
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
