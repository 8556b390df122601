"""Heads that return scores instead of tokens: a matrix over the model's hidden states.

`LlamaForSequenceClassification` applies it to the last token of a prompt (classes, a reward, how
well a document answers a query), `LlamaForTokenClassification` to each token. Those of encoders
have a second matrix in front, and perhaps a norm between the two. Such matrices are small and are
used once a prompt, so the products are computed on the host.
"""

import math
from collections.abc import Container, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from msgspec import Meta

from jax_engine.errors import ConfigError, WeightsError
from jax_engine.models.checkpoints.file_schema import checked, short
from jax_engine.models.model_config import HeadConfig, HeadTask
from jax_engine.models.token_head import read_rows
from jax_engine.weights.tensor_source import TensorSource
from jax_engine.weights.transforms import Tensor

# Ending of an architecture's name -> the task of its head.
ENDINGS: dict[str, HeadTask] = {
    "ForSequenceClassification": "classify",
    "ForTokenClassification": "token_classify",
}
BASES = ("ForCausalLM", "Model")  # what stands in its place in the model's own name
TENSORS = ("score", "classifier")  # names in checkpoints; the first one found is used
SUFFIXES = tuple(f"{name}.{part}" for name in TENSORS for part in ("weight", "bias"))


# sentence-transformers names a class of PyTorch for what scores pass through.
ACTIVATIONS: dict[str, Literal["identity", "sigmoid"]] = {
    "torch.nn.modules.linear.Identity": "identity",
    "torch.nn.modules.activation.Sigmoid": "sigmoid",
}


class CrossEncoderFields(msgspec.Struct, frozen=True):
    """`sentence_transformers` in config.json."""

    activation_fn: str | None = None


class LabelFields(msgspec.Struct, frozen=True):
    """The labels in config.json; as in transformers, two by default."""

    id2label: dict[str, str] | None = None
    num_labels: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    sentence_transformers: CrossEncoderFields | None = None
    sbert_ce_default_activation_function: str | None = None  # the older name

    @property
    def activation(self) -> str | None:
        """What cross-encoders' scores pass through, by its class's name."""
        newer = self.sentence_transformers and self.sentence_transformers.activation_fn
        return newer or self.sbert_ce_default_activation_function


@dataclass(frozen=True, eq=False)
class Module:
    """A matrix and its bias, or the scale and the shift of a layer norm.

    Attributes:
        weight: [out, in], or [E], float32.
        bias: [out], or [E].
    """

    weight: np.ndarray
    bias: np.ndarray


@dataclass(frozen=True, eq=False)
class PoolingHead:
    """A head with its weights.

    Attributes:
        weight: [C, E], float32.
        bias: [C].
        dense, norm: What is in front of it, where `config.layers` has such.
        reads: The tokens whose states it reads, in the order of what it makes of them; empty: of
            any token, or of the one that `config.layers` says.
    """

    config: HeadConfig
    weight: np.ndarray
    bias: np.ndarray
    dense: Module | None = None
    norm: Module | None = None
    reads: tuple[int, ...] = ()

    def logits(self, hidden: np.ndarray) -> np.ndarray:
        """Scores [.., C] of hidden states [.., E], in float32."""
        x, layers = hidden.astype(np.float32), self.config.layers
        if self.dense is not None:
            assert layers.activation is not None, "what follows is not linear"
            x = _ACTIVATIONS[layers.activation](x @ self.dense.weight.T + self.dense.bias)
        if self.norm is not None:
            apart = x - x.mean(axis=-1, keepdims=True)
            square = (apart * apart).mean(axis=-1, keepdims=True)
            x = apart / np.sqrt(square + np.float32(layers.eps)) * self.norm.weight + self.norm.bias
        scores: np.ndarray = x @ self.weight.T + self.bias
        return scores

    def activated(self, logits: np.ndarray) -> np.ndarray:
        """What the scores are, unless raw ones are asked for."""
        if self.config.activation == "identity":
            return logits
        if self.config.activation == "sigmoid":
            return probabilities(logits[..., None])[..., 0]
        return probabilities(logits)


def _gelu(x: np.ndarray) -> np.ndarray:
    below = np.frompyfunc(lambda one: 0.5 * math.erfc(-one / math.sqrt(2)), 1, 1)
    return np.asarray(x * below(x).astype(np.float32))


_ACTIVATIONS: dict[str, Any] = {
    "tanh": np.tanh,
    "gelu": _gelu,
    "gelu_tanh": lambda x: 0.5 * x * (1 + np.tanh(0.7978845608 * (x + 0.044715 * x**3))),
    "relu": lambda x: np.maximum(x, 0),
    "relu2": lambda x: np.maximum(x, 0) ** 2,
    "silu": lambda x: x * probabilities(x[..., None])[..., 0],
}


