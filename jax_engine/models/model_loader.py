"""`load_model`: finds a model, reads its configuration, and loads its weights to the device."""

import dataclasses
import functools
import logging
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from jax_engine.config.engine_config import (
    DEQUANTIZED,
    W8A8,
    ConfigFormat,
    HfOverrides,
    LoadFormat,
)
from jax_engine.errors import ConfigError
from jax_engine.host_memory import check_fits
from jax_engine.model_spec import ModelSpec
from jax_engine.models.checkpoints.cache_scales import read_scales
from jax_engine.models.checkpoints.checkpoint import (
    CheckedTensors,
    check_max_model_len,
    checked_tensors,
    open_source,
    read_config,
    starts_of_layers,
)
from jax_engine.models.checkpoints.gguf import open_gguf
from jax_engine.models.checkpoints.resolve import HUB, HubOptions, resolve_model
from jax_engine.models.decoder import Decoder
from jax_engine.models.leaves import (
    Leaf,
    abstract_leaves,
    coded_formats,
    fill_state,
    in_whole_rows,
    rounded,
    transforms_of,
    w8a8_formats,
    with_formats,
)
from jax_engine.models.model_config import ModelConfig
from jax_engine.models.pooling_heads import PoolingHead, random_head, read_head
from jax_engine.models.token_head import ranking_ids
from jax_engine.models.weight_loader import Shares, load_leaves, random_leaves, shapes_of, shares_of
from jax_engine.operations import formats_for, this_device
from jax_engine.parallel.collectives import own_rank
from jax_engine.parallel.cuts import cuts_of, kv_heads
from jax_engine.parallel.mesh import DeviceMesh, OneOfMany
from jax_engine.parallel.partition import (
    check_size,
    divided,
    in_leaves,
    layers_of_stages,
    staged,
    with_dealt_experts,
    with_repeated_heads,
    with_whole_rows,
)
from jax_engine.weights.format import WeightFormat
from jax_engine.weights.rounded_source import ROUNDINGS
from jax_engine.weights.tensor_source import CodesSource, TensorSource
from jax_engine.weights.transforms import Transform

if TYPE_CHECKING:
    from jax_engine.models.checkpoints.gguf.gguf_file import GgufFile


logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class LoadedModel:
    """A decoder, ready for `nnx.merge(graphdef, params)` inside a compiled step.

    Attributes:
        params: the weights, as an nnx state of arrays on the default device; or only their shapes.
            With several devices each array has the shares of all: see `DeviceMesh.joined`.
        num_bytes: bytes of all shares together.
        source: the directory or GGUF file that it came from; the tokenizer is there too.
        head: the head for scores, with its weights; None: it generates text.
        kv_scales: the checkpoint's scales for an 8-bit KV cache, [L, kv, K]; NaN, or None for all,
            where it has none.
        mesh: the devices of this process that share the model; None: it has one. With several,
            the graph is one share's, and `config.spec` the whole model with a KV head for each. In
            a process that shares the model with others, both are the share's.
        whole: the configuration of all stages together, where `config` is that of one; else None.
        shares: how several devices share it, in this process or in others; None: one has all.
    """

    config: ModelConfig
    graphdef: Any
    params: nnx.State
    source: Path
    num_parameters: int
    num_bytes: int
    head: PoolingHead | None = None
    kv_scales: np.ndarray | None = None
    mesh: DeviceMesh | None = None
    whole: ModelConfig | None = None
    shares: Shares | None = None

    @property
    def all_layers(self) -> ModelConfig:
        """The configuration with the layers of all stages."""
        return self.whole or self.config


