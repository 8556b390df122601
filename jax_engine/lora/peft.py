"""Adapters as PEFT saves them: a folder, or the same tensors and configuration in memory.

transformers 5 has all experts of a layer in two parameters [X, out, in], gate_up_proj and
down_proj. PEFT adapts a parameter that `target_parameters` names, with one pair of tensors for all
experts:

    lora_A.weight [X * r, in]    expert by expert, the ranks of each
    lora_B.weight [out, r * X]   rank by rank, the experts of each

Here they are taken apart into the checkpoint's modules. Gate and up then have the same A, and each
its own rows of B. The tensors are named by the module that has the parameters, and where both are
adapted, PEFT wraps one adapter around the other: the inner one is called `base_layer`.

Up to 0.18 PEFT took a parameter [X, out, in] for [X, in, out], though it is not. Its A is then the
transpose of the B that is meant, and its B that of the A.
"""

import functools
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jax_engine.errors import ConfigError, WeightsError
from jax_engine.lora.adapter import Adapter
from jax_engine.lora.adapter_tensors import (
    Parts,
    Place,
    Stored,
    assemble,
    check_rank_limit,
    sorted_parts,
    stored_arrays,
    stored_in_file,
)
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
from jax_engine.models.checkpoints.file_schema import read_json, short

PREFIX = "base_model.model."
_PARAMETER_NAME = re.compile(
    rf"{re.escape(PREFIX)}(?P<container>.+?)(?P<wrapped>(?:\.base_layer)*)\.lora_(?P<part>[AB])\.weight"
)
TURNED_UP_TO = (0, 18)  # PEFT's versions


class _Pair(NamedTuple):
    """The two tensors of a parameter, and what they are taken apart into.

    Attributes:
        parameter: its name.
        experts: for each expert the modules whose rows follow each other in it.
        rank: rank of each expert's adapter.
        turned: whether PEFT took the parameter's rows for its columns.
    """

    parameter: str
    experts: tuple[tuple[str, ...], ...]
    a: Stored
    b: Stored
    rank: int
    turned: bool


def check_targets(fields: PeftFields, modules: Modules) -> None:
    """Raises ConfigError unless each of `target_parameters` can be adapted."""
    known = [*modules.fused, *_weights(modules)]
    for one in fields.target_parameters or []:
        if not any(name == one or name.endswith(f".{one}") for name in known):
            some = ", ".join(list(modules.fused)[:2] or known[:2])
            raise ConfigError(
                f"{FILE}: target_parameters has {short(one)}, which is no parameter of the model "
                f"that can be adapted; those are such as {some}."
            )


def _weights(modules: Modules) -> Iterator[str]:
    for name in modules.by_name:
        yield from (f"{one}.weight" for one in modules.names(name))


def taken_apart(
    tensors: Mapping[str, Stored], fields: PeftFields, modules: Modules
) -> tuple[dict[str, Stored], dict[str, str]]:
    """The tensors, those of whole parameters replaced by those of each expert's modules.

    Returns:
        The tensors by PEFT's names of modules; and the parameters of the modules that were part of
        one.

    Raises:
        WeightsError: `target_parameters` does not say what a tensor is of, a tensor is missing, or
            a shape is not the parameter's.
    """
    wrapped: dict[str, list[str]] = {}  # the parameters of each module, the inner ones first
    for parameter in modules.fused:
        container = parameter.rpartition(".")[0]
        wrapped.setdefault(container, [])
        if is_target(fields, parameter):
            wrapped[container].append(parameter)
    kept, pairs = dict[str, Stored](), dict[str, dict[str, Stored]]()
    for name, tensor in tensors.items():
        found = _PARAMETER_NAME.fullmatch(name)
        of = None if found is None else _container(found["container"], wrapped, modules)
        if found is None or of is None:
            kept[name] = tensor
            continue
        parameter = _parameter(found, tensor, of, wrapped[of])
        pairs.setdefault(parameter, {})[found["part"]] = tensor
    parameters: dict[str, str] = {}
    for parameter in (one for each in wrapped.values() for one in each):
        pair = _pair(parameter, pairs.get(parameter, {}), fields, modules)
        for name, stored in _modules_of(pair, modules):
            if name in kept:
                raise WeightsError(f"{kept[name].where}: {stored.where} is for the same module.")
            kept[name] = stored
        parameters |= {name: parameter for names in pair.experts for name in names}
    return kept, parameters


def _container(name: str, known: Mapping[str, list[str]], modules: Modules) -> str | None:
    return next((one for one in (name, modules.whole(name)) if one in known), None)


