"""An adapter's tensors before they are read, and the adapter made of them.

They come from a file of safetensors or of PyTorch's, or from arrays. Each has its place in a
module, or the load is refused. Names, shapes and ranks are checked before any number is read.
"""

from collections.abc import Callable, Mapping
from math import isfinite
from pathlib import Path
from typing import Literal, NamedTuple

import ml_dtypes
import numpy as np

from jax_engine.errors import WeightsError
from jax_engine.lora.adapter import AdaptedModule, Adapter
from jax_engine.lora.modules import Module, Modules
from jax_engine.models.checkpoints.file_schema import short
from jax_engine.models.checkpoints.files_source import FilesSource
from jax_engine.models.checkpoints.stored_dtypes import DTYPES
from jax_engine.weights.tensor_source import all_finite

# What numbers are held as. Those of float64 are rounded: no adapter is trained so finely.
HELD: dict[np.dtype, np.dtype] = {
    np.dtype(np.float64): np.dtype(np.float32),
    np.dtype(np.float32): np.dtype(np.float32),
    np.dtype(np.float16): np.dtype(np.float16),
    np.dtype(ml_dtypes.bfloat16): np.dtype(ml_dtypes.bfloat16),
}


class Stored(NamedTuple):
    """A tensor that can be read.

    Attributes:
        where: file and tensor, as messages name them.
        load: reads it. Raises WeightsError.
    """

    shape: tuple[int, ...]
    where: str
    load: Callable[[], np.ndarray]

    def read(self) -> np.ndarray:
        """The numbers. Raises WeightsError if one is NaN or infinite, or the file has changed."""
        values = self.load()
        if values.shape != self.shape:
            raise WeightsError(f"{self.where}: expected shape {self.shape}, read {values.shape}.")
        if not all_finite(values):
            at = tuple(map(int, np.argwhere(~np.isfinite(values.astype(np.float32)))[0]))
            raise WeightsError(
                f"{self.where}: numbers must be finite, found {values[at]} at {list(at)}."
            )
        return values


def stored_in_file(path: Path) -> dict[str, Stored]:
    """The tensors of a file, of which only what describes them is read. Raises WeightsError."""
    source = FilesSource(path)

    def one(name: str) -> Stored:
        kind, where = source.dtype(name), source.describe(name)
        held = held_as(DTYPES.get(kind), kind, where)
        return Stored(source.shape(name), where, lambda: _cast(source.raw(name), held))

    return {name: one(name) for name in source.names()}


def stored_arrays(tensors: Mapping[str, np.ndarray]) -> dict[str, Stored]:
    """Arrays in memory by PEFT's names. Raises WeightsError for what is no array of floats."""

    def one(name: str, array: np.ndarray) -> Stored:
        where = f"tensor {name}"
        if not isinstance(name, str) or not isinstance(array, np.ndarray):
            raise WeightsError(f"{where}: expected a NumPy array, got {short(array)}.")
        native = array.dtype.newbyteorder("=")
        held = held_as(native, native.name, where)
        return Stored(array.shape, where, lambda: _cast(array, held))

    return {name: one(name, array) for name, array in tensors.items()}


def held_as(dtype: np.dtype | None, name: str, where: str) -> np.dtype:
    """What numbers of a dtype are held as. Raises WeightsError if they are none."""
    found = None if dtype is None else HELD.get(dtype)
    if found is None:
        known = ", ".join(one.name for one in HELD)
        raise WeightsError(f"{where}: dtype {name} is not supported; known: {known}.")
    return found


