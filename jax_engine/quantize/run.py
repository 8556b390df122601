"""`quantize`: from a float checkpoint to a quantised one, one layer at a time."""

import dataclasses
import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from jax_engine.errors import ConfigError, WeightsError
from jax_engine.models.resolve import HUB, HubOptions
from jax_engine.quantize import awq, gptq
from jax_engine.quantize.folding import Values
from jax_engine.quantize.inputs import Inputs
from jax_engine.quantize.layers import WEIGHT, FloatModel, Layer, open_float_model
from jax_engine.quantize.layouts import Layout, Tensors, layout_of
from jax_engine.quantize.options import GROUP_SIZES, OF_ROWS, Options
from jax_engine.quantize.output import Output
from jax_engine.quantize.rounding import Coded, round_to_nearest
from jax_engine.quantize.scaling import scale_inputs

QKV = "attention.qkv.weight"


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
    config = plan.layout.config(plan.left_out)
    output = Output(Path(out), _request(float_model, options))
    output.check_space(plan.num_bytes)
    names = shard_names(len(float_model.layers) + 1)
    calibrator = None
    if options.calibrated:
        from jax_engine.quantize.calibration import Calibrator

        calibrator = Calibrator(float_model, options, config)
    progress = tqdm(float_model.layers, desc="layers", unit="layer", disable=not use_tqdm)
    for layer, name in zip(progress, names, strict=False):
        if not output.is_finished(name):
            inputs = {} if calibrator is None else calibrator.inputs(layer)
            output.write(name, layer_tensors(float_model, plan, layer, inputs))
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

    options: Options
    layout: Layout
    chosen: frozenset[str]
    left_out: tuple[str, ...]
    num_bytes: int

    def coded(self, parameter: str, values: np.ndarray, inputs: Mapping[str, Inputs]) -> Coded:
        """The codes of a matrix float32[N, K], which is a part of this parameter.

        AWQ cuts no ranges of queries and keys: their scores would magnify what is cut off.
        """
        options, grid = self.options, self.layout.grid
        group = self.layout.group(values.shape[1])
        if options.algorithm == "gptq":
            how: dict[str, Any] = {"damping": options.damping, "act_order": options.act_order}
            return gptq.solve(values, inputs[parameter].products, grid, group, **how)
        if options.algorithm == "awq" and parameter != QKV:
            return awq.cut(values, inputs[parameter], grid, group)
        return round_to_nearest(values, grid, group)


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
    return Plan(options, layout, frozenset(chosen), modules, size)


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
    config = hashlib.sha256((model.path / "config.json").read_bytes()).hexdigest()
    files = {file.name: file.stat().st_size for file in sorted(model.path.glob("*.safetensors"))}
    return dataclasses.asdict(options) | {"config_sha256": config, "files": files}


def layer_tensors(
    model: FloatModel, plan: Plan, layer: Layer, inputs: Mapping[str, Inputs]
) -> Tensors:
    """The new tensors of a layer: matrices in codes, the others as they are, or scaled.

    Args:
        inputs: of the layer's matrices by parameter, if the plan needs them.
    """
    files, parameters = model.files, layer.matrices()
    values: Values = {one: files.raw(model.name_in_file(one)) for one in {*layer.tensors()}}
    if plan.options.algorithm == "awq" or plan.options.smoothing is not None:
        chosen = {name for name in parameters if model.name_in_file(name) in plan.chosen}
        smoothing = plan.options.smoothing
        inputs = scale_inputs(layer, values, inputs, chosen, plan.layout, smoothing)
    found: Tensors = {}
    for tensor in sorted(values):
        name = model.name_in_file(tensor)
        if name not in plan.chosen:
            found[name] = values[tensor].astype(files.raw(name).dtype, copy=False)
            continue
        numbers = values[tensor].astype(np.float32)
        if not np.isfinite(numbers).all():
            raise WeightsError(f"{files.describe(name)}: not all numbers are finite.")
        coded = plan.coded(parameters[tensor], numbers, inputs)
        if not np.isfinite(coded.scales).all():
            raise WeightsError(f"{files.describe(name)}: a scale is beyond float16.")
        for end, part in plan.layout.parts(coded).items():
            found[f"{name.removesuffix(WEIGHT)}.{end}"] = part
    return found


def _others(model: FloatModel) -> Tensors:
    of_layers = {model.name_in_file(one) for layer in model.layers for one in layer.tensors()}
    return {name: model.files.raw(name) for name in sorted({*model.files.names()} - of_layers)}
