"""Adapters as PEFT saves them: a folder, or the same tensors and configuration in memory."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jax_engine.errors import ConfigError, WeightsError
from jax_engine.file_schema import read_json
from jax_engine.lora.adapter import Adapter
from jax_engine.lora.assemble import Parts, Place, assemble, check_rank_limit, sorted_parts
from jax_engine.lora.experts import check_targets, taken_apart
from jax_engine.lora.modules import Modules
from jax_engine.lora.peft_config import (
    FILE,
    PeftFields,
    is_target,
    peft_fields,
    rank_of,
    scaling_of,
    selects,
)
from jax_engine.lora.stored import Stored, stored_arrays, stored_in_file

WEIGHTS, PICKLED = "adapter_model.safetensors", "adapter_model.bin"
_NAME = re.compile(
    r"base_model\.model\.(?P<module>.+)\.lora_"
    r"(?:(?P<part>[AB])\.(?P<kind>weight|bias)|embedding_(?P<embedding>[AB]))"
)
# By how tensors of other things are called.
_HINTS = {
    r"\.lora_magnitude_vector": "is of DoRA, which is not computed",
    r"\.modules_to_save\.": "is of a whole module in place of the model's (modules_to_save)",
    r"\.base_layer\.": "is the model's own: save the adapter with save_embedding_layers=False",
    r"\.(embed_tokens|wte|lm_head)\.weight$": "is the model's own: save the adapter with "
    "save_embedding_layers=False",
    r"\.lora_[AB]\.[^.]+\.weight$": "has the adapter's name in it: save it with PEFT's "
    "save_pretrained",
}
_OTHERWISE = "is not named as PEFT names one: base_model.model.MODULE.lora_A.weight"


def read_folder(folder: Path, modules: Modules, max_lora_rank: int) -> Adapter:
    """The adapter in a folder of PEFT's.

    Raises:
        ConfigError: the configuration asks for what is not computed.
        WeightsError: a file is missing or torn, or its tensors do not fit the model or the limit.
    """
    weights = folder / WEIGHTS
    if not (folder / FILE).is_file():
        raise WeightsError(f"{folder} has no {FILE}, which an adapter needs.")
    fields = peft_fields(read_json(folder / FILE), str(folder / FILE))
    if not weights.is_file():
        pickled = (
            f"; {PICKLED} is a pickle, which can run any code and is never read"
            if (folder / PICKLED).exists()
            else ""
        )
        raise WeightsError(f"{folder} has no {WEIGHTS}{pickled}. Save it as safetensors.")
    return _adapter(stored_in_file(weights), fields, modules, max_lora_rank)


def adapter_of_arrays(
    tensors: Mapping[str, np.ndarray],
    config: Mapping[str, Any],
    modules: Modules,
    max_lora_rank: int,
) -> Adapter:
    """An adapter in memory.

    Args:
        tensors: by PEFT's names, which its `get_peft_model_state_dict` gives. They are copied.
        config: what PEFT writes into adapter_config.json.

    Raises:
        ConfigError, WeightsError: as `read_folder`.
    """
    return _adapter(stored_arrays(tensors), peft_fields(config), modules, max_lora_rank)


def _adapter(
    tensors: Mapping[str, Stored], fields: PeftFields, modules: Modules, max_lora_rank: int
) -> Adapter:
    check_rank_limit(max_lora_rank)
    check_targets(fields, modules)
    tensors, parameters = taken_apart(tensors, fields, modules)
    parts = sorted_parts(tensors, lambda name: _place(name, tensors[name]), modules)
    _check_kinds(tensors, modules)
    _check_biases(parts, fields)
    keys = {name: _chosen_as(name, fields, modules, parameters) for name in modules.by_name}
    _check_selection(parts, keys, fields, modules)
    _check_ranks(parts, keys, fields, max_lora_rank)
    return assemble(
        parts, modules, lambda name: scaling_of(fields, keys[name] or name), max_lora_rank
    )


def _chosen_as(
    name: str, fields: PeftFields, modules: Modules, parameters: Mapping[str, str]
) -> str | None:
    """By which name the configuration selects a module; None: it does not.

    That of the module, of its weight, or of the parameter of all experts that it is a part of.
    Raises ConfigError for a pattern that is not supported.
    """
    if name in parameters:
        return parameters[name]
    for one in modules.names(name):
        if is_target(fields, f"{one}.weight"):
            return f"{one}.weight"
        if selects(fields, one, modules.by_name[name]):
            return one
    return None


def _place(name: str, tensor: Stored) -> Place:
    """The place of a tensor by its name. Raises WeightsError."""
    found = _NAME.fullmatch(name)
    if found is None or (found["part"], found["kind"]) == ("A", "bias"):
        hint = next((hint for kind, hint in _HINTS.items() if re.search(kind, name)), _OTHERWISE)
        raise WeightsError(f"{tensor.where} {hint}.")
    if found["kind"] == "bias":
        return Place(found["module"], "bias")
    return Place(found["module"], "a" if "A" in (found["part"], found["embedding"]) else "b")


def _check_kinds(tensors: Mapping[str, Stored], modules: Modules) -> None:
    """Raises WeightsError unless embeddings, and they alone, have an embedding's tensors."""
    for name, tensor in tensors.items():
        module = modules.named(_place(name, tensor).module)
        embeds = module is not None and modules.by_name[module].kind == "embedding"
        if embeds != (".lora_embedding_" in name):
            wanted = "lora_embedding_A and lora_embedding_B" if embeds else "lora_A and lora_B"
            raise WeightsError(f"{tensor.where}: an adapter of {module} has {wanted}.")


