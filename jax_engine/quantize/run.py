"""`quantize`: from a float checkpoint to a quantised one, one layer at a time."""

import dataclasses
import hashlib
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from jax_engine.errors import ConfigError, WeightsError
from jax_engine.models.checkpoints.resolve import HUB, HubOptions
from jax_engine.models.checkpoints.weight_layouts import WEIGHT_ENDS
from jax_engine.quantize.float_model import WEIGHT, FloatModel, Layer, open_float_model
from jax_engine.quantize.layouts import Layout, Tensors, layout_of
from jax_engine.quantize.options import GROUP_SIZES, OF_ROWS, Options
from jax_engine.quantize.rounding import Coded, round_to_nearest
from jax_engine.quantize.shards import Output

Coder = Callable[[str, np.ndarray], Coded]  # codes a matrix, given its tensor's name


def quantize(
    model: str, out: str, options: Options, *, hub: HubOptions = HUB, use_tqdm: bool = True
) -> Path:
    """Writes a quantised checkpoint into a new directory, and returns it.

    Interrupted, the same call goes on with the shards that are missing. The same input gives the
    same bytes.

    Args:
        model: a directory in Hugging Face layout with float weights, or a hub name.

    Raises:
        ConfigError: the model, the directory or an option does not fit; nothing is written.
        WeightsError: a tensor is unreadable or not finite, or the directory cannot be written.
    """
    float_model = open_float_model(model, hub)
    plan = make_plan(float_model, options)
    layout, config = plan.layout, plan.layout.config(plan.left_out)
    output = Output(Path(out), _request(float_model, options))
    output.check_space(plan.num_bytes)
    names = shard_names(len(float_model.layers) + 1)
    calibrator = None
    if options.calibrates:
        from jax_engine.quantize.calibration import Calibrator

        grid, group = layout.grid, layout.group
        calibrator = Calibrator(float_model, options, grid, group, config, plan.chosen)
    progress = tqdm(float_model.layers, desc="layers", unit="layer", disable=not use_tqdm)
    for layer, name in zip(progress, names, strict=False):
        if not output.is_finished(name):
            changed, code = ({}, plan.rounded) if calibrator is None else calibrator.prepared(layer)
            output.write(name, layer_tensors(float_model, plan, layer, changed, code))
        if calibrator is not None:
            calibrator.advance(layer, output.path / name)
    if not output.is_finished(names[-1]):
        output.write(names[-1], _others(float_model))
    output.finish(float_model.path, float_model.raw_config | {"quantization_config": config})
    return output.path


def shard_names(count: int) -> list[str]:
    """One for each layer, and the last one for everything else."""
    return [f"model-{number:05}-of-{count:05}.safetensors" for number in range(1, count + 1)]


@dataclasses.dataclass(frozen=True)
class Plan:
    """What becomes of the tensors.

    Attributes:
        chosen: names in the files of the matrices that are quantised.
        left_out: modules of layers that are not.
    """

    layout: Layout
    chosen: frozenset[str]
    left_out: tuple[str, ...]
    num_bytes: int

    def rounded(self, name: str, values: np.ndarray) -> Coded:
        """The matrix of codes that are nearest."""
        del name
        return round_to_nearest(values, self.layout.grid, self.layout.group(values.shape[1]))


def make_plan(model: FloatModel, options: Options) -> Plan:
    """Which matrices are quantised, and how. Raises ConfigError."""
    names = [model.name_in_file(one) for layer in model.layers for one in layer.matrices()]
    left_out = {name for name in names if _ignored(name, options.patterns)}
    chosen = [name for name in names if name not in left_out]
    if not chosen:
        raise ConfigError(f"ignore {options.ignore} leaves no matrix of {model.path} to quantise.")
    shapes = {name: model.files.shape(name) for name in chosen}
    layout = layout_of(options, _group_size(options, shapes))
    for name, shape in shapes.items():
        _check_shape(options, layout, name, shape)
    size = sum(_bytes(model, name, name in shapes) for name in model.files.names())
    modules = tuple(sorted(name.removesuffix(WEIGHT) for name in left_out))
    return Plan(layout, frozenset(chosen), modules, size)


def _ignored(name: str, patterns: Sequence[re.Pattern[str]]) -> bool:
    return any(pattern.search(name.removesuffix(WEIGHT)) for pattern in patterns)


def _group_size(options: Options, shapes: Mapping[str, tuple[int, ...]]) -> int:
    if options.group_size is not None:
        return options.group_size
    if options.format in OF_ROWS or options.format == "w8a16":
        return -1
    for size in GROUP_SIZES:
        if all(num_inputs % size == 0 for _, num_inputs in shapes.values()):
            return size
    name, shape = next((name, one) for name, one in shapes.items() if one[1] % GROUP_SIZES[-1])
    raise ConfigError(
        f"group_size: none of {GROUP_SIZES} divides the {shape[1]} inputs of {name}; "
        "give one, or leave the module out with ignore."
    )


def _check_shape(options: Options, layout: Layout, name: str, shape: tuple[int, ...]) -> None:
    group = layout.group(shape[1])
    if shape[1] % group:
        raise ConfigError(f"group_size {group} does not divide the {shape[1]} inputs of {name}.")
    for what, size, multiple in zip(("outputs", "inputs"), shape, layout.multiples, strict=True):
        if size % multiple:
            raise ConfigError(
                f"format {options.format!r} needs {what} in multiples of {multiple}, but {name} "
                f"has {size}; leave it out with ignore, or choose another format."
            )


def _bytes(model: FloatModel, name: str, is_chosen: bool) -> int:
    """An upper bound of what a tensor takes in the new directory."""
    numbers = math.prod(model.files.shape(name))
    return numbers * 5 // 4 if is_chosen else model.files.raw(name).nbytes


def _request(model: FloatModel, options: Options) -> dict[str, Any]:
    """What must be the same for a run to go on."""
    config = hashlib.sha256(json.dumps(model.raw_config, sort_keys=True).encode()).hexdigest()
    weights = (one for one in sorted(model.path.iterdir()) if one.suffix in WEIGHT_ENDS)
    files = {file.name: file.stat().st_size for file in weights}
    return dataclasses.asdict(options) | {"config_sha256": config, "files": files}


def layer_tensors(
    model: FloatModel, plan: Plan, layer: Layer, changed: Mapping[str, np.ndarray], code: Coder
) -> Tensors:
    """The new tensors of a layer: matrices in codes, the others as they are, or have become."""
    found: Tensors = {}
    for tensor in sorted({model.name_in_file(one) for one in layer.tensors()}):
        values = changed[tensor] if tensor in changed else model.files.raw(tensor)
        if tensor not in plan.chosen:
            found[tensor] = values
            continue
        numbers = values.astype(np.float32)
        if not np.isfinite(numbers).all():
            raise WeightsError(f"{model.files.describe(tensor)}: not all numbers are finite.")
        coded = code(tensor, numbers)
        if not np.isfinite(coded.scales).all():
            raise WeightsError(f"{model.files.describe(tensor)}: a scale is beyond float16.")
        for end, part in plan.layout.parts(coded).items():
            found[f"{tensor.removesuffix(WEIGHT)}.{end}"] = part
    return found


def _others(model: FloatModel) -> Tensors:
    of_layers = {model.name_in_file(one) for layer in model.layers for one in layer.tensors()}
    return {name: model.files.raw(name) for name in sorted({*model.files.names()} - of_layers)}