@dataclasses.dataclass(frozen=True)
class ModelFiles:
    """A model whose files were found and whose configuration was read, without its weights.

    Attributes:
        abstract: the model with shapes in place of weights: steps can be compiled for it.
        leaves: its parameters by name.
        gguf: the open GGUF file, or None for a directory.
        tensors: the source of the weights; None for random weights, drawn from `seed`.
    """

    abstract: LoadedModel
    leaves: Mapping[str, Leaf]
    gguf: "GgufFile | None"
    tensors: CheckedTensors | None
    seed: int

    def load(self) -> LoadedModel:
        """The same model with its weights on the device. Raises WeightsError, OutOfMemoryError."""
        started = time.perf_counter()
        model = self.abstract
        leaves, tensors, shares = self.leaves, self.tensors, model.shares
        if tensors is None:
            drawn = shares.random if shares else functools.partial(random_leaves, leaves)
            arrays = drawn(self.seed)
        elif shares is not None:
            arrays = shares.load(tensors.source, tensors.transforms)
        else:
            arrays = load_leaves(tensors.source, leaves, tensors.transforms)
        logger.info("weights of %s ready in %.1f s", model.source, time.perf_counter() - started)
        return dataclasses.replace(model, params=fill_state(model.params, arrays))


def _check_alone(tensor_parallel_size: int, num_stages: int) -> None:
    """Raises ConfigError if an encoder is to be divided."""
    sizes = {"tensor_parallel_size": tensor_parallel_size, "pipeline_parallel_size": num_stages}
    for name, size in sizes.items():
        if size > 1:
            raise ConfigError(
                f"{name} must be 1 for an encoder, got {size}: give data_parallel_size={size} for "
                "as many engines"
            )


def load_model(model: str | None = None, **settings: Any) -> LoadedModel:
    """`open_model`, then `ModelFiles.load`. Raises the errors of both."""
    return open_model(model, **settings).load()


