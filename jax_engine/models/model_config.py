"""What is known of a model before its weights are read, whichever kind of file it comes from.

`ModelConfig` has the decoder's specification, how its parameters are made of a checkpoint's
tensors, its head for scores and its special tokens. `PoolingRecipe` is how a model's makers make an
embedding of its hidden states. A directory says that in sentence-transformers' files, a GGUF file
in `pooling_type`. What they say and the engine does not compute is kept as the reason why
embeddings are refused.
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from jax_engine.errors import WeightsError
from jax_engine.model_spec import Activation, ModelSpec
from jax_engine.models.checkpoints.file_schema import Size, checked, read_json, short
from jax_engine.pooling_params import PoolingType
from jax_engine.weights.transforms import Declaration

MODULES, POOLING = "modules.json", "1_Pooling/config.json"
TEXTS, PROMPTS = "sentence_bert_config.json", "config_sentence_transformers.json"
# sentence-transformers' names of the ways, and the older flags that turn them on.
_WAYS: dict[str, PoolingType] = {
    "cls": "CLS",
    "lasttoken": "LAST",
    "max": "MAX",
    "mean": "MEAN",
    "mean_sqrt_len_tokens": "MEAN_SQRT_LEN",
    "weightedmean": "WEIGHTEDMEAN",
}
_FLAGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_lasttoken": "lasttoken",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
}
# llama.cpp's numbers; 0 is that of models that are not made for embeddings.
_OF_GGUF: dict[int, PoolingType] = {0: "LAST", 1: "MEAN", 2: "CLS", 3: "LAST"}


@dataclasses.dataclass(frozen=True)
class PoolingRecipe:
    """From hidden states to an embedding.

    Attributes:
        normalize: whether it is scaled to length 1.
        max_tokens: the longest text that it is made of; None: the model's longest context.
        refused: why the engine cannot make it; None: it can.
    """

    pooling_type: PoolingType = "LAST"
    normalize: bool = True
    max_tokens: int | None = None
    refused: str | None = None


class ModuleFields(msgspec.Struct, frozen=True):
    """An entry of modules.json; `type` is a Python class, `path` its folder."""

    type: str
    path: str = ""


class PoolingFields(msgspec.Struct, frozen=True):
    """1_Pooling/config.json."""

    pooling_mode: str | list[str] | None = None
    pooling_mode_cls_token: bool | None = False
    pooling_mode_lasttoken: bool | None = False
    pooling_mode_max_tokens: bool | None = False
    pooling_mode_mean_tokens: bool | None = False
    pooling_mode_mean_sqrt_len_tokens: bool | None = False
    pooling_mode_weightedmean_tokens: bool | None = False

    @property
    def ways(self) -> list[str]:
        """The ways that are on; several vectors would be put one after another."""
        if self.pooling_mode is not None:
            return [self.pooling_mode] if isinstance(self.pooling_mode, str) else self.pooling_mode
        return [way for flag, way in _FLAGS.items() if getattr(self, flag)]


class TextFields(msgspec.Struct, frozen=True):
    """sentence_bert_config.json."""

    max_seq_length: Size | None = None
    do_lower_case: bool | None = False


class PromptFields(msgspec.Struct, frozen=True):
    """config_sentence_transformers.json."""

    prompts: dict[str, str] | None = None
    default_prompt_name: str | None = None


def recipe_of_gguf(pooling_type: int | None) -> PoolingRecipe:
    """The recipe of a GGUF file's `pooling_type`."""
    found = _OF_GGUF.get(pooling_type or 0)
    if found is None:
        return PoolingRecipe(refused=f"pooling_type {pooling_type} is not supported; known: 0 to 3")
    return PoolingRecipe(found)


def recipe_of_directory(directory: Path, default: PoolingType = "LAST") -> PoolingRecipe:
    """The recipe of a directory in Hugging Face layout.

    Args:
        default: the way of a model without such files.

    Raises:
        WeightsError: A file is damaged.
    """
    recipe = PoolingRecipe(default)
    if (directory / MODULES).exists():
        recipe = _of_modules(directory)
    elif (directory / POOLING).exists():
        recipe = _of_pooling(directory / POOLING)
    texts = _read(directory / TEXTS, TextFields)
    prompts = _read(directory / PROMPTS, PromptFields)
    reason = recipe.refused
    if reason is None and texts.do_lower_case:
        reason = f"{TEXTS}: do_lower_case true is not supported; known: false"
    prompt = (prompts.prompts or {}).get(prompts.default_prompt_name or "")
    if reason is None and prompt:
        reason = f"{PROMPTS} puts the prompt {short(prompt)} before each text"
    return dataclasses.replace(recipe, max_tokens=texts.max_seq_length, refused=reason)


def _of_modules(directory: Path) -> PoolingRecipe:
    """The recipe of modules.json: a transformer, a pooling, and perhaps a scaling to length 1."""
    modules = _modules(directory / MODULES)
    kinds = [one.type.rpartition(".")[2] for one in modules]
    scales = "Normalize" in kinds
    other = [
        f"{kind} ({one.path})"
        for kind, one in zip(kinds, modules, strict=True)
        if kind not in ("Transformer", "Pooling", "Normalize")
    ]
    if other or kinds not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        found = ", ".join(other or kinds)
        known = "Transformer, Pooling, and behind them Normalize"
        reason = f"{MODULES} has {found}; known: {known}"
        return PoolingRecipe(normalize=scales, refused=reason)
    recipe = _of_pooling(directory / modules[1].path / "config.json")
    return dataclasses.replace(recipe, normalize=scales)


