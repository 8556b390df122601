"""Scales of the inputs of a layer's matrices, as AWQ or SmoothQuant choose them.

AWQ: inputs that are large get finer steps, and ranges are cut where that pays. Scales of inputs are
their mean sizes to the power of an exponent, of which a grid is tried. All matrices with the same
inputs share them (Lin et al., "AWQ", 2023). What is compared is the error of the products on the
calibration inputs; the paper compares that of a whole block.

SmoothQuant: large inputs are made smaller, and their columns larger. A row of inputs shares the
step of its 8-bit codes, so that one large input costs the others their precision. Input j is
divided by max |x_j|^a / max |w_j|^(1-a), with the strength a (Xiao et al., "SmoothQuant", 2023,
equation 4).

Both read the statistics of a matrix's inputs that calibration keeps. Columns of the matrix are
multiplied by the scales, and its inputs are divided by them. The division is folded into what makes
the inputs:

    a norm's weight, and its bias     if one matrix reads it
    the value's rows of qkv           if each query head has values of its own
    the up rows of a gated MLP        which the gate multiplies

The float model stays the same, and the checkpoint is an ordinary one.
"""

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from jax_engine.errors import ConfigError, WeightsError
from jax_engine.model_spec import MlpSpec
from jax_engine.quantize.float_model import FloatModel, Layer
from jax_engine.quantize.options import Options
from jax_engine.quantize.rounding import Coded, Grid, Shared, round_to_nearest
from jax_engine.weights.transforms import AddOne, Concatenate, Tensor, Transform, transform_of


class Inputs(NamedTuple):
    """What is known of the rows x of K numbers that a matrix has multiplied.

    Attributes:
        products: [K, K], the sum of x x^T: the Hessian.
        sizes: [K], the sum of |x|.
        largest: [K], the largest |x|.
        rows: [R, K], some of the rows.
    """

    products: Any
    sizes: Any
    largest: Any
    rows: Any

    def joined(self, more: "Inputs") -> "Inputs":
        """These rows and others, sums in float64."""
        return Inputs(
            self.products + np.asarray(more.products, np.float64),
            self.sizes + np.asarray(more.sizes, np.float64),
            np.maximum(self.largest, more.largest),
            np.concatenate([self.rows, more.rows]),
        )

    def divided(self, scales: np.ndarray) -> "Inputs":
        """Statistics of the inputs after division by `scales`."""
        return Inputs(
            self.products / np.outer(scales, scales),
            self.sizes / scales,
            self.largest / scales,
            self.rows / scales,
        )

    def errors(self, change: np.ndarray) -> np.ndarray:
        """The sum of squares of x @ change.T over all x, for each row of the change [N, K]."""
        narrow = change.astype(np.float32)
        products = self.products.astype(np.float32)
        return np.asarray(((narrow @ products) * narrow).sum(axis=-1, dtype=np.float64))


def no_inputs(num_inputs: int) -> Inputs:
    """Before the first row."""
    zeros = np.zeros(num_inputs)
    rows = np.zeros((0, num_inputs), np.float32)
    return Inputs(np.zeros((num_inputs, num_inputs)), zeros, zeros.astype(np.float32), rows)


QKV = "attention.qkv.weight"


class Fold(NamedTuple):
    """What makes the inputs of a parameter.

    Attributes:
        makers: tensors that are divided along their first axis; a weight, then perhaps its bias.
        one: what is added to them before they are used, as in Gemma's norms.
    """

    makers: tuple[str, ...]
    one: int = 0

    def divided(self, values: np.ndarray, scales: np.ndarray) -> np.ndarray:
        """A maker divided: a vector in its dtype, a matrix, which is quantised, in float32."""
        whole = values.astype(np.float32) + np.float32(self.one)
        divided = whole / scales.reshape(-1, *(1,) * (whole.ndim - 1)) - np.float32(self.one)
        return np.asarray(divided.astype(values.dtype) if values.ndim == 1 else divided)

    def possible(self, weight: np.ndarray, scales: np.ndarray) -> np.ndarray:
        """The scales that are left when the divided weight is rounded to its dtype."""
        if weight.ndim > 1:
            return scales
        one = np.float32(self.one)
        before, after = (
            values.astype(np.float32) + one for values in (weight, self.divided(weight, scales))
        )
        usable = (before * after > 0) & np.isfinite(after)
        return np.where(usable, before, 1) / np.where(usable, after, np.float32(1))


