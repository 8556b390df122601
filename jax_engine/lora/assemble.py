"""Makes an adapter of its tensors: each has its place in a module, or the load is refused.

Names, shapes and ranks are checked before any number is read.
"""

from collections.abc import Callable, Mapping
from math import isfinite
from typing import Literal, NamedTuple

import numpy as np

from jax_engine.errors import WeightsError
from jax_engine.lora.adapter import AdaptedModule, Adapter
from jax_engine.lora.modules import Module, Modules
from jax_engine.lora.stored import Stored, held_as

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
