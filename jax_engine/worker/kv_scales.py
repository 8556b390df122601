"""The scales of a quantised KV cache: a number for each layer, keys or values, and KV head.

A key or value is divided by its scale when it is written, and multiplied by it when it is read. A
scale comes from the checkpoint, which may have one for keys and one for values of each layer. Else
it is 1 in a cache of float8_e4m3fn, as in vLLM: these floats have a range of their own. Integers
have none. So the scales of an int8 cache are measured: the model reads one made-up text, always the
same, and each head's largest number becomes the code LARGEST / HEADROOM.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.typing import DTypeLike
from jaxtyping import Float, Float32, Int

from jax_engine.layers.batch import one_sequence
from jax_engine.models.config import ModelConfig
from jax_engine.models.load import LoadedModel
from jax_engine.operations import this_device
from jax_engine.parallel.mesh import SHARE, WHOLE
from jax_engine.worker.kv_cache import kv_cache_shape

LARGEST = {"float8_e4m3fn": 448.0, "int8": 127.0}
HEADROOM = 1.25  # real text has larger numbers than the made-up one; what is still larger is cut
CALIBRATION_TOKENS = 256
SMALLEST = 1e-6  # the scale of a head whose numbers are all zero


def scales_shape(config: ModelConfig, cache_dtype: DTypeLike) -> jax.ShapeDtypeStruct | None:
    """[L, kv, K] in float32; None for a cache that is not quantised."""
    if jnp.dtype(cache_dtype).name not in LARGEST:
        return None
    layers, kv, _, heads, _, _ = kv_cache_shape(config, 1, 1)
    return jax.ShapeDtypeStruct((layers, kv, heads), jnp.float32)


def scales_for(
    model: LoadedModel, cache_dtype: DTypeLike, *, dtype: DTypeLike, max_model_len: int
) -> jax.Array | None:
    """The scales of a cache for a loaded model; None if it is not quantised.

    Args:
        dtype: The dtype of activations.
    """
    shape = scales_shape(model.config, cache_dtype)
    if shape is None:
        return None
    name = jnp.dtype(cache_dtype).name
    known = np.full(shape.shape, np.nan, np.float32)
    if model.kv_scales is not None:  # those of checkpoints are for float8
        known[...] = model.kv_scales * (LARGEST["float8_e4m3fn"] / LARGEST[name])
    missing = np.isnan(known)
    if name == "int8" and missing.any():
        largest = _largest(model, dtype, min(CALIBRATION_TOKENS, max_model_len))
        measured = np.maximum(largest * (HEADROOM / LARGEST[name]), SMALLEST)
        known = np.where(missing, measured, known)
    return jnp.asarray(np.where(np.isnan(known), 1.0, known), jnp.float32)


def calibration_text(vocab_size: int, length: int) -> Int[np.ndarray, " T"]:
    """Token ids that jump through the whole vocabulary."""
    return (np.arange(length, dtype=np.uint64) * 2654435761 % 2**32 % vocab_size).astype(np.int32)


def _largest(model: LoadedModel, dtype: DTypeLike, length: int) -> Float32[np.ndarray, "L kv K"]:
    """The largest magnitude of each head's keys and values in the calibration text."""
    spec = model.config.spec
    tokens = jnp.asarray(calibration_text(model.config.vocab_size, length))

    def measure(graphdef_and_params: Any, tokens: Any) -> Float[jax.Array, "L kv K"]:
        decoder = nnx.merge(*graphdef_and_params)
        attentions = decoder.spec.attentions  # of one device's share
        batch, cache = one_sequence(attentions, spec.num_layers, length, dtype)
        _, cache = decoder(tokens, batch, cache)
        largest: jax.Array = jnp.abs(cache.astype(jnp.float32)).max(axis=(2, 4, 5))
        return largest

    options: dict[str, Any] = {"compiler_options": this_device().compiler_options}
    if model.mesh is None:
        run = jax.jit(measure, **options)
    else:
        run = model.mesh.compiled(measure, (SHARE, WHOLE), model.mesh.kv_scales, **options)
    return np.asarray(run((model.graphdef, model.params), tokens))