def _cast(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    with np.errstate(over="ignore"):  # what becomes infinite is refused right after
        return values.astype(dtype, copy=False)


PartName = Literal["a", "b", "bias"]
Parts = Mapping[str, Mapping[PartName, Stored]]  # the tensors of each module


class Place(NamedTuple):
    """What a tensor is: a part of a module's adapter."""

    module: str
    part: PartName


def check_rank_limit(max_lora_rank: int) -> None:
    """Raises WeightsError unless the limit is an integer of at least 1."""
    if not isinstance(max_lora_rank, int) or max_lora_rank < 1:
        raise WeightsError(f"max_lora_rank must be an integer >= 1, got {max_lora_rank!r}.")


def sorted_parts(
    tensors: Mapping[str, Stored], place_of: Callable[[str], Place], modules: Modules
) -> dict[str, dict[PartName, Stored]]:
    """The tensors by module.

    Args:
        place_of: the place of a name. Raises WeightsError for a name that is no adapter's.

    Raises:
        WeightsError: a tensor is of no module of the model, or two are for one place, or there is
            none.
    """
    found: dict[str, dict[PartName, Stored]] = {}
    for name, tensor in tensors.items():
        place = place_of(name)
        module = modules.named(place.module)
        if module is None:
            raise WeightsError(
                f"{tensor.where}: the model has no module {place.module} that can be adapted; the "
                f"nearest names are {modules.nearest(place.module)}. Is the adapter another "
                "model's?"
            )
        parts = found.setdefault(module, {})
        if place.part in parts:
            raise WeightsError(
                f"{tensor.where}: {parts[place.part].where} is for the same module, {module}."
            )
        parts[place.part] = tensor
    if not found:
        raise WeightsError("an adapter must have tensors, found none.")
    return found


def assemble(
    parts: Parts,
    modules: Modules,
    scaling_of: Callable[[str], float],
    max_lora_rank: int,
) -> Adapter:
    """The adapter of these tensors.

    Args:
        scaling_of: the scaling of a module.

    Raises:
        WeightsError: a partner is missing, a shape is not the module's, a rank is above the limit,
            or a number is not finite.
    """
    check_rank_limit(max_lora_rank)
    for name, tensors in parts.items():
        _check_shapes(name, tensors, modules.by_name[name], max_lora_rank)
    scalings = {name: scaling_of(name) for name in parts}
    return Adapter(
        tuple(
            AdaptedModule(
                name,
                tensors["a"].read(),
                tensors["b"].read(),
                scalings[name],
                tensors["bias"].read() if "bias" in tensors else None,
            )
            for name, tensors in parts.items()
        )
    )


def check_fits(adapter: Adapter, modules: Modules, max_lora_rank: int) -> None:
    """Raises WeightsError unless an adapter that was made before suits this model and limit."""
    for one in adapter.modules:
        module = modules.by_name.get(one.name)
        if module is None:
            raise WeightsError(
                f"the model has no module {one.name} that can be adapted; the nearest names are "
                f"{modules.nearest(one.name)}. Is the adapter another model's?"
            )
        names: tuple[PartName, ...] = ("a", "b", "bias")
        parts = {
            name: _held(array, f"{name} of {one.name}")
            for name, array in zip(names, one.arrays, strict=False)
        }
        _check_shapes(one.name, parts, module, max_lora_rank)
        if not isfinite(one.scaling):
            raise WeightsError(f"the scaling of {one.name} must be finite, got {one.scaling}.")
        for part in parts.values():
            part.read()


def _held(array: np.ndarray, where: str) -> Stored:
    if held_as(array.dtype, array.dtype.name, where) != array.dtype:
        raise WeightsError(f"{where}: dtype {array.dtype.name} is not supported: use float32.")
    return Stored(array.shape, where, lambda: array)


def _check_shapes(
    name: str, tensors: Mapping[PartName, Stored], module: Module, max_lora_rank: int
) -> None:
    """Checks a module's tensors by their shapes. Raises WeightsError."""
    if not tensors.keys() >= {"a", "b"}:
        at = next(iter(tensors.values()))
        raise WeightsError(
            f"{at.where}: its partner is missing: an adapter of {name} needs A and B."
        )
    a, b = tensors["a"], tensors["b"]
    rank = a.shape[0] if a.shape else 0
    _expect(a, (rank, module.in_size), name)
    if not 1 <= rank <= max_lora_rank:
        raise WeightsError(
            f"{a.where}: rank {rank} must be between 1 and max_lora_rank ({max_lora_rank}). Raise "
            "max_lora_rank, or train with a lower rank."
        )
    _expect(b, (module.out_size, rank), name)
    if "bias" in tensors:
        _expect(tensors["bias"], (module.out_size,), name)


def _expect(tensor: Stored, shape: tuple[int, ...], name: str) -> None:
    if tensor.shape != shape:
        raise WeightsError(
            f"{tensor.where}: expected shape {shape} for the model's module {name}, found "
            f"{tensor.shape}. Is the adapter another model's?"
        )