def _parameter(found: re.Match[str], tensor: Stored, container: str, targets: list[str]) -> str:
    """Which of the parameters of a module a tensor is of: each is wrapped into the next one's."""
    inside = found["wrapped"].count("base_layer")
    if inside >= len(targets):
        has = ", ".join(targets) if targets else "none"
        raise WeightsError(
            f"{tensor.where}: is of all experts of {container} together, of whose parameters "
            f"target_parameters in {FILE} must say which are adapted; it has {has}."
        )
    return targets[len(targets) - 1 - inside]


def _pair(
    parameter: str, tensors: Mapping[str, Stored], fields: PeftFields, modules: Modules
) -> _Pair:
    """The tensors of a parameter. Raises WeightsError if one is missing or has another shape."""
    if len(tensors) < 2:
        there = next((one.where for one in tensors.values()), FILE)
        raise WeightsError(f"{there}: an adapter of the parameter {parameter} needs A and B.")
    a, b, experts = tensors["A"], tensors["B"], modules.fused[parameter]
    count, parts = len(experts), [modules.by_name[name] for name in experts[0]]
    out_size, in_size = sum(part.out_size for part in parts), parts[0].in_size
    rank = a.shape[0] // count if a.shape else 0

    def shapes(rows: int, columns: int, rank: int) -> tuple[tuple[int, int], tuple[int, int]]:
        return (rank * count, columns), (rows, rank * count)

    plain, turned = shapes(out_size, in_size, rank), shapes(in_size, out_size, rank)
    found, may_turn = (a.shape, b.shape), not modules.experts_turned
    if rank == 0 or found not in ((plain, turned) if may_turn else (plain,)):
        expected = shapes(out_size, in_size, rank_of(fields, parameter))
        raise WeightsError(
            f"{a.where}: expected shapes {expected} of A and B, with {count} experts, for the "
            f"model's parameter {parameter}, found {found}. Is the adapter another model's?"
        )
    is_turned = may_turn and (found != plain or (plain == turned and _turns(fields)))
    return _Pair(parameter, experts, a, b, rank, is_turned)


def _turns(fields: PeftFields) -> bool:
    """Whether the PEFT that wrote an adapter took the rows of a parameter for columns."""
    version = re.match(r"(\d+)\.(\d+)", fields.peft_version or "0.0")
    return version is None or tuple(map(int, version.groups())) <= TURNED_UP_TO


def _modules_of(pair: _Pair, modules: Modules) -> Iterator[tuple[str, Stored]]:
    """The tensors of each expert's modules, by PEFT's names. Each tensor of the pair is read once.

    Numbers are copied: an expert's B lies scattered over the whole.
    """
    count, rank = len(pair.experts), pair.rank

    @functools.cache
    def first() -> np.ndarray:
        """[X, r, columns]"""
        return np.reshape(pair.a.load(), (count, rank, -1))

    @functools.cache
    def second() -> np.ndarray:
        """[X, rows, r]"""
        return np.transpose(np.reshape(pair.b.load(), (-1, rank, count)), (2, 0, 1))

    def a_of(expert: int) -> np.ndarray:
        own: np.ndarray = second()[expert].T if pair.turned else first()[expert]
        return own

    def b_of(expert: int, rows: slice) -> np.ndarray:
        own: np.ndarray = first()[expert].T if pair.turned else second()[expert]
        return own[rows]

    where_a, where_b = (pair.a.where, pair.b.where)[:: -1 if pair.turned else 1]
    for expert, names in enumerate(pair.experts):
        start = 0
        for name in names:
            module = modules.by_name[name]
            rows = slice(start, start + module.out_size)
            start = rows.stop
            a = Stored((rank, module.in_size), where_a, functools.partial(a_of, expert))
            b = Stored((module.out_size, rank), where_b, functools.partial(b_of, expert, rows))
            yield f"{PREFIX}{name}.lora_A.weight", a
            yield f"{PREFIX}{name}.lora_B.weight", b


WEIGHTS = ("adapter_model.safetensors", "adapter_model.bin")  # the preferred one first
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
    if not (folder / FILE).is_file():
        raise WeightsError(f"{folder} has no {FILE}, which an adapter needs.")
    fields = peft_fields(read_json(folder / FILE), str(folder / FILE))
    weights = [folder / name for name in WEIGHTS if (folder / name).is_file()]
    if not weights:
        raise WeightsError(f"{folder} has no {' or '.join(WEIGHTS)}. Save it as safetensors.")
    return _adapter(stored_in_file(weights[0]), fields, modules, max_lora_rank)


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
                f"{len(parts)} modules. Is the file whole?"
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
