"""Scales the inputs of a layer's matrices before these are rounded: AWQ's way, or SmoothQuant's."""

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from jax_engine.quantize import awq
from jax_engine.quantize.folding import Values, folds_of
from jax_engine.quantize.inputs import Inputs
from jax_engine.quantize.layers import Layer
from jax_engine.quantize.layouts import Layout


def scale_inputs(
    layer: Layer,
    values: Values,
    inputs: Mapping[str, Inputs],
    chosen: Collection[str],
    layout: Layout,
    smoothing: float | None,
) -> dict[str, Inputs]:
    """Changes the layer's tensors; returns what the inputs of its matrices are then.

    Args:
        values: tensors by declared names. Those that change are replaced.
        inputs: by parameter.
        chosen: tensors that are quantised.
        smoothing: SmoothQuant's exponent; None: AWQ's scales.
    """
    found = dict(inputs)
    readers: dict[str, list[str]] = {}
    for tensor, parameter in layer.matrices().items():
        readers.setdefault(parameter, []).append(tensor)
    for fold in folds_of(layer):
        names = readers[fold.reader]
        weights = [values[name].astype(np.float32) for name in names if name in chosen]
        if weights:
            known = found[fold.reader]
            if smoothing is None:
                group = layout.group(weights[0].shape[1])
                scales = awq.best_scales(weights, known, layout.grid, group)
            else:
                scales = smoothed(weights, known, smoothing)
            found[fold.reader] = known.divided_by(fold.apply(values, names, scales))
    return found


def smoothed(weights: Sequence[np.ndarray], inputs: Inputs, alpha: float) -> np.ndarray:
    """max |x_j|^alpha / max |w_j|^(1 - alpha) for each input j.

    An input that is always zero, or has no weight, keeps its size (Xiao et al., "SmoothQuant",
    2022, equation 4).
    """
    largest_x = inputs.largest
    largest_w = np.max([np.abs(one).max(axis=0) for one in weights], axis=0)
    either_is_zero = (largest_x == 0) | (largest_w == 0)
    largest_x, largest_w = (np.where(either_is_zero, 1, m) for m in (largest_x, largest_w))
    return np.asarray((largest_x**alpha / largest_w ** (1 - alpha)).astype(np.float32))