def open_model(
    model: str | None = None,
    *,
    dtype: Any = jnp.float32,
    load_format: LoadFormat = "auto",
    config_format: ConfigFormat = "auto",
    seed: int = 0,
    max_model_len: int | None = None,
    hub: HubOptions = HUB,
    hf_overrides: HfOverrides | None = None,
    quantization: str | None = None,
    batch_invariant: bool = False,
    in_order_of_devices: bool = False,
    tensor_parallel_size: int = 1,
    stage: tuple[int, int] = (0, 1),
    enable_expert_parallel: bool = False,
) -> ModelFiles:
    """Finds a local directory, a GGUF file, a hub name, or with None the default model.

    Args:
        dtype: the dtype of weights and activations.
        load_format: "auto" detects the format; "dummy" draws random weights from `seed` and needs
            the configuration only.
        config_format: "hf" reads config.json, "mistral" params.json; "auto" detects which.
        max_model_len: checked against the model's longest context before any weight is read.
        quantization: the method by which the checkpoint was quantised; None: as it says itself.
            DEQUANTIZED: weights are held as numbers of `dtype`. W8A8: those of layers are rounded
            to int8 with a scale for each row, and inputs for each token. One of ROUNDINGS, of a
            checkpoint that is not quantised: those of layers are rounded as they are read.
        batch_invariant: products add in one order for any number of rows: see `make_batch`.
        in_order_of_devices: one device adds up as several do, which share a model: see `in_leaves`.
        tensor_parallel_size: the number of devices that share the model, or each stage of it.
        stage: which stage of the model this is, and of how many.
        enable_expert_parallel: they have whole experts, instead of a part of each.

    Raises:
        ModelNotFoundError: there is no such model here or on the hub.
        ConfigError: an unknown architecture or format, max_model_len beyond the model's,
            weights in codes with `batch_invariant`, or a number of devices that cannot share the
            model or that do not exist, or more stages than layers.
        WeightsError: a file is unreadable, or the tensors are not those of the configuration.
        OutOfMemoryError: the weights are larger than this machine's memory.
        MissingPackageError: a GGUF file (the default model is one) without the `gguf` package.
    """
    source = _find(model, load_format, hub)
    gguf = open_gguf(source) if source.is_file() else None
    config = read_config(source, gguf, hf_overrides, config_format)
    config = _for_length(config, max_model_len)
    if config.spec.is_encoder:
        _check_alone(tensor_parallel_size, stage[1])
    if enable_expert_parallel:
        config = dataclasses.replace(config, spec=with_dealt_experts(config.spec))
    if in_order_of_devices and tensor_parallel_size == 1:
        config = dataclasses.replace(config, spec=in_leaves(config.spec))
    whole = _abstract(config, dtype, batch_invariant)
    if load_format != "dummy":
        formats: Any = {"load_format": load_format, "config_format": config_format}
        whole = _with_tensors(whole, open_source(source, gguf, config, quantization, **formats))
        whole = _rounded(whole, quantization)
    layers = _stage(whole, stage)
    if tensor_parallel_size == 1:
        part = _in_codes(layers, quantization)
    else:
        part = _share(layers, tensor_parallel_size, quantization)
    abstract = LoadedModel(
        config=part.config,
        graphdef=part.graphdef,
        params=part.params,
        source=source,
        num_parameters=sum(math.prod(leaf.matrix.shape) for leaf in whole.leaves.values()),
        num_bytes=part.num_bytes * tensor_parallel_size,
        head=_head(part.config, part.tensors, source, seed),
        kv_scales=part.kv_scales,
        mesh=part.mesh,
        whole=part.all_layers,
        shares=part.shares,
    )
    if this_device().in_host_memory:
        what = f"{abstract.num_parameters} parameters in {config.spec.num_layers} layers"
        check_fits(what, abstract.num_bytes * whole.num_bytes // layers.num_bytes)  # of all stages
    return ModelFiles(abstract, part.leaves, gguf, part.tensors, seed)


@dataclasses.dataclass(frozen=True)
class _Part:
    """A part of a model, with shapes in place of weights: all of it, a stage, or a share of these.

    Attributes:
        params: the shapes, as `LoadedModel.params`.
        leaves: its parameters by name.
        tensors: the source of the weights of all devices that share this part.
        kv_scales, mesh, shares: as of `LoadedModel`.
        all_layers: as `LoadedModel.whole`.
    """

    config: ModelConfig
    dtype: Any
    batch_invariant: bool
    graphdef: Any
    params: nnx.State
    leaves: dict[str, Leaf]
    tensors: CheckedTensors | None = None
    kv_scales: np.ndarray | None = None
    mesh: DeviceMesh | None = None
    shares: Shares | None = None
    all_layers: ModelConfig | None = None

    @property
    def num_bytes(self) -> int:
        return sum(leaf.num_bytes for leaf in self.leaves.values())


def _for_length(config: ModelConfig, max_model_len: int | None) -> ModelConfig:
    """The configuration for contexts up to this length, or the model's longest if None."""
    check_max_model_len(config, max_model_len)
    spec = config.spec.for_length(max_model_len or config.max_context_len)
    return dataclasses.replace(config, spec=spec)


def _abstract(config: ModelConfig, dtype: Any, batch_invariant: bool) -> _Part:
    """The layers of a configuration, without a source of weights."""
    graphdef, params = abstract_decoder(config.spec, dtype, batch_invariant)
    leaves = abstract_leaves(params, config.spec)
    return _Part(config, dtype, batch_invariant, graphdef, params, leaves)


def _with_tensors(whole: _Part, source: TensorSource) -> _Part:
    """The whole model with its tensors, checked, and the scales of its KV cache."""
    tensors = checked_tensors(source, whole.config, whole.leaves)
    starts = starts_of_layers(tensors.transforms.values())
    kv_scales = read_scales(tensors.source, starts, whole.config.spec)
    return dataclasses.replace(whole, tensors=tensors, kv_scales=kv_scales)


def _rounded(whole: _Part, quantization: str | None) -> _Part:
    """The model with its layers' matrices as codes, if its numbers are to be rounded to some."""
    tensors, how = whole.tensors, ROUNDINGS.get(quantization or "")
    if tensors is None or how is None or isinstance(tensors.source, CodesSource):
        return whole
    source = rounded(tensors.source, whole.leaves, tensors.transforms, how)
    return dataclasses.replace(whole, tensors=dataclasses.replace(tensors, source=source))


def _stage(whole: _Part, stage: tuple[int, int]) -> _Part:
    """The layers of one stage of so many. Raises ConfigError for more stages than layers."""
    number, num_stages = stage
    config = whole.config
    layers = layers_of_stages(config.spec.num_layers, num_stages)[number]
    if num_stages == 1:
        return whole
    config = dataclasses.replace(config, spec=staged(config.spec, layers))
    part = _abstract(config, whole.dtype, whole.batch_invariant)
    part = dataclasses.replace(part, all_layers=whole.config)
    if whole.tensors is not None:
        transforms = transforms_of(part.leaves, config.weights)
        tensors = dataclasses.replace(whole.tensors, transforms=transforms)
        part = dataclasses.replace(part, tensors=tensors)
    if whole.kv_scales is not None:
        kv_scales = whole.kv_scales[layers.start : layers.stop]
        part = dataclasses.replace(part, kv_scales=kv_scales)
    return part


def shapes_on(mesh: DeviceMesh, config: ModelConfig, dtype: Any) -> LoadedModel:
    """A model that devices share, with shapes in place of weights: its steps can be compiled.

    Raises:
        ConfigError: so many devices cannot share it.
    """
    whole = _abstract(config, dtype, batch_invariant=False)
    part = _share(whole, mesh.size, None, mesh)
    return LoadedModel(
        config=part.config,
        graphdef=part.graphdef,
        params=part.params,
        source=Path(),
        num_parameters=sum(math.prod(leaf.matrix.shape) for leaf in whole.leaves.values()),
        num_bytes=part.num_bytes * mesh.size,
        mesh=mesh,
        shares=part.shares,
    )


def _share(
    part: _Part, size: int, quantization: str | None, described: DeviceMesh | None = None
) -> _Part:
    """One share of a part that `size` devices share. Raises ConfigError if they cannot."""
    rank, spec = own_rank(), part.config.spec
    check_size(spec, size)
    cuts = cuts_of(shapes_of(part.leaves), spec, size)
    spec = with_whole_rows(spec, in_whole_rows(_coded(part, quantization), cuts))
    mesh: DeviceMesh | OneOfMany
    if described is not None:
        mesh = described
    else:
        mesh = DeviceMesh(size, spec.has_latents) if rank is None else OneOfMany(size, rank)
    own = _abstract(_divided(part.config, size, spec), part.dtype, part.batch_invariant)
    shares = shares_of(mesh, spec, part.leaves, own.leaves)
    own = _in_codes(dataclasses.replace(own, tensors=part.tensors, shares=shares), quantization)
    held, heads = _held(spec, own.config.spec, mesh)
    all_layers = part.all_layers and _divided(part.all_layers, size)
    return dataclasses.replace(
        own,
        config=dataclasses.replace(part.config, spec=held, whole=spec),
        params=jax.tree.map(mesh.abstract, own.params),
        kv_scales=None if part.kv_scales is None else part.kv_scales[:, :, heads],
        mesh=mesh if isinstance(mesh, DeviceMesh) else None,
        shares=dataclasses.replace(shares, leaves=own.leaves),
        all_layers=all_layers,
    )


def _divided(config: ModelConfig, size: int, spec: ModelSpec | None = None) -> ModelConfig:
    """The configuration of one of `size` shares; with `spec` in place of its own."""
    return dataclasses.replace(config, spec=divided(spec or config.spec, size))


def _in_codes(part: _Part, quantization: str | None) -> _Part:
    """The part with those leaves in codes that this device holds so."""
    coded = _coded(part, quantization)
    if not coded:
        return part
    if part.batch_invariant:
        raise ConfigError(
            "batch_invariant needs weights that are held as numbers on this device, and these are "
            f"codes (quantization={quantization!r}): give quantization={DEQUANTIZED!r}, or leave "
            "batch_invariant out"
        )
    graphdef, params = with_formats(part.graphdef, part.params, coded)
    leaves = abstract_leaves(params, part.config.spec)
    return dataclasses.replace(part, graphdef=graphdef, params=params, leaves=leaves)


def _coded(part: _Part, quantization: str | None) -> Mapping[str, WeightFormat]:
    """The formats of those of a part's leaves that are held as codes."""
    if quantization == W8A8:
        return w8a8_formats(part.leaves)
    if part.tensors is None or quantization == DEQUANTIZED:
        return {}
    made_of: Mapping[str, Transform] = part.tensors.transforms
    if part.shares is not None:
        made_of = part.shares.transforms(made_of, rank=0)  # the shares are alike
    return coded_formats(part.tensors.source, part.leaves, made_of)


def _held(
    spec: ModelSpec, share: ModelSpec, mesh: DeviceMesh | OneOfMany
) -> tuple[ModelSpec, np.ndarray]:
    """What the devices of this process hold of a model together, and which of its KV heads."""
    if isinstance(mesh, DeviceMesh):
        held = with_repeated_heads(spec, mesh.size)
        return held, np.arange(held.num_kv_heads) * spec.num_kv_heads // held.num_kv_heads
    return share, kv_heads(spec.attentions[0], mesh.size, mesh.rank)


def check_division(
    model: str | None,
    *,
    load_format: LoadFormat = "auto",
    config_format: ConfigFormat = "auto",
    hub: HubOptions = HUB,
    hf_overrides: HfOverrides | None = None,
    tensor_parallel_size: int,
    num_stages: int,
    enable_expert_parallel: bool = False,
) -> None:
    """Reads a model's configuration, and refuses numbers that it cannot be divided by.

    So no process is started for a device or a stage that would have nothing.

    Raises:
        ConfigError: there are fewer layers than stages, or so many devices cannot share a stage.
        JaxEngineError: the configuration cannot be read: as `open_model`.
    """
    source = _find(model, load_format, hub)
    gguf = open_gguf(source) if source.is_file() else None
    spec = read_config(source, gguf, hf_overrides, config_format).spec
    if spec.is_encoder:
        _check_alone(tensor_parallel_size, num_stages)
    if enable_expert_parallel:
        spec = with_dealt_experts(spec)
    layers_of_stages(spec.num_layers, num_stages)
    check_size(spec, tensor_parallel_size)


def _find(model: str | None, load_format: LoadFormat, hub: HubOptions) -> Path:
    """The model's directory or file. Raises ConfigError if it is not of this format."""
    if load_format not in get_args(LoadFormat):
        known = ", ".join(get_args(LoadFormat))
        raise ConfigError(f"load_format must be one of {known}; got {load_format!r}.")
    source = resolve_model(
        model, config_only=load_format == "dummy", hub=hub, load_format=load_format
    )
    wants_gguf, is_gguf = load_format == "gguf", source.is_file()
    if load_format not in ("auto", "dummy") and wants_gguf != is_gguf:
        kind = "a GGUF file" if is_gguf else "a directory"
        raise ConfigError(f"load_format={load_format!r}, but {source} is {kind}.")
    return source


def _head(
    config: ModelConfig, tensors: CheckedTensors | None, source: Path, seed: int
) -> PoolingHead | None:
    """The model's head for scores, if it has one: random where there are no tensors."""
    if config.head is None:
        return None
    if tensors is None:
        head = random_head(config.head, config.hidden_size, seed)
    else:
        head = read_head(tensors.source, config.head, config.hidden_size, source)
    if config.head.ranking is None:
        return head
    reads = ranking_ids(config.head.ranking, source, config.vocab_size)
    return dataclasses.replace(head, reads=reads)


def abstract_decoder(
    spec: ModelSpec, dtype: Any, batch_invariant: bool = False
) -> tuple[Any, nnx.State]:
    """Graph and state of the decoder, with shapes in place of arrays, in this device's formats."""
    dtype = jnp.dtype(dtype)
    formats = formats_for(dtype, batch_invariant)
    decoder = nnx.eval_shape(lambda: Decoder(spec, dtype=dtype, formats=formats))
    graphdef, state = nnx.split(decoder)
    return graphdef, state
