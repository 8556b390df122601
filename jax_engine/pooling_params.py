"""Parameters of requests for hidden states: embeddings, or scores of a head."""

from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Literal, Self

from jax_engine.checks import check_integer, check_types, named_fields, shown
from jax_engine.errors import ConfigError, InvalidRequestError

PoolingType = Literal["LAST", "MEAN", "CLS", "MAX", "WEIGHTEDMEAN", "MEAN_SQRT_LEN"]
_OF_TOKENS = ("MAX", "WEIGHTEDMEAN")
PoolingTask = Literal["embed", "token_embed", "classify", "token_classify"]


@named_fields(InvalidRequestError)
@dataclass(kw_only=True)
class PoolingParams:
    """What `LLM.embed` and `LLM.encode` do with the prompt's final hidden states.

    Attributes:
        pooling_type: What is made of the tokens' states. "LAST": that of the last one; "CLS": of
            the first one; "MEAN": the mean; "MAX": the largest value of each number;
            "WEIGHTEDMEAN": the mean with the weights 1, 2, 3, ...; "MEAN_SQRT_LEN": the sum over
            the root of their number. Upper or lower case. None: the model's own
            (`1_Pooling/config.json`, a GGUF file's `pooling_type`), or "LAST" if it has none.
        normalize: Scale embeddings to length 1. None: as the model's own files say, else yes.
        use_activation: vLLM's name for `normalize`, which it overrides. For scores of a head:
            whether they are probabilities (also if None) or raw scores.
        dimensions: Keep only the first numbers of an embedding, this many; for models trained for
            it.
        task: "embed": one vector; "token_embed": one for each token of the prompt; "classify",
            "token_classify": the scores of the model's head. None: the head's task, or "embed"
            without a head.

    Raises:
        InvalidRequestError: A field is of a wrong type or out of range.
    """

    pooling_type: PoolingType | None = None
    normalize: bool | None = None
    use_activation: bool | None = None
    dimensions: int | None = None
    task: PoolingTask | None = None

    def __post_init__(self) -> None:
        if isinstance(self.pooling_type, str):
            self.pooling_type = self.pooling_type.upper()  # type: ignore[assignment]
        check_types(self, InvalidRequestError)
        if self.use_activation is not None:
            self.normalize = self.use_activation
        if self.dimensions is not None:
            check_integer("dimensions", self.dimensions, 1)

    @property
    def per_token(self) -> bool:
        """Whether there is a result for each token of the prompt."""
        return self.task in ("token_embed", "token_classify")

    @property
    def needs_tokens(self) -> bool:
        """Whether it takes the state of each token, beyond their sum, the first and the last."""
        return self.per_token or self.pooling_type in _OF_TOKENS

    def clone(self) -> Self:
        return deepcopy(self)


@named_fields(ConfigError)
@dataclass(frozen=True, kw_only=True)
class PoolerConfig:
    """An engine's defaults for requests without `PoolingParams`, with the same fields.

    With task "token_embed", `LLM.score` compares token by token (late interaction).
    """

    task: PoolingTask | None = None
    pooling_type: PoolingType | None = None
    use_activation: bool | None = None
    dimensions: int | None = None

    def __post_init__(self) -> None:
        self.params()

    def params(self) -> PoolingParams:
        """These defaults as `PoolingParams`. Raises InvalidRequestError."""
        return PoolingParams(
            task=self.task,
            pooling_type=self.pooling_type,
            use_activation=self.use_activation,
            dimensions=self.dimensions,
        )


def with_task(params: PoolingParams, task: PoolingTask | None) -> PoolingParams:
    """The parameters with a call's task; None: their own. Raises InvalidRequestError."""
    if task is None:
        return params
    if params.task not in (None, task):
        raise InvalidRequestError(
            f"pooling_params.task must be None or {shown(task)} here, got {params.task!r}"
        )
    return replace(params, task=task)


def default_pooling(config: PoolerConfig | None, task: PoolingTask | None = None) -> PoolingParams:
    """The parameters of a request without any.

    Args:
        task: None: the one in `config`.
    """
    params = PoolingParams() if config is None else config.params()
    return replace(params, task=task or params.task)