def folds_of(layer: Layer) -> dict[str, Fold | str]:
    """For each matrix its fold, in the order of the layer, or why its inputs cannot be scaled."""
    spec = layer.spec
    assert isinstance(spec.mlp, MlpSpec)
    attention, first = spec.attention, "mlp.gate_up.weight" if spec.mlp.gated else "mlp.up.weight"
    found: dict[str, Fold | str] = {}
    shared = spec.parallel and spec.mlp_norm is None
    found[QKV] = "the norm has other readers" if shared else _norm(layer, "input_norm")
    if attention.num_heads != attention.num_kv_heads:
        found["attention.o.weight"] = "query heads share values"
    elif attention.clip is not None:
        found["attention.o.weight"] = "values are clipped"
    else:
        found["attention.o.weight"] = _rows(layer, "attention.qkv", 3)
    found[first] = "the norm has other readers" if shared else _norm(layer, "mlp_norm")
    if not spec.mlp.gated or spec.mlp.activation == "clipped_swiglu":
        found["mlp.down.weight"] = "the activation is not linear"
    else:
        found["mlp.down.weight"] = _rows(layer, "mlp.gate_up", 2)
    return found


def _parts(layer: Layer, name: str) -> Iterator[Transform]:
    for end in ("weight", "bias"):
        if f"{name}.{end}" in layer.transforms:
            yield layer.transforms[f"{name}.{end}"]


def _norm(layer: Layer, norm: str) -> Fold | str:
    names, one = [], 0
    for made in _parts(layer, norm):
        if isinstance(made, AddOne):
            one, made = made.one, transform_of(made.part)
        if not isinstance(made, Tensor):
            return "the norm stores nothing"
        names.append(made.name.format(**layer.words))
    if not names:
        return "no norm is before it"
    used = [*layer.tensors()]
    if any(used.count(name) > 1 for name in names):
        return "the norm has other readers"
    return Fold(tuple(names), one)


def _rows(layer: Layer, maker: str, count: int) -> Fold | str:
    """The last of `count` tensors that a matrix, and its bias, are made of."""
    names = []
    for made in _parts(layer, maker):
        if not isinstance(made, Concatenate) or len(made.parts) != count:
            return "the product before is not a tensor of its own"
        last = transform_of(made.parts[-1])
        if not isinstance(last, Tensor):
            return "the product before is not a tensor of its own"
        names.append(last.name.format(**layer.words))
    return Fold(tuple(names))


EXPONENTS = [step / 20 for step in range(20)]  # with 0 nothing is scaled
SHRINKS = [1 - step / 20 for step in range(11)]  # of the extremes of a group: 1 to 0.5
LEAST_SIZE = 1e-4  # sizes of inputs below this part of the largest count as this


def best_awq_scales(
    weights: Sequence[np.ndarray],
    inputs: Inputs,
    grid: Grid,
    group: int,
    possible: Callable[[np.ndarray], np.ndarray] = np.asarray,
) -> np.ndarray:
    """Scales float32[K] of the inputs of matrices float32[N, K].

    Args:
        possible: the scales that can be had in place of wanted ones.
    """
    candidates = [possible(awq_scales(inputs, exponent)) for exponent in EXPONENTS]
    errors = [awq_error(weights, inputs, grid, group, scales) for scales in candidates]
    return candidates[int(np.argmin(errors))]


def awq_scales(inputs: Inputs, exponent: float) -> np.ndarray:
    """The sizes of inputs to this power, the middle between the extremes at one."""
    sizes = np.maximum(
        inputs.sizes, max(LEAST_SIZE * inputs.sizes.max(), np.finfo(np.float32).tiny)
    )
    powers = sizes**exponent
    return np.asarray((powers / np.sqrt(powers.max() * powers.min())).astype(np.float32))


def awq_error(
    weights: Sequence[np.ndarray], inputs: Inputs, grid: Grid, group: int, scales: np.ndarray
) -> float:
    """The sum of the squared errors of all outputs, if columns are scaled and then rounded."""
    found = 0.0
    for weight in weights:
        numbers = round_to_nearest(weight * scales, grid, group).numbers(grid)
        found += float(inputs.errors(numbers / scales - weight).sum())
    return found


