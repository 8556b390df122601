"""Pooling requests (`LLM.embed` and others): their output comes from the prompt's hidden states."""

import math
from dataclasses import dataclass, replace

import numpy as np

from jax_engine.core.scheduler_output import ScheduledSequence
from jax_engine.core.sequence import Sequence
from jax_engine.core.sequence_group import SequenceGroup
from jax_engine.engine.requests.prompts import Prompt
from jax_engine.errors import InvalidRequestError
from jax_engine.models.model_config import ModelConfig, PoolingRecipe
from jax_engine.models.pooling_heads import PoolingHead
from jax_engine.outputs import PoolingOutput, PoolingRequestOutput, RequestMetrics
from jax_engine.pooling_params import PoolingParams, PoolingTask
from jax_engine.sampling_params import RequestOutputKind, SamplingParams
from jax_engine.step import HiddenStates, StepResult

_EMBEDDINGS = ("embed", "token_embed")
_EXAMPLES = {
    "classify": "LlamaForSequenceClassification",
    "token_classify": "LlamaForTokenClassification",
}


@dataclass(kw_only=True)
class PooledParams(SamplingParams):
    """A pooling request as the scheduler sees it: it ends with one token, which is dropped.

    Attributes:
        pooling: With a task, and for embeddings also with the way in which they are made.
        max_prompt_tokens: The longest prompt that the model was made to embed; None: any.
    """

    pooling: PoolingParams
    head: PoolingHead | None = None
    max_prompt_tokens: int | None = None

    @property
    def wants_prompt(self) -> bool:
        """Whether each prompt token must be computed: always."""
        return True

    @property
    def drops_output(self) -> bool:
        """Whether the token that ends it is dropped: always, so a prompt may fill the model."""
        return True


def as_sampling_params(
    params: SamplingParams | PoolingParams, config: ModelConfig, head: PoolingHead | None
) -> SamplingParams:
    """Converts `PoolingParams`, which are accepted wherever `SamplingParams` are.

    Args:
        head: The model's classification head, if it has one.

    Raises:
        InvalidRequestError: The model cannot do this task, or give this many dimensions.
    """
    if not isinstance(params, PoolingParams):
        if config.spec.is_encoder and isinstance(params, SamplingParams):
            raise InvalidRequestError(
                f"generate needs a model that generates text, got {config.architecture}, an "
                "encoder: use embed" + ("" if head is None else ", classify, score or encode")
            )
        if head is not None and isinstance(params, SamplingParams):
            _refuse_to_rank("generate", head)
            raise InvalidRequestError(
                "generate needs a model that generates text, got one with a head for "
                f"{len(head.config.labels)} scores: use classify, score or encode"
            )
        return params
    task: PoolingTask = params.task or ("embed" if head is None else head.config.task)
    if head is not None and task != head.config.task:
        _refuse_to_rank(task, head)
    if task in ("classify", "token_classify") and (head is None or head.config.task != task):
        kind = "a language model" if head is None else f"one with a head for {head.config.task}"
        raise InvalidRequestError(
            f"{task} needs a model with a classification head of its own (such as "
            f"{_EXAMPLES[task]}), "
            f"got {kind}"
            + (
                ": use embed, or generate with "
                "SamplingParams(structured_outputs=StructuredOutputsParams(choice=...))"
                if head is None
                else ""
            )
        )
    _check_dimensions(params.dimensions, config)
    return PooledParams(
        pooling=_by_recipe(params, task, config.pooling, head),
        head=head,
        max_prompt_tokens=config.pooling.max_tokens if task in _EMBEDDINGS else None,
        max_tokens=1,
        temperature=0.0,
        detokenize=False,
        output_kind=RequestOutputKind.FINAL_ONLY,
    )


def _refuse_to_rank(task: str, head: PoolingHead) -> None:
    """Raises InvalidRequestError if the head makes vectors of documents: it does nothing else."""
    if head.config.ranking is not None:
        raise InvalidRequestError(
            f"{task} needs another model, got one that ranks documents: use score, or encode with "
            "the task token_embed"
        )


def _by_recipe(
    params: PoolingParams, task: PoolingTask, recipe: PoolingRecipe, head: PoolingHead | None
) -> PoolingParams:
    """What the request says, completed by how the model's makers make embeddings.

    Raises:
        InvalidRequestError: The engine cannot make them so, and the request names no other way.
    """
    given, normalize = params.pooling_type, params.normalize
    if head is not None and head.config.ranking is not None:  # it takes the recipe's place
        return replace(params, task=task, normalize=bool(normalize))
    if task not in _EMBEDDINGS:
        assert head is not None, "scores were refused"
        return replace(params, task=task, pooling_type=given or head.config.layers.pooling)
    if given is None and recipe.refused is not None:
        raise InvalidRequestError(
            f"{task} needs a model whose embeddings the engine can make, got one where "
            f"{recipe.refused}: name a pooling_type for its hidden states without that"
        )
    if normalize is None:
        normalize = recipe.normalize or task == "token_embed"
    pooling_type = given or recipe.pooling_type  # token_embed does not read it
    return replace(params, task=task, pooling_type=pooling_type, normalize=normalize)


