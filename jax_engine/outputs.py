"""Outputs of requests, with the names of vLLM's `RequestOutput`.

Log-probabilities of tokens come as objects (`Logprob`) or in flat lists (`FlatLogprobs`).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, overload

import msgspec
import numpy as np

if TYPE_CHECKING:
    from jax_engine.lora.request import LoRARequest  # imports what takes long


class Logprob(msgspec.Struct, frozen=True, gc=False):
    """Log-probability of one token, from the raw logits (before penalties and temperature).

    In a beam search it comes from the processed logits, which the search compares.

    Attributes:
        logprob: Natural logarithm, <= 0.
        rank: 1 for the most probable token of the vocabulary.
        decoded_token: The token's own text, None without a tokenizer.
    """

    logprob: float
    rank: int
    decoded_token: str | None = None


@dataclass(slots=True)
class FlatLogprobs(Sequence[dict[int, Logprob] | None]):
    """For each position, token id to `Logprob`, stored in a few flat lists.

    Position i has the entries `start_indices[i]:end_indices[i]` of the other lists; a position
    without entries reads as None. Reading a position makes its dict.
    """

    start_indices: list[int] = field(default_factory=list)
    end_indices: list[int] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    ranks: list[int] = field(default_factory=list)
    decoded_tokens: list[str | None] = field(default_factory=list)

    @classmethod
    def of(cls, positions: Iterable[Mapping[int, Logprob] | None]) -> "FlatLogprobs":
        flat = cls()
        flat.extend(positions)
        return flat

    def extend(self, positions: Iterable[Mapping[int, Logprob] | None]) -> None:
        for position in positions:
            self.append(position)

    def append(self, position: Mapping[int, Logprob] | None) -> None:
        self.start_indices.append(len(self.token_ids))
        for token, entry in (position or {}).items():
            self.token_ids.append(token)
            self.logprobs.append(entry.logprob)
            self.ranks.append(entry.rank)
            self.decoded_tokens.append(entry.decoded_token)
        self.end_indices.append(len(self.token_ids))

    def __len__(self) -> int:
        return len(self.start_indices)

    @overload
    def __getitem__(self, index: int) -> dict[int, Logprob] | None: ...

    @overload
    def __getitem__(self, index: slice) -> "FlatLogprobs": ...

    def __getitem__(self, index: int | slice) -> "dict[int, Logprob] | FlatLogprobs | None":
        if isinstance(index, slice):
            return FlatLogprobs.of([self[i] for i in range(*index.indices(len(self)))])
        entries = range(self.start_indices[index], self.end_indices[index])
        return {
            self.token_ids[i]: Logprob(self.logprobs[i], self.ranks[i], self.decoded_tokens[i])
            for i in entries
        } or None


@dataclass(slots=True)
class CompletionOutput:
    """One sampled sequence of a request.

    Attributes:
        index: Number of the sample in its request, 0 .. best_of - 1; in a beam search, the rank.
        text: The output text, up to the stop string.
        token_ids: The output tokens, including the one that ended it.
        cumulative_logprob: Sum over the output tokens; None unless log-probabilities were computed.
        logprobs: For each output token, token id to `Logprob`; None unless asked for. A beam search
            always gives them, for the output tokens alone.
        finish_reason: "stop", "length", "abort", or None while it is running.
        stop_reason: The stop string or stop token id that ended it, or why it was aborted, such as
            "timeout" at its deadline; otherwise None.
    """

    index: int
    text: str
    token_ids: list[int]
    cumulative_logprob: float | None = None
    logprobs: list[dict[int, Logprob]] | FlatLogprobs | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None

    def finished(self) -> bool:
        return self.finish_reason is not None


@dataclass(slots=True)
class RequestMetrics:
    """Times of one request, in seconds of `time.monotonic()`; None while not reached.

    Attributes:
        num_draft_tokens: Tokens that were guessed and verified (`speculative_config`); 0 until it
            has finished.
        num_accepted_tokens: Those of them that were right and followed by a token of the same
            step, which the step would not have yielded without them.
        num_accepted_prediction_tokens: Output tokens that were guessed out of the prompt's
            `prediction`, over all samples; 0 until it has finished.
        num_rejected_prediction_tokens: Tokens of the prediction that a sample did not say, over
            all samples.
        queued_time: When the engine accepted it.
        scheduled_time: When the first step that computes a part of it was planned.
        last_token_time: When its last token came. None until it has finished.
    """

    arrival_time: float
    first_token_time: float | None = None
    finished_time: float | None = None
    queued_time: float | None = None
    scheduled_time: float | None = None
    last_token_time: float | None = None
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0
    num_accepted_prediction_tokens: int = 0
    num_rejected_prediction_tokens: int = 0


@dataclass(slots=True)
class RequestOutput:
    """A request and its outputs so far, or with `RequestOutputKind.DELTA` what is new in them.

    Attributes:
        request_id: As given to `add_request`, or made by `generate`.
        prompt: The text, None when token ids were given.
        prompt_token_ids: The model's input, after `truncate_prompt_tokens`.
        outputs: n completions, by index (by cumulative log-probability when best_of > n; by score
            in a beam search, which may find fewer). A delta holds only those with new tokens or
            just finished.
        finished: Whether all of them have finished.
        num_cached_tokens: Prompt tokens whose KV came from the prefix cache.
        prompt_logprobs: For each prompt token, token id to `Logprob`, given the tokens before it;
            None for the first token (and, after an abort, for those not reached). None unless asked
            for. Only the first delta holds them.
        lora_request: The adapter that it was computed with, as the request named it.
    """

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]
    finished: bool
    num_cached_tokens: int = 0
    metrics: RequestMetrics = field(default_factory=lambda: RequestMetrics(0.0))
    prompt_logprobs: list[dict[int, Logprob] | None] | FlatLogprobs | None = None
    lora_request: "LoRARequest | None" = None


@dataclass(slots=True)
class PooledOutput[Outputs]:
    """What outputs made from hidden states have in common.

    Attributes:
        prompt_token_ids: The model's input.
        finished: False after an abort: the output covers a part of the prompt, or is empty.
        num_cached_tokens: Always 0: each token of the prompt is computed.
    """

    request_id: str
    outputs: Outputs
    prompt_token_ids: list[int]
    finished: bool
    num_cached_tokens: int = 0


@dataclass(slots=True)
class EmbeddingOutput:
    """One embedding: as many numbers as the model's width, or as `dimensions`."""

    embedding: list[float]

    @property
    def hidden_size(self) -> int:
        return len(self.embedding)


