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
from jax_engine.lora.modules import Modules
from jax_engine.lora.peft_config import FILE, PeftFields, peft_fields, rank_of, scaling_of, selects
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
    parts = sorted_parts(tensors, lambda name: _place(name, tensors[name]), modules)
    _check_kinds(tensors, modules)
    _check_biases(parts, fields)
    _check_selection(parts, fields, modules)
    _check_ranks(parts, fields, max_lora_rank)
    return assemble(parts, modules, lambda name: scaling_of(fields, name), max_lora_rank)


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


def _check_selection(parts: Parts, fields: PeftFields, modules: Modules) -> None:
    """Raises unless the tensors are those of the modules that the configuration selects.

    PEFT would use no others, and add nothing to a module without them.

    Raises:
        ConfigError: a pattern is not supported.
        WeightsError: a module has tensors and is not selected, or is selected and has none.
    """
    for name, module in modules.by_name.items():
        chosen = selects(fields, name, module)
        if name in parts and not chosen:
            raise WeightsError(
                f"{next(iter(parts[name].values())).where}: {FILE} does not select the module "
                f"{name} (target_modules, exclude_modules, layers_to_transform)."
            )
        given = fields.target_modules is not None
        if chosen and given and name not in parts and module.kind != "experts":
            raise WeightsError(
                f"{FILE} selects the module {name}, but there are no tensors of it; found those of "
                f"{len(parts)} modules. Is {WEIGHTS} whole?"
            )


def _check_ranks(parts: Parts, fields: PeftFields, max_lora_rank: int) -> None:
    """Raises ConfigError unless the configured ranks are within the limit, and the tensors'."""
    for name, tensors in parts.items():
        rank = rank_of(fields, name)
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
