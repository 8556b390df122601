"""Heads that return scores instead of tokens: a matrix over the decoder's hidden states.

`LlamaForSequenceClassification` applies it to the last token of a prompt (classes, a reward, how
well a document answers a query), `LlamaForTokenClassification` to each token. The matrix is small
and is used once a prompt, so the product is computed on the host.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta

from jax_engine.errors import WeightsError
from jax_engine.models.checkpoints.file_schema import checked
from jax_engine.models.model_config import HeadConfig, HeadTask
from jax_engine.weights.tensor_source import TensorSource
from jax_engine.weights.transforms import Tensor

# Ending of an architecture's name -> the task of its head.
ENDINGS: dict[str, HeadTask] = {
    "ForSequenceClassification": "classify",
    "ForTokenClassification": "token_classify",
}
CAUSAL = "ForCausalLM"
TENSORS = ("score", "classifier")  # names in checkpoints; the first one found is used
SUFFIXES = tuple(f"{name}.{part}" for name in TENSORS for part in ("weight", "bias"))


class LabelFields(msgspec.Struct, frozen=True):
    """The labels in config.json; as in transformers, two by default."""

    id2label: dict[str, str] | None = None
    num_labels: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None


@dataclass(frozen=True, eq=False)
class PoolingHead:
    """A head with its weights.

    Attributes:
        weight: [C, E], float32.
        bias: [C].
    """

    config: HeadConfig
    weight: np.ndarray
    bias: np.ndarray

    def logits(self, hidden: np.ndarray) -> np.ndarray:
        """Scores [.., C] of hidden states [.., E], in float32."""
        scores: np.ndarray = hidden.astype(np.float32) @ self.weight.T + self.bias
        return scores


def probabilities(logits: np.ndarray) -> np.ndarray:
    """Softmax over the last axis; for a single score, its sigmoid."""
    if logits.shape[-1] == 1:
        logits = np.concatenate([np.zeros_like(logits), logits], axis=-1)
        return probabilities(logits)[..., 1:]
    exponents = np.exp(logits - logits.max(axis=-1, keepdims=True))
    shares: np.ndarray = exponents / exponents.sum(axis=-1, keepdims=True)
    return shares


def split_architecture(name: str) -> tuple[str, HeadTask | None]:
    """The language model's architecture, and the task of its head; None without one."""
    for ending, task in ENDINGS.items():
        if name.endswith(ending):
            return name.removesuffix(ending) + CAUSAL, task
    return name, None


def head_config(task: HeadTask, raw: Mapping[str, Any]) -> HeadConfig:
    """Labels from config.json's fields. Raises ConfigError."""
    fields = checked(raw, LabelFields, "config.json")
    named = fields.id2label or {}
    count = fields.num_labels or len(named) or 2
    return HeadConfig(task, tuple(named.get(str(i), f"LABEL_{i}") for i in range(count)))


def read_head(source: TensorSource, config: HeadConfig, width: int) -> PoolingHead:
    """The head of a checkpoint; a bias that it lacks is zero.

    Raises:
        WeightsError: It has no head, one of another shape, or of numbers that are not finite.
    """
    present = set(source.names())
    name = next((name for name in TENSORS if f"{name}.weight" in present), None)
    if name is None:
        raise WeightsError(
            f"{source.location}: there is no tensor {' or '.join(f'{n}.weight' for n in TENSORS)}, "
            "the head that config.json's architecture has. Is the checkpoint complete?"
        )
    weight = np.empty((len(config.labels), width), np.float32)
    _read(source, f"{name}.weight", weight)
    bias = np.zeros(len(config.labels), np.float32)
    if f"{name}.bias" in present:
        _read(source, f"{name}.bias", bias)
    return PoolingHead(config, weight, bias)


def random_head(config: HeadConfig, width: int, seed: int) -> PoolingHead:
    """A head for dummy weights: the same for the same seed."""
    count = len(config.labels)
    weight = np.random.default_rng(seed).standard_normal((count, width), np.float32) * 0.02
    return PoolingHead(config, weight, np.zeros(count, np.float32))


def _read(source: TensorSource, name: str, out: np.ndarray) -> None:
    found = source.shape(name)
    if found != out.shape:
        raise WeightsError(
            f"{source.describe(name)}: expected shape {out.shape} for the {out.shape[0]} labels of "
            f"config.json, found {found}."
        )
    Tensor(name).read_into(source, out, {})