def _check_biases(parts: Parts, fields: PeftFields) -> None:
    """Raises WeightsError unless the biases are those that `lora_bias` says."""
    for name, tensors in parts.items():
        if ("bias" in tensors) != bool(fields.lora_bias):
            at = tensors.get("bias") or next(iter(tensors.values()))
            found = "there is one" if "bias" in tensors else "there is none"
            raise WeightsError(
                f"{at.where}: lora_bias is {bool(fields.lora_bias)}, but for the bias of {name} "
                f"{found}."
            )


def _check_selection(
    parts: Parts, keys: Mapping[str, str | None], fields: PeftFields, modules: Modules
) -> None:
    """Raises WeightsError unless the tensors are those of the modules that are selected.

    PEFT would use no others, and add nothing to a module without them. Experts may have none:
    trainers leave out those that no token has met, and modules of transformers 5 are none of PEFT's
    "all-linear" ones.
    """
    for name, module in modules.by_name.items():
        chosen = keys[name] is not None
        if name in parts and not chosen:
            raise WeightsError(
                f"{next(iter(parts[name].values())).where}: {FILE} does not select the module "
                f"{name} (target_modules, exclude_modules, layers_to_transform, target_parameters)."
            )
        given = fields.target_modules is not None
        may_lack = module.kind in ("experts", "router")
        if chosen and given and name not in parts and not may_lack:
            raise WeightsError(
                f"{FILE} selects the module {name}, but there are no tensors of it; found those of "
                f"{len(parts)} modules. Is {WEIGHTS} whole?"
            )


def _check_ranks(
    parts: Parts, keys: Mapping[str, str | None], fields: PeftFields, max_lora_rank: int
) -> None:
    """Raises ConfigError unless the configured ranks are within the limit, and the tensors'."""
    for name, tensors in parts.items():
        rank = rank_of(fields, keys[name] or name)
        if rank > max_lora_rank:
            raise ConfigError(
                f"{FILE}: the rank of {name} is {rank}, above max_lora_rank ({max_lora_rank}). "
                "Raise max_lora_rank, or train with a lower rank."
            )
        if "a" in tensors and tensors["a"].shape[:1] != (rank,):
            raise WeightsError(
                f"{tensors['a'].where}: shape {tensors['a'].shape}, but {FILE} has rank {rank} for "
                f"{name} (r, rank_pattern)."
            )
