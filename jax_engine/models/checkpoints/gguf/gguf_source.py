"""A GGUF file as a model: its configuration, and its tensors by Hugging Face's names and layout.

The configuration is the config.json that the model would have, read by its family.
"""

import dataclasses
import itertools
import re
from collections.abc import Collection, Iterator

import numpy as np
from gguf.constants import MODEL_ARCH_NAMES
from gguf.tensor_mapping import TensorNameMap, get_tensor_name_map

from jax_engine.errors import MissingPackageError, WeightsError
from jax_engine.models.checkpoints.gguf.architectures import architecture_of
from jax_engine.models.checkpoints.gguf.gguf_file import GgufFile
from jax_engine.models.checkpoints.gguf.gguf_tensors import GgufTensors
from jax_engine.models.checkpoints.gguf.header import FACTORS, LONG, SHORT, Header
from jax_engine.models.model_config import ModelConfig, recipe_of_gguf
from jax_engine.models.registry import config_from_hf
from jax_engine.weights.codes import Kind
from jax_engine.weights.transforms import (
    Concatenate,
    OfOne,
    Shape,
    Tensor,
    Transform,
    Transpose,
    Words,
    moves_rows,
    transform_of,
)

# Read with the configuration, or follows from it.
_DERIVED = (FACTORS, LONG, SHORT, ".attn_rot_embd.weight")


class GgufSource:
    """The tensors that a family declares, each made of one or several of the file's.

    Tensors of the file that make none of them keep their own names.
    """

    def __init__(self, file: GgufFile, config: ModelConfig):
        self.location = file.path
        self._tensors = GgufTensors(file)
        self._made: dict[str, tuple[Transform, Words]] = {}
        made_of: dict[tuple[str, ...], str] = {}
        for template, made in declared_tensors(file, config):
            for words in self._words(next(made.templates())):
                parts = tuple(one.format(**words) for one in made.templates())
                if all(map(self._tensors.has, parts)):
                    # Some families declare Llama's name of a tensor, and then their own.
                    self._made.pop(made_of.get(parts, ""), None)
                    made_of[parts] = template.format(**words)
                    self._made[made_of[parts]] = made, words
        used = {part.partition("[")[0] for parts in made_of for part in parts}
        self._others = {
            name
            for name in self._tensors.names()
            if name not in used and not name.endswith(_DERIVED)
        }

    def _words(self, template: str) -> Iterator[Words]:
        """The layers, and the experts or heads, for which the file has such a tensor."""
        whole, _, element = template.partition("[")
        pattern = re.escape(whole).replace(r"\{layer\}", r"(?P<layer>\d+)")
        for name in self._tensors.names():
            match = re.fullmatch(pattern, name)
            if match and element:
                word, count = element[1:-2], self._tensors.shape(name)[0]
                yield from (match.groupdict() | {word: number} for number in range(count))
            elif match:
                yield match.groupdict()

    def names(self) -> Collection[str]:
        return self._made.keys() | self._others

    def shape(self, name: str) -> Shape:
        if name in self._others:
            return self._tensors.shape(name)
        return _shape(*self._made[name], self._tensors)

    def describe(self, name: str) -> str:
        made, words = self._made[name]
        parts = (one.format(**words) for one in made.templates())
        return self._tensors.describe(" and ".join(parts))

    @property
    def kinds(self) -> tuple[Kind, ...]:
        return self._tensors.kinds()

    def kind(self, name: str) -> Kind | None:
        """How the rows of a tensor are coded, if it is made of whole rows of one kind."""
        made, words = self._made[name]
        axes = len(self.shape(name)) - 1
        if not moves_rows(made, axes):
            return None
        found = {self._tensors.kind(one.format(**words)) for one in made.templates()}
        return found.pop() if len(found) == 1 else None

    def order(self, name: str) -> None:
        """The columns are in order."""

    def turned(self, name: str) -> bool:
        """No tensor of a GGUF file is."""
        return False

    def read_into(self, name: str, out: np.ndarray) -> None:
        """Writes numbers, or rows of codes into records."""
        made, words = self._made[name]
        made.read_into(self._tensors, out, words)


def declared_tensors(file: GgufFile, config: ModelConfig) -> Iterator[tuple[str, Transform]]:
    """Each tensor that the family declares, and how it is made of the file's."""
    architecture = architecture_of(file)
    names = _name_map(architecture.name)
    every = (transform_of(one).templates() for one in config.weights.values())
    for template in dict.fromkeys(itertools.chain.from_iterable(every)):
        for kind in ("weight", "bias") if "{kind}" in template else ("",):
            name = template.replace("{kind}", kind)
            stored, undo = _stored(name, names), architecture.undo_of(name)
            if undo is not None:
                yield name, transform_of(undo(config.spec, stored))
            elif stored:
                yield name, Tensor(stored)


def _name_map(architecture: str) -> TensorNameMap:
    """Names of Hugging Face's tensors and the file's. Raises MissingPackageError."""
    known = {name: arch for arch, name in MODEL_ARCH_NAMES.items()}
    if architecture not in known:
        raise MissingPackageError(
            f"the installed gguf package does not know GGUF architecture {architecture!r}: "
            "pip install --upgrade gguf"
        )
    return get_tensor_name_map(known[architecture], 1)


def _stored(name: str, names: TensorNameMap) -> str:
    """The file's own name of a tensor, by the gguf package; empty: it has none.

    The matrices of experts are elements of one tensor.
    """
    stem, _, kind = name.rpartition(".")
    stored = names.get_name(stem.replace("{layer}", "0").replace(".{expert}", ""))
    if stored is None:
        return ""
    element = "[{expert}]" if "{expert}" in stem else ""
    return str(stored).replace("blk.0.", "blk.{layer}.") + f".{kind}{element}"


def _shape(made: Transform, words: Words, tensors: GgufTensors) -> Shape:
    """The shape of what is made of tensors with their shapes in the file."""
    if isinstance(made, Concatenate):
        return _joined(made, words, tensors)
    if isinstance(made, OfOne):
        shape = _shape(transform_of(made.part), words, tensors)
        return (*shape[:-2], *shape[:-3:-1]) if isinstance(made, Transpose) else shape
    (name,) = made.templates()
    return tensors.shape(name.format(**words))


def _joined(made: Concatenate, words: Words, tensors: GgufTensors) -> Shape:
    """Raises WeightsError if a part does not fit the others, or is not as long as declared."""
    parts, axis = [transform_of(part) for part in made.parts], made.axis
    shapes = [_shape(part, words, tensors) for part in parts]
    for part, size, shape in zip(parts, made.sizes or (), shapes, strict=True):
        expected = (*shapes[0][:axis], size, *shapes[0][axis + 1 :])
        if shape != expected:
            name = next(part.templates()).format(**words)
            raise WeightsError(
                f"{tensors.describe(name)}: expected shape {expected} from the model's "
                f"configuration, found {shape}. Do weights and configuration belong together?"
            )
    return (*shapes[0][:axis], sum(made.sizes or ()), *shapes[0][axis + 1 :])


def config_from_gguf(file: GgufFile) -> ModelConfig:
    """ModelConfig from metadata (and RoPE's tensors). Raises ConfigError, WeightsError."""
    architecture = architecture_of(file)
    header = Header(file, architecture.name)
    config = config_from_hf(architecture.config(header))
    return dataclasses.replace(config, pooling=recipe_of_gguf(header.fields.pooling_type))