def cut(weight: np.ndarray, inputs: Inputs, grid: Grid, group: int) -> Coded:
    """Codes with the extremes of groups shrunk as the error of the product is least.

    Groups are looked at one by one, as if the others had no error. A row whose error is larger in
    the end is rounded without.
    """
    plain = round_to_nearest(weight, grid, group)
    grouped = weight.reshape(len(weight), -1, group)
    count = grouped.shape[1]
    each = np.arange(count)
    blocks = inputs.products.reshape(count, group, count, group)
    own = blocks[each, :, each].astype(np.float32)  # [G, g, g]
    least = np.full(grouped.shape[:2], np.inf)
    scales, zeros = plain.scales.copy(), plain.zeros.copy()
    for shrink in SHRINKS:
        shared = grid.choose(grouped * np.float32(shrink))
        change = (grid.decode(grid.encode(grouped, shared), shared) - grouped).swapaxes(0, 1)
        errors = ((change @ own) * change).sum(axis=-1).T
        better = errors < least
        least = np.where(better, errors, least)
        scales, zeros = (
            np.where(better, shared.scales, scales),
            np.where(better, shared.zeros, zeros),
        )
    codes = grid.encode(grouped, Shared(scales, zeros)).reshape(weight.shape)
    found = Coded(codes, scales, zeros, plain.groups)
    worse = inputs.errors(found.numbers(grid) - weight) > inputs.errors(
        plain.numbers(grid) - weight
    )
    for new, old in zip(found[:3], plain[:3], strict=True):
        new[worse] = old[worse]
    return found


LARGEST_CODE = np.float32(127)  # a code of activations


def best_smoothquant_scales(
    weights: Sequence[np.ndarray],
    inputs: Inputs,
    grid: Grid,
    strength: float,
    possible: Callable[[np.ndarray], np.ndarray] = np.asarray,
) -> np.ndarray:
    """The scales float32[K], or ones if products of codes are no better with them.

    Args:
        possible: the scales that can be had in place of wanted ones.
    """
    smooth = possible(smoothquant_scales(weights, inputs, strength))
    ones = np.ones_like(smooth)
    errors = [smoothquant_error(weights, inputs, grid, scales) for scales in (ones, smooth)]
    return smooth if errors[1] < errors[0] else ones


def smoothquant_scales(
    weights: Sequence[np.ndarray], inputs: Inputs, strength: float
) -> np.ndarray:
    """An input that is always zero, or has no weight, keeps its size."""
    largest = np.max([np.abs(weight).max(axis=0) for weight in weights], axis=0)
    unused = (inputs.largest == 0) | (largest == 0)
    x, w = (np.where(unused, np.float32(1), sizes) for sizes in (inputs.largest, largest))
    return np.asarray((x**strength / w ** (1 - strength)).astype(np.float32))


def smoothquant_error(
    weights: Sequence[np.ndarray], inputs: Inputs, grid: Grid, scales: np.ndarray
) -> float:
    """The sum of the squared errors of products of codes, on the rows that are kept."""
    x = rounded_rows(inputs.rows / scales)
    found = 0.0
    for weight in weights:
        numbers = round_to_nearest(weight * scales, grid, weight.shape[1]).numbers(grid)
        found += float(np.square(x @ numbers.T - inputs.rows @ weight.T).sum(dtype=np.float64))
    return found


def rounded_rows(x: np.ndarray) -> np.ndarray:
    """Activations float32[R, K] in codes of 8 bits, each row with a scale of its own."""
    steps = np.abs(x).max(axis=1, keepdims=True) / LARGEST_CODE
    steps = np.where(steps == 0, np.float32(1), steps)
    return np.asarray(np.rint(x / steps) * steps)


Tensors = dict[str, np.ndarray]
Choose = Callable[[list[np.ndarray], Inputs, Callable[[np.ndarray], np.ndarray]], np.ndarray]

logger = logging.getLogger(__name__)


def chooser(options: Options, grid: Grid, group: Callable[[int], int]) -> Choose | None:
    """How scales are chosen; None: nothing is scaled."""
    if options.algorithm == "awq":
        return lambda weights, inputs, possible: best_awq_scales(
            weights, inputs, grid, group(weights[0].shape[1]), possible
        )
    strength = options.smoothing_strength
    if strength is None:
        return None
    return lambda weights, inputs, possible: best_smoothquant_scales(
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
