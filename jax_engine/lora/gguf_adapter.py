"""Adapters in a GGUF file, as llama.cpp's `convert_lora_to_gguf.py` writes them.

Each matrix `blk.0.attn_q.weight` that is adapted has two tensors, with `.lora_a` and `.lora_b`
behind its name. The rows of B are those of the matrix: where llama.cpp stores the rows of q and k
in another order, it stores B's in that order, too, and the same is undone here.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import numpy as np
from msgspec import Meta

from jax_engine.errors import WeightsError
from jax_engine.lora.adapter import Adapter
from jax_engine.lora.adapter_tensors import Place, Stored, assemble, check_rank_limit, sorted_parts
from jax_engine.lora.modules import Modules
from jax_engine.models.checkpoints.file_schema import checked, short
from jax_engine.models.checkpoints.gguf import open_gguf
from jax_engine.weights.transforms import Rows, Transform, transform_of

if TYPE_CHECKING:
    from jax_engine.models.checkpoints.gguf.gguf_file import GgufFile


ENDS = (".lora_a", ".lora_b")
EXPERTS = "_exps.weight"
# The models of those architectures of llama.cpp that reorder rows of q and k. An adapter of another
# architecture could fit such a model by names and shapes, and would be in the wrong order.
_INTERLEAVED = {
    "llama": (
        *("LlamaForCausalLM", "LLaMAForCausalLM", "MistralForCausalLM", "MixtralForCausalLM"),
        *("AquilaForCausalLM", "AquilaModel", "InternLMForCausalLM"),
    ),
    "granite": ("GraniteForCausalLM",),
    "granitemoe": ("GraniteMoeForCausalLM", "GraniteMoeSharedForCausalLM"),
    "olmo": ("OlmoForCausalLM",),
    "smollm3": ("SmolLM3ForCausalLM",),
    "minicpm": ("MiniCPMForCausalLM",),
}
# What an adapter may say beside its alpha. A name for the task changes nothing.
_KNOWN = ("adapter.type", "adapter.lora.alpha", "adapter.lora.task_name")
_KEYS = {"kind": "general.type", "type": "adapter.type", "alpha": "adapter.lora.alpha"}


class AdapterFields(msgspec.Struct, frozen=True, rename=_KEYS):
    """The metadata of an adapter. llama.cpp does not scale where alpha is 0."""

    kind: str
    type: str
    alpha: Annotated[float, Meta(ge=-1e30, le=1e30)] = 0.0


def read_gguf(path: Path, modules: Modules, max_lora_rank: int) -> Adapter:
    """The adapter in a GGUF file, in float32.

    Raises:
        ConfigError: the file is of an architecture that is not read.
        MissingPackageError: the `gguf` package is not installed.
        WeightsError: the file is torn or no adapter, or its tensors do not fit the model or the
            limit.
    """
    check_rank_limit(max_lora_rank)
    file = open_gguf(path)
    alpha = _alpha(file)
    _check_architecture(file, modules.config.architecture)
    stems = _modules_of_stems(file, modules)
    orders: dict[str, Rows | None] = {module: rows for module, rows in stems.values()}

    def place_of(name: str) -> Place:
        stem, end = name[: -len(ENDS[0])], name[-len(ENDS[0]) :]
        if stem.endswith(EXPERTS):
            raise WeightsError(
                f"{path}, tensor {name} is of all experts of a layer, which are not read from GGUF "
                "files. Give the folder of PEFT's that it was made of."
            )
        if end not in ENDS:
            raise WeightsError(
                f"{path}, tensor {name} is not an adapter's: those end in {' and '.join(ENDS)}."
            )
        module = stems[stem][0] if stem in stems else stem
        return Place(module, "a" if end == ENDS[0] else "b")

    parts = sorted_parts(_stored(file), place_of, modules)
    for name, tensors in parts.items():
        if modules.by_name[name].kind == "embedding" and "a" in tensors:
            tensors["a"] = _turned(tensors["a"])  # llama.cpp takes rows of it
        order = orders.get(name)
        if order is not None and "b" in tensors:
            tensors["b"] = _reordered(tensors["b"], order)
    ranks = {name: tensors["a"].shape[0] for name, tensors in parts.items() if "a" in tensors}
    return assemble(
        parts, modules, lambda name: alpha / ranks[name] if alpha else 1.0, max_lora_rank
    )


def _alpha(file: "GgufFile") -> float:
    """The adapter's alpha. Raises WeightsError if the file is no adapter, or asks for more."""
    fields = checked(file.metadata, AdapterFields, str(file.path), WeightsError)
    if (fields.kind, fields.type) != ("adapter", "lora"):
        raise WeightsError(
            f"{file.path}: general.type and adapter.type must be 'adapter' and 'lora', got "
            f"{short(fields.kind)} and {short(fields.type)}."
        )
    for key, value in file.metadata.items():
        if key.startswith("adapter.") and key not in _KNOWN and value not in ("", []):
            raise WeightsError(f"{file.path}: {key} {short(value)} is not supported.")
    return fields.alpha


def _check_architecture(file: "GgufFile", model: str) -> None:
    """Raises WeightsError if rows would be put into the order of another architecture."""
    name = file.metadata.get("general.architecture")
    models = _INTERLEAVED.get(name) if isinstance(name, str) else None
    expected = next((arch for arch, known in _INTERLEAVED.items() if model in known), None)
    if (models is not None or expected is not None) and name != expected:
        raise WeightsError(
            f"{file.path}: general.architecture {short(name)} is not that of the model, {model}"
            f"{f' ({expected!r})' if expected else ''}. Is the adapter another model's?"
        )


def _modules_of_stems(file: "GgufFile", modules: Modules) -> dict[str, tuple[str, Rows | None]]:
    """For each matrix by llama.cpp's name, the module, and how its rows are put into order."""
    from jax_engine.models.checkpoints.gguf.gguf_source import declared_tensors

    found: dict[str, tuple[str, Rows | None]] = {}
    for template, made_of in declared_tensors(file, modules.config):
        stored = list(made_of.templates())
        if len(stored) != 1 or "{expert}" in template or "{head}" in template:
            continue
        for layer in range(modules.config.spec.num_layers if "{layer}" in template else 1):
            name = template.format(layer=layer).removesuffix(".weight")
            if name in modules.by_name:
                found[stored[0].format(layer=layer)] = name, _order(made_of)
    return found


def _order(made_of: Transform) -> Rows | None:
    """The order of rows in a transform; turning a matrix leaves A and B as they are."""
    while not isinstance(made_of, Rows):
        part = getattr(made_of, "part", None)
        if part is None:
            return None
        made_of = transform_of(part)
    return made_of


def _stored(file: "GgufFile") -> Mapping[str, Stored]:
    from jax_engine.models.checkpoints.gguf.gguf_tensors import GgufTensors

    tensors = GgufTensors(file)

    def one(name: str) -> Stored:
        shape = tensors.shape(name)

        def load() -> np.ndarray:
            values = np.empty(shape, np.float32)
            tensors.read_into(name, values)
            return values

        return Stored(shape, tensors.describe(name), load)

    return {name: one(name) for name in tensors.names()}


def _turned(tensor: Stored) -> Stored:
    return Stored(tensor.shape[::-1], tensor.where, lambda: tensor.load().T)


def _reordered(tensor: Stored, rows: Rows) -> Stored:
    """The rows as the checkpoint has them. A B of another size keeps its shape, and is refused."""
    if tensor.shape[:1] != (rows.total,):
        return tensor
    return Stored(tensor.shape, tensor.where, lambda: tensor.load()[rows.order])
