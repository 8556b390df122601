"""The scales that a checkpoint has for an 8-bit KV cache, of keys and of values in each layer.

They are tensors `k_scale` and `v_scale` of a layer's attention, as vLLM, compressed-tensors and
ModelOpt write them: of one number, or of one for each KV head. They belong to a cache of
float8_e4m3fn: the largest key that calibration has seen is 448 times the scale.
"""

import math
import re
from collections.abc import Iterable

import numpy as np
from jaxtyping import Float32

from jax_engine.errors import WeightsError
from jax_engine.model_spec import ModelSpec
from jax_engine.weights.tensor_source import TensorSource

# Endings of the names of these tensors; and of the scales of queries and of the weights of values,
# which no kernel here quantises.
SCALES = (
    ".k_scale",
    ".v_scale",
    ".q_scale",
    ".prob_scale",
    "k_proj.output_scale",
    "v_proj.output_scale",
)
_NAMES = re.compile(
    r"(\d+)\.(?:\w+\.)*?(?:(?:attn\.|[kv]_proj\.)?([kv])_scale|([kv])_proj\.output_scale)"
)


def read_scales(
    source: TensorSource, starts: Iterable[str], spec: ModelSpec
) -> Float32[np.ndarray, "L kv K"] | None:
    """The scales in a checkpoint, NaN where it has none; None if it has none at all.

    Args:
        starts: What the names of layers' tensors begin with, before the layer's number.

    Raises:
        WeightsError: A scale is not positive, or has another shape than its layer.
    """
    kv, heads, _ = spec.cached
    scales = np.full((spec.num_layers, kv, heads), np.nan, np.float32)
    for name in source.names():
        start = next((one for one in starts if name.startswith(one)), None)
        match = None if start is None else _NAMES.fullmatch(name.removeprefix(start))
        if match is None or int(match[1]) >= spec.num_layers:
            continue
        which = "kv".index(match[2] or match[3])
        if which < kv:
            scales[int(match[1]), which] = _read(source, name, heads)
    return None if np.isnan(scales).all() else scales


def _read(source: TensorSource, name: str, heads: int) -> Float32[np.ndarray, " K"]:
    shape = source.shape(name)
    if math.prod(shape) not in (1, heads):
        raise WeightsError(
            f"{source.describe(name)}: expected one scale, or one for each of {heads} KV heads, "
            f"found shape {shape}."
        )
    values = np.empty(shape, np.float32)
    source.read_into(name, values)
    if not (np.isfinite(values) & (values > 0)).all():
        raise WeightsError(
            f"{source.describe(name)}: scales of the KV cache must be positive and finite, "
            f"found {values.min():g}."
        )
    return np.broadcast_to(values.reshape(-1), heads)