def _check_dimensions(dimensions: int | None, config: ModelConfig) -> None:
    trained = config.matryoshka_dimensions
    if dimensions is None or dimensions in (trained or ()):
        return
    if trained is None:
        expected, why = "None", ": the model was not trained for embeddings that are cut"
    elif trained:
        expected, why = f"one of {', '.join(map(str, trained))}", ", which it was trained for"
    elif dimensions <= config.hidden_size:
        return
    else:
        expected, why = f"at most {config.hidden_size}", ", the model's width"
    raise InvalidRequestError(f"dimensions must be {expected}, got {dimensions}{why}")


class PooledPrompt:
    """The hidden states of one prompt, pooled or collected as its chunks are computed."""

    def __init__(self, params: PooledParams, token_ids: list[int]) -> None:
        self._params, self._head = params.pooling, params.head
        reads = () if self._head is None else self._head.reads
        self._ids = np.array(token_ids)
        # Of a long prompt, a ranking head reads the states of a few tokens only.
        self._is_read = np.isin(self._ids, reads) if reads else None
        self._count = 0
        self._total: np.ndarray
        self._first: np.ndarray
        self._last: np.ndarray
        self._tokens: list[np.ndarray]

    def add(self, item: ScheduledSequence, states: HiddenStates, index: int, row: int) -> None:
        """Takes a chunk's states.

        Args:
            index: The sequence's place in the step.
            row: Its first token's place in the step.
        """
        if item.start == 0:  # the first chunk, or the first again after a preemption by recompute
            self._count, self._total, self._tokens = 0, np.zeros(1), []
            self._first = states.first[index]
        self._count += item.num_tokens
        if self._params.needs_tokens:
            assert states.tokens is not None
            own = states.tokens[row : row + item.num_tokens]
            if self._is_read is not None:
                own = own[self._is_read[item.start : item.start + item.num_tokens]]
            self._tokens.append(own)
        self._total = self._total + states.total[index]
        self._last = states.last[index]

    def data(self) -> np.ndarray:
        """Vector [E] or scores [C]; per token [T, E] or [T, C]; empty if nothing was computed.

        E is the model's width, or `dimensions`; C is the number of labels. Of a ranking head's
        vectors there are as many as documents and queries, in the order of `PoolingHead.reads`.
        """
        if not self._count:
            return np.zeros(0)
        params = self._params
        pooled = np.concatenate(self._tokens) if params.per_token else self._vector()
        if self._is_read is not None:
            pooled = self._vectors(pooled)
        elif self._head is not None and params.task in ("classify", "token_classify"):
            logits = self._head.logits(pooled)
            return logits if params.use_activation is False else self._head.activated(logits)
        pooled = pooled[..., : params.dimensions]
        if params.normalize:
            lengths = np.linalg.norm(pooled, axis=-1, keepdims=True)
            pooled = pooled / np.maximum(lengths, 1e-12)
        return pooled

    def _vectors(self, states: np.ndarray) -> np.ndarray:
        """What a ranking head makes of the states that it reads."""
        assert self._head is not None
        ids = self._ids[self._is_read]
        order = [np.flatnonzero(ids == token) for token in self._head.reads]
        return self._head.logits(states[np.concatenate(order)])

    def _vector(self) -> np.ndarray:
        """All states as one, [E]."""
        way = self._params.pooling_type
        if way == "MEAN":
            return self._total / self._count
        if way == "MEAN_SQRT_LEN":
            return self._total / math.sqrt(self._count)
        if not self._params.needs_tokens:
            return (self._first if way == "CLS" else self._last).astype(np.float64)
        tokens: np.ndarray = np.concatenate(self._tokens).astype(np.float64)
        if way == "WEIGHTEDMEAN":
            tokens = tokens * np.arange(1, len(tokens) + 1)[:, None]
            return tokens.sum(0) / (len(tokens) * (len(tokens) + 1) / 2)
        found: np.ndarray = tokens.max(0)
        return found


class PooledResults:
    """One output, made from the prompt's hidden states. The token that ends it is dropped.

    Attributes:
        streams, every_token: As in `Results`.
        num_generated: Output tokens that the client sees.
        counts_samples: As in `Results`.
    """

    streams = every_token = counts_samples = False
    num_generated = 0

    def __init__(self, prompt: Prompt, params: PooledParams, group: SequenceGroup) -> None:
        self._prompt = prompt
        self._group = group
        self._pooled = PooledPrompt(params, prompt.token_ids)

    def take_prompt(
        self, item: ScheduledSequence, index: int, row: int, result: StepResult
    ) -> None:
        """As `Results.take_prompt`."""
        if result.hidden is not None:
            self._pooled.add(item, result.hidden, index, row)

    def take_token(self, seq: Sequence, row: int, result: StepResult) -> str | None:
        """Ignores the token, which only shows that the whole prompt was computed."""
        return None

    def core_output(self, metrics: RequestMetrics, *, finished: bool) -> PoolingRequestOutput:
        """The output itself: the vector or scores; empty if it was aborted before any of it."""
        return PoolingRequestOutput(
            self._group.request_id,
            PoolingOutput(self._pooled.data()),
            self._prompt.token_ids,
            finished=self._group.seqs[0].finish_reason != "abort",
        )