@dataclass(slots=True)
class EmbeddingRequestOutput(PooledOutput[EmbeddingOutput]):
    """The output of `LLM.embed` for one prompt."""


@dataclass(slots=True, eq=False)
class PoolingOutput:
    """Hidden states: pooled, float64 [E], or for each token of the prompt, float32 [T, E].

    With a model's head, its scores in float32: [C], or for each token [T, C].
    """

    data: np.ndarray


@dataclass(slots=True)
class PoolingRequestOutput(PooledOutput[PoolingOutput]):
    """The output of `LLM.encode` for one prompt."""


@dataclass(slots=True)
class ClassificationOutput:
    """The probability of each class."""

    probs: list[float]

    @property
    def num_classes(self) -> int:
        return len(self.probs)


@dataclass(slots=True)
class ClassificationRequestOutput(PooledOutput[ClassificationOutput]):
    """The output of `LLM.classify` for one prompt."""


@dataclass(slots=True)
class ScoringOutput:
    """How well two texts match; `LLM.score` explains the number."""

    score: float


@dataclass(slots=True)
class ScoringRequestOutput(PooledOutput[ScoringOutput]):
    """The output of `LLM.score` for one pair.

    Attributes:
        request_id: The id of the pair's request, or both requests' ids joined.
        prompt_token_ids: The pair's prompt, or the first text's tokens, then the second's.
    """


AnyRequestOutput = RequestOutput | PoolingRequestOutput


@dataclass(slots=True)
class BeamSearchSequence:
    """One hypothesis of `LLM.beam_search`.

    Attributes:
        tokens: Prompt and output tokens, including the one that ended it.
        logprobs: For each output token, its id to its `Logprob`.
        cum_logprob: Their sum.
        text: Text of all tokens; None without a tokenizer.
        finish_reason: "stop" or "length"; "abort" if no token was allowed.
        stop_reason: As in `CompletionOutput`.
    """

    tokens: list[int]
    logprobs: list[dict[int, Logprob]] | FlatLogprobs | None
    cum_logprob: float = 0.0
    text: str | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None


@dataclass(slots=True)
class BeamSearchOutput:
    """The hypotheses for one prompt, best score first."""

    sequences: list[BeamSearchSequence]
