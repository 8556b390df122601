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

from jax_engine.config.engine_config import DEQUANTIZED, W8A8, HfOverrides, LoadFormat
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
    transforms_of,
    w8a8_formats,
    with_formats,
)
from jax_engine.models.model_config import ModelConfig
from jax_engine.models.pooling_heads import PoolingHead, random_head, read_head
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
        num_bytes: of all shares together.
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


def load_model(model: str | None = None, **settings: Any) -> LoadedModel:
    """`open_model`, then `ModelFiles.load`. Raises the errors of both."""
    return open_model(model, **settings).load()


def open_model(
    model: str | None = None,
    *,
    dtype: Any = jnp.float32,
    load_format: LoadFormat = "auto",
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
        max_model_len: checked against the model's longest context before any weight is read.
        quantization: the method by which the checkpoint was quantised; None: as it says itself.
            DEQUANTIZED: weights are held as numbers of `dtype`. W8A8: those of layers are rounded
            to int8 with a scale for each row, and inputs for each token.
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
    config = read_config(source, gguf, hf_overrides)
    check_max_model_len(config, max_model_len)
    spec = config.spec.for_length(max_model_len or config.max_context_len)
    if enable_expert_parallel:
        spec = with_dealt_experts(spec)
    if in_order_of_devices and tensor_parallel_size == 1:
        spec = in_leaves(spec)
    config = dataclasses.replace(config, spec=spec)
    graphdef, state = abstract_decoder(spec, dtype, batch_invariant)
    leaves = abstract_leaves(state, spec)
    tensors, kv_scales = None, None
    if load_format != "dummy":
        tensors = checked_tensors(open_source(source, gguf, config, quantization), config, leaves)
        starts = starts_of_layers(tensors.transforms.values())
        kv_scales = read_scales(tensors.source, starts, spec)
    num_parameters = sum(math.prod(leaf.matrix.shape) for leaf in leaves.values())
    whole, of_whole = None, sum(leaf.num_bytes for leaf in leaves.values())
    layers = layers_of_stages(spec.num_layers, stage[1])[stage[0]]
    if stage[1] > 1:
        whole, spec = config, staged(spec, layers)
        config = dataclasses.replace(config, spec=spec)
        graphdef, state = abstract_decoder(spec, dtype, batch_invariant)
        leaves = abstract_leaves(state, spec)
        if tensors is not None:
            transforms = transforms_of(leaves, config.weights)
            tensors = dataclasses.replace(tensors, transforms=transforms)
        if kv_scales is not None:
            kv_scales = kv_scales[layers.start : layers.stop]
    of_stage = sum(leaf.num_bytes for leaf in leaves.values())
    share, shares = spec, None
    coded = _coded(quantization, tensors, leaves)
    if tensor_parallel_size > 1:
        rank, size = own_rank(), tensor_parallel_size
        check_size(spec, size)
        cuts = cuts_of(shapes_of(leaves), spec, size)
        spec = with_whole_rows(spec, in_whole_rows(coded, cuts))
        share = divided(spec, size)
        held_by = DeviceMesh(size, spec.has_latents) if rank is None else OneOfMany(size, rank)
        graphdef, state = abstract_decoder(share, dtype)
        shares = shares_of(held_by, spec, leaves, abstract_leaves(state, share))
        coded = _coded(quantization, tensors, shares.leaves, shares)
    own = leaves if shares is None else shares.leaves
    if coded and batch_invariant:
        raise ConfigError(
            "batch_invariant needs weights that are held as numbers on this device, and these are "
            f"codes (quantization={quantization!r}): give quantization={DEQUANTIZED!r}, or leave "
            "batch_invariant out"
        )
    if coded:
        graphdef, state = with_formats(graphdef, state, coded)
        own = abstract_leaves(state, share)
    mesh = None
    if shares is not None:
        shares = dataclasses.replace(shares, leaves=own)
        state = jax.tree.map(shares.mesh.abstract, state)
        mesh, held, heads = _held(spec, share, shares.mesh)
        config = dataclasses.replace(config, spec=held, whole=spec)
        if whole is not None:
            whole = dataclasses.replace(whole, spec=divided(whole.spec, tensor_parallel_size))
        if kv_scales is not None:
            kv_scales = kv_scales[:, :, heads]
    abstract = LoadedModel(
        config=config,
        graphdef=graphdef,
        params=state,
        source=source,
        num_parameters=num_parameters,
        num_bytes=sum(leaf.num_bytes for leaf in own.values()) * tensor_parallel_size,
        head=_head(config, tensors, seed),
        kv_scales=kv_scales,
        mesh=mesh,
        whole=whole,
        shares=shares,
    )
    if this_device().in_host_memory:
        what = f"{num_parameters} parameters in {abstract.all_layers.spec.num_layers} layers"
        check_fits(what, abstract.num_bytes * of_whole // of_stage)  # all stages are in it
    return ModelFiles(abstract, own, gguf, tensors, seed)


def _coded(
    quantization: str | None,
    tensors: CheckedTensors | None,
    leaves: dict[str, Leaf],
    shares: Shares | None = None,
) -> Mapping[str, WeightFormat]:
    """The formats of those of a device's leaves that it holds as codes.

    Args:
        shares: how several devices share the model; None: one has all of it.
    """
    if quantization == W8A8:
        return w8a8_formats(leaves)
    if tensors is None or quantization == DEQUANTIZED:
        return {}
    made_of: Mapping[str, Transform] = tensors.transforms
    if shares is not None:
        made_of = shares.transforms(made_of, rank=0)  # the shares are alike
    return coded_formats(tensors.source, leaves, made_of)


def _held(
    spec: ModelSpec, share: ModelSpec, held_by: DeviceMesh | OneOfMany
) -> tuple[DeviceMesh | None, ModelSpec, np.ndarray]:
    """The devices of this process that share a model if there are several, what they hold of it
    together, and which of its KV heads.
    """
    if isinstance(held_by, DeviceMesh):
        held = with_repeated_heads(spec, held_by.size)
        heads = np.arange(held.num_kv_heads) * spec.num_kv_heads // held.num_kv_heads
        return held_by, held, heads
    return None, share, kv_heads(spec.attentions[0], held_by.size, held_by.rank)


def check_division(
    model: str | None,
    *,
    load_format: LoadFormat = "auto",
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
    spec = read_config(source, open_gguf(source) if source.is_file() else None, hf_overrides).spec
    if enable_expert_parallel:
        spec = with_dealt_experts(spec)
    layers_of_stages(spec.num_layers, num_stages)
    check_size(spec, tensor_parallel_size)


def _find(model: str | None, load_format: LoadFormat, hub: HubOptions) -> Path:
    """The model's directory or file. Raises ConfigError if it is not of this format."""
    if load_format not in get_args(LoadFormat):
        known = ", ".join(get_args(LoadFormat))
        raise ConfigError(f"load_format must be one of {known}; got {load_format!r}.")
    source = resolve_model(model, config_only=load_format == "dummy", hub=hub)
    wants_gguf, is_gguf = load_format == "gguf", source.is_file()
    if load_format in ("safetensors", "sharded_state", "gguf") and wants_gguf != is_gguf:
        kind = "a GGUF file" if is_gguf else "a directory"
        raise ConfigError(f"load_format={load_format!r}, but {source} is {kind}.")
    return source


def _head(config: ModelConfig, tensors: CheckedTensors | None, seed: int) -> PoolingHead | None:
    """The model's head for scores, if it has one: random where there are no tensors."""
    if config.head is None:
        return None
    if tensors is None:
        return random_head(config.head, config.hidden_size, seed)
    return read_head(tensors.source, config.head, config.hidden_size)


def abstract_decoder(
    spec: ModelSpec, dtype: Any, batch_invariant: bool = False
) -> tuple[Any, nnx.State]:
    """Graph and state of the decoder, with shapes in place of arrays, in this device's formats."""
    dtype = jnp.dtype(dtype)
    formats = formats_for(dtype, batch_invariant)
    decoder = nnx.eval_shape(lambda: Decoder(spec, dtype=dtype, formats=formats))
    graphdef, state = nnx.split(decoder)
    return graphdef, state
