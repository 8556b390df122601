"""Scales the inputs of a layer's matrices, as AWQ or SmoothQuant choose the scales."""

import logging
from collections.abc import Callable, Collection, Mapping

import numpy as np

from jax_engine.errors import ConfigError, WeightsError
from jax_engine.quantize import awq, smoothing
from jax_engine.quantize.folding import Fold, folds_of
from jax_engine.quantize.grids import Grid
from jax_engine.quantize.layers import FloatModel, Layer
from jax_engine.quantize.options import Options
from jax_engine.quantize.statistics import Inputs

Tensors = dict[str, np.ndarray]
Choose = Callable[[list[np.ndarray], Inputs, Callable[[np.ndarray], np.ndarray]], np.ndarray]

logger = logging.getLogger(__name__)


def chooser(options: Options, grid: Grid, group: Callable[[int], int]) -> Choose | None:
    """How scales are chosen; None: nothing is scaled."""
    if options.algorithm == "awq":
        return lambda weights, inputs, possible: awq.best_scales(
            weights, inputs, grid, group(weights[0].shape[1]), possible
        )
    strength = options.smoothing_strength
    if strength is None:
        return None
    return lambda weights, inputs, possible: smoothing.best_scales(
        weights, inputs, grid, strength, possible
    )


def possible_folds(
    model: FloatModel, layer: Layer, chosen: Collection[str]
) -> dict[str, Fold | str]:
    """As `folds_of`, with names in the files. What `ignore` names stays as it is.

    Args:
        chosen: the matrices that are quantised.
    """
    found = folds_of(layer)
    for parameter, fold in found.items():
        if isinstance(fold, str):
            continue
        makers = tuple(model.name_in_file(name) for name in fold.makers)
        matrices = [name for name in makers if len(model.files.shape(name)) > 1]
        matrices += readers(model, layer, parameter)
        ignored = [name for name in matrices if name not in chosen]
        found[parameter] = f"{ignored[0]} is ignored" if ignored else Fold(makers, fold.one)
    return found


def check_folds(model: FloatModel, chosen: Collection[str]) -> None:
    """Says which inputs are not scaled. Raises ConfigError if none can be."""
    reasons: dict[str, list[int]] = {}
    scaled = 0
    for layer in model.layers:
        for parameter, fold in possible_folds(model, layer, chosen).items():
            if isinstance(fold, str):
                what = f"inputs of {parameter} are not scaled: {fold}"
                reasons.setdefault(what, []).append(layer.number)
            else:
                scaled += 1
    if not scaled:
        raise ConfigError(
            f"no inputs of {model.path} can be scaled ({'; '.join(reasons)}); use algorithm 'rtn' "
            "or 'gptq', without smoothing_strength."
        )
    for what, layers in reasons.items():
        logger.info("%s (%d of %d layers)", what, len(layers), len(model.layers))


def readers(model: FloatModel, layer: Layer, parameter: str) -> list[str]:
    """The matrices of a parameter, which have the same inputs."""
    return [model.name_in_file(name) for name, of in layer.matrices().items() if of == parameter]


def scale_inputs(
    model: FloatModel,
    layer: Layer,
    inputs: Mapping[str, Inputs],
    chosen: Collection[str],
    choose: Choose,
) -> tuple[Tensors, dict[str, Inputs]]:
    """The tensors that change, by names in the files, and the inputs that parameters then get."""
    changed: Tensors = {}
    found = dict(inputs)

    def values(name: str) -> np.ndarray:
        return changed[name] if name in changed else model.files.raw(name)

    for parameter, fold in possible_folds(model, layer, chosen).items():
        if isinstance(fold, str):
            continue
        _check_finite(inputs[parameter], parameter, layer)
        names = readers(model, layer, parameter)
        weights = [values(name).astype(np.float32) for name in names]
        made = values(fold.makers[0])
        scales = choose(weights, inputs[parameter], lambda s: fold.possible(made, s))  # noqa: B023
        changed |= {name: x * scales for name, x in zip(names, weights, strict=True)}
        changed |= {name: fold.divided(values(name), scales) for name in fold.makers}
        found[parameter] = inputs[parameter].divided(scales)
    return changed, found


def _check_finite(inputs: Inputs, parameter: str, layer: Layer) -> None:
    if not np.isfinite(inputs.products).all():
        raise WeightsError(
            f"calibration: the inputs of {parameter} of layer {layer.number} are not finite."
        )