def probabilities(logits: np.ndarray) -> np.ndarray:
    """Softmax over the last axis; for a single score, its sigmoid."""
    if logits.shape[-1] == 1:
        logits = np.concatenate([np.zeros_like(logits), logits], axis=-1)
        return probabilities(logits)[..., 1:]
    exponents = np.exp(logits - logits.max(axis=-1, keepdims=True))
    shares: np.ndarray = exponents / exponents.sum(axis=-1, keepdims=True)
    return shares


def split_architecture(name: str, known: Container[str]) -> tuple[str, HeadTask | None]:
    """The architecture of the model without its head, and the task of that; None without one.

    Args:
        known: the names of models without heads.
    """
    for ending, task in ENDINGS.items():
        if name.endswith(ending):
            bases = [name.removesuffix(ending) + base for base in BASES]
            return next((base for base in bases if base in known), bases[0]), task
    return name, None


def head_config(task: HeadTask, raw: Mapping[str, Any]) -> HeadConfig:
    """Labels from config.json's fields. Raises ConfigError."""
    fields = checked(raw, LabelFields, "config.json")
    named = fields.id2label or {}
    count = fields.num_labels or len(named) or 2
    labels, name = tuple(named.get(str(i), f"LABEL_{i}") for i in range(count)), fields.activation
    if name is not None and name not in ACTIVATIONS:
        raise ConfigError(
            f"config.json: the activation {short(name)} of a cross-encoder's scores is not "
            f"supported; known: {', '.join(ACTIVATIONS)}."
        )
    return HeadConfig(task, labels, activation=ACTIVATIONS[name] if name else None)


def read_head(source: TensorSource, config: HeadConfig, width: int, folder: Path) -> PoolingHead:
    """The head of a checkpoint; a bias that it lacks is zero.

    Args:
        folder: Where the tokenizer is, whose tokens may stand for a head.

    Raises:
        ConfigError: One of these tokens is none.
        WeightsError: It has no head, one of another shape, or of numbers that are not finite.
    """
    if config.rows is not None:
        weight = read_rows(source, config.rows, folder)
        return PoolingHead(config, weight, np.zeros(len(weight), np.float32))
    present, layers = set(source.names()), config.layers
    wanted = (layers.scores,) if layers.scores else TENSORS
    name = next((name for name in wanted if f"{name}.weight" in present), None)
    if name is None:
        raise WeightsError(
            f"{source.location}: there is no tensor {' or '.join(f'{n}.weight' for n in wanted)}, "
            "the head that config.json's architecture has. Is the checkpoint complete?"
        )
    inner = layers.inner or width
    scores = _module(source, name, (config.num_outputs, inner))
    dense = _module(source, layers.dense, (inner, width)) if layers.dense else None
    norm = _module(source, layers.norm, (inner,)) if layers.norm else None
    return PoolingHead(config, scores.weight, scores.bias, dense, norm)


def random_head(config: HeadConfig, width: int, seed: int) -> PoolingHead:
    """A head for dummy weights: the same for the same seed."""
    count, inner = config.num_outputs, config.layers.inner or width
    rng = np.random.default_rng(seed)
    weight = rng.standard_normal((count, inner), np.float32) * 0.02
    zeros, dense, norm = np.zeros(inner, np.float32), None, None
    if config.layers.dense:
        dense = Module(rng.standard_normal((inner, width), np.float32) * 0.02, zeros)
    if config.layers.norm:
        norm = Module(np.ones(inner, np.float32), zeros)
    return PoolingHead(config, weight, np.zeros(count, np.float32), dense, norm)


def _module(source: TensorSource, name: str, shape: tuple[int, ...]) -> Module:
    """A matrix or a scale; a bias that it lacks is zero."""
    names = source.names()
    if f"{name}.weight" not in names:
        raise WeightsError(
            f"{source.location}: there is no tensor {name}.weight, a part of the head that "
            "config.json's architecture has. Is the checkpoint complete?"
        )
    weight, bias = np.empty(shape, np.float32), np.zeros(shape[0], np.float32)
    _read(source, f"{name}.weight", weight)
    if f"{name}.bias" in names:
        _read(source, f"{name}.bias", bias)
    return Module(weight, bias)


def _read(source: TensorSource, name: str, out: np.ndarray) -> None:
    found = source.shape(name)
    if found != out.shape:
        raise WeightsError(
            f"{source.describe(name)}: expected shape {out.shape} from the labels and the width of "
            f"config.json, found {found}."
        )
    Tensor(name).read_into(source, out, {})