def _of_pooling(file: Path) -> PoolingRecipe:
    if not file.exists():
        return PoolingRecipe(refused=f"{file} is missing, which {MODULES} names")
    ways = _read(file, PoolingFields).ways
    if len(ways) != 1 or ways[0] not in _WAYS:
        known = f"one of {', '.join(_WAYS)}"
        return PoolingRecipe(
            refused=f"{file}: pooling {short(ways)} is not supported; known: {known}"
        )
    return PoolingRecipe(_WAYS[ways[0]])


def _modules(file: Path) -> list[ModuleFields]:
    try:
        return msgspec.json.decode(file.read_bytes(), type=list[ModuleFields])
    except (OSError, msgspec.MsgspecError) as error:
        raise WeightsError(f"{file} is unreadable: {error}.") from error


def _read[T](file: Path, schema: type[T]) -> T:
    """A file that may be absent."""
    raw: dict[str, Any] = read_json(file) if file.exists() else {}
    return checked(raw, schema, str(file), WeightsError)


HeadTask = Literal["classify", "token_classify", "token_embed"]


@dataclasses.dataclass(frozen=True)
class HeadLayers:
    """From hidden states to scores: the names of an encoder's tensors, and what is between them.

    Attributes:
        scores: the matrix [C, E] that ends it; "": the one that a decoder's head consists of.
        pooling: which of a prompt's states it reads, for "classify".
        dense: a matrix [E, E] in front, or None.
        inner: how many rows that has, if not E.
        activation: what bends its output.
        norm: a layer norm behind that, or None.
        eps: added to the norm's mean square.
    """

    scores: str = ""
    pooling: PoolingType = "LAST"
    dense: str | None = None
    inner: int | None = None
    activation: Activation | Literal["tanh"] | None = None
    norm: str | None = None
    eps: float = 0.0

    @property
    def modules(self) -> list[str]:
        """The names of all of its modules."""
        return [name for name in (self.scores, self.dense, self.norm) if name]


@dataclasses.dataclass(frozen=True)
class TokenRows:
    """Rows of the output matrix that stand for a head.

    Attributes:
        tokens: Whose rows they are: ids, or tokens as the vocabulary writes them.
        matrix: The name of the matrix [V, E] in the checkpoint.
        is_difference: The only score is the second token's logit less the first one's.
    """

    tokens: tuple[str | int, ...]
    matrix: str
    is_difference: bool


@dataclasses.dataclass(frozen=True)
class Ranking:
    """A head that makes vectors of a query and its documents, which are one prompt.

    Attributes:
        size: How many numbers a vector has.
        tokens: Whose states become vectors: the token behind each document, then the one behind
            the query, as the vocabulary writes them.
        ids: Their numbers, where the checkpoint has no tokenizer.json to find them in.
    """

    size: int
    tokens: tuple[str, str]
    ids: tuple[int, int]


@dataclasses.dataclass(frozen=True)
class HeadConfig:
    """A head that returns scores instead of tokens: for a prompt, or for each of its tokens.

    Or vectors, of documents and a query.

    Attributes:
        labels: Names of the scores, in order; of vectors, none.
        layers: What it consists of.
        activation: What a prompt's scores pass through; None: the sigmoid for a single one, the
            softmax for several.
        rows: What it is made of, where the checkpoint has none.
        ranking: Which vectors it gives; None: scores.
    """

    task: HeadTask
    labels: tuple[str, ...]
    layers: HeadLayers = HeadLayers()
    activation: Literal["identity", "sigmoid"] | None = None
    rows: TokenRows | None = None
    ranking: Ranking | None = None

    @property
    def num_outputs(self) -> int:
        """C, how many scores or numbers it makes of a state."""
        return len(self.labels) if self.ranking is None else self.ranking.size


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """A decoder-only transformer, or an encoder.

    Attributes:
        architecture: the name in `config.json`'s `architectures`, or the nearest to it.
        spec: the decoder's layers.
        weights: how the decoder's parameters are made of the checkpoint's tensors.
        extra_layers: how many layers behind the last one the checkpoint has that are not used here:
            they guess further tokens.
        head: its head for scores; None: it generates text.
        matryoshka_dimensions: widths that its embeddings may be cut to; empty: any; None: they
            may not be cut.
        pooling: how its embeddings are made.
        whole: the layers of the whole model, where `spec` is what devices hold of it; None: all.
    """

    architecture: str
    spec: ModelSpec
    weights: Mapping[str, Declaration] = dataclasses.field(compare=False, repr=False)
    eos_token_ids: tuple[int, ...] = ()
    bos_token_id: int | None = None
    extra_layers: int = 0
    head: HeadConfig | None = None
    matryoshka_dimensions: tuple[int, ...] | None = None
    pooling: PoolingRecipe = dataclasses.field(default_factory=PoolingRecipe)
    whole: ModelSpec | None = None

    @property
    def undivided(self) -> "ModelConfig":
        """The model as its checkpoint has it, however many devices share it."""
        if self.whole is None:
            return self
        return dataclasses.replace(self, spec=self.whole, whole=None)

    @property
    def vocab_size(self) -> int:
        return self.spec.vocab_size

    @property
    def max_context_len(self) -> int:
        """Longest context that the model was made for, in tokens."""
        return self.spec.max_context_len

    @property
    def hidden_size(self) -> int:
        """E, the width of the residual stream and of embeddings."""
        return self.spec.width
