"""Checks that a checkpoint has the tensors of a model, before any is read."""

import re
from collections.abc import Collection, Iterable, Mapping

from jax_engine.errors import WeightsError
from jax_engine.models.leaves import Leaf
from jax_engine.weights.tensor_source import TensorSource
from jax_engine.weights.transforms import Shape, Transform

# By how tensors of other things than a language model are called.
_HINTS = {
    r"\.lora_[AB]\b|^base_model\.": "is of a LoRA adapter: merge it with peft's merge_and_unload, "
    "and give the merged model",
    r"(^|\.)(v|value)_?head\.": "is of a value head of reinforcement learning, which generation "
    "does not use: save the model without it",
    r"(^|\.)(tok_embeddings|attention\.w[qkvo]|feed_forward\.w\d)\.": "is named as in Meta's or "
    "Mistral's own code: give the model in Hugging Face layout",
    r"(^|\.)(score|classifier)\.": "is of a head for scores: config.json's architectures should "
    "end in ForSequenceClassification or ForTokenClassification",
    r"vis(ual|ion)|image|audio": "is of a part for images or sound: only text models are read",
}


def check_tensors(
    source: TensorSource,
    leaves: Mapping[str, Leaf],
    transforms: Mapping[str, Transform],
    *,
    num_layers: int,
    extra_layers: int = 0,
    ignored_suffixes: tuple[str, ...],
) -> None:
    """
    Args:
        leaves: The decoder's parameters, by dotted name.
        transforms: How each is made of tensors.
        extra_layers: How many layers behind the last one may be there; they are not needed.
        ignored_suffixes: Endings of the names of tensors that are not needed.

    Raises:
        WeightsError: A tensor is missing, of another shape, or unexpected.
    """
    starts = starts_of_layers(transforms.values())
    needed = [name for name in source.names() if not name.endswith(ignored_suffixes)]
    _check_num_layers(source, starts, num_layers, needed)
    wanted: dict[str, Shape] = {}
    for name, transform in transforms.items():
        wanted.update(leaves[name].tensors(transform))
    present = set(source.names())
    missing = [name for name in wanted if name not in present]
    if missing:
        raise WeightsError(
            f"{source.location}: {len(missing)} of {len(wanted)} tensors are missing, "
            f"{missing[0]} first; found {len(present)}. "
            f"{_hint({*needed} - {*wanted}, 'Is the checkpoint complete?')}"
        )
    _check_shapes(source, wanted)
    extra = range(num_layers, num_layers + extra_layers)
    ignored = tuple(f"{start}{layer}." for start in starts for layer in extra)
    unexpected = {name for name in set(needed) - set(wanted) if not name.startswith(ignored)}
    if unexpected:
        raise WeightsError(
            f"{source.location}: {len(unexpected)} tensors have no place in this architecture, "
            f"{min(unexpected)} first. " + _hint(unexpected, "Is config.json's architecture right?")
        )


def _hint(names: Collection[str], otherwise: str) -> str:
    """What to do about tensors that have no place, by the first whose kind is known."""
    known = (
        f"{name} {hint}."
        for name in sorted(names)
        for kind, hint in _HINTS.items()
        if re.search(kind, name)
    )
    return next(known, otherwise)


def starts_of_layers(transforms: Iterable[Transform]) -> set[str]:
    """What the names of layers' tensors begin with, before the layer's number."""
    templates = [template for transform in transforms for template in transform.templates()]
    return {one.partition("{layer}")[0] for one in templates if "{layer}" in one}


def _check_num_layers(
    source: TensorSource, starts: set[str], num_layers: int, needed: Collection[str]
) -> None:
    """Runs first: listing the tensors of a damaged count of ten million layers takes minutes."""
    pattern = re.compile(rf"(?:{'|'.join(map(re.escape, starts))})(\d+)\.")
    found = {match[1] for match in map(pattern.match, source.names()) if match}
    if num_layers > len(found):
        raise WeightsError(
            f"{source.location}: the configuration has {num_layers} layers, but there are "
            f"tensors of {len(found)}. "
            f"{_hint(needed, 'Do weights and configuration belong together?')}"
        )


def _check_shapes(source: TensorSource, wanted: Mapping[str, Shape]) -> None:
    for name, shape in wanted.items():
        found = source.shape(name)
        if found != shape:
            raise WeightsError(
                f"{source.describe(name)}: expected shape {shape} from the model's "
                f"configuration, found {found}. Do weights and configuration belong together?"
            )
