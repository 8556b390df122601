"""`LLM.embed`: a request like any other, of which only the prompt's hidden states are wanted."""

from dataclasses import dataclass

import numpy as np

from jax_engine.core.output import ScheduledSequence
from jax_engine.pooling_params import PoolingParams
from jax_engine.sampling_params import RequestOutputKind, SamplingParams
from jax_engine.worker.pooling import PooledStates


@dataclass(kw_only=True)
class PooledParams(SamplingParams):
    """A pooling request as the scheduler sees it: it ends with one token, which is dropped."""

    pooling: PoolingParams


def as_sampling_params(params: SamplingParams | PoolingParams) -> SamplingParams:
    """`PoolingParams` are accepted wherever `SamplingParams` are."""
    if not isinstance(params, PoolingParams):
        return params
    return PooledParams(
        pooling=params,
        max_tokens=1,
        temperature=0.0,
        detokenize=False,
        output_kind=RequestOutputKind.FINAL_ONLY,
    )


class PooledPrompt:
    """The hidden states of one prompt, pooled or collected as its chunks are computed."""

    def __init__(self, params: PoolingParams) -> None:
        self._params = params
        self._count = 0
        self._total = np.zeros(0)
        self._last = np.zeros(0)
        self._tokens: list[np.ndarray] = []

    def add(self, item: ScheduledSequence, states: PooledStates, index: int, row: int) -> None:
        """Takes a chunk's states.

        Args:
            index: Of the sequence in the step.
            row: Of its first token in the step.
        """
        if item.start == 0:  # the first time, or again: it was preempted by recompute
            self._count, self._total, self._tokens = 0, np.zeros(1), []
        self._count += item.num_tokens
        if self._params.task == "token_embed":
            self._tokens.append(np.asarray(states.tokens)[row : row + item.num_tokens])
        self._total = self._total + np.asarray(states.total)[index]
        self._last = np.asarray(states.last)[index]

    def data(self) -> np.ndarray:
        """[E], or [T, E] for each token; empty while nothing was computed."""
        if not self._count:
            return np.zeros(0)
        if self._params.task == "token_embed":
            pooled = np.concatenate(self._tokens)
        elif self._params.pooling_type == "MEAN":
            pooled = self._total / self._count
        else:
            pooled = self._last.astype(np.float64)
        if self._params.normalize:
            lengths = np.linalg.norm(pooled, axis=-1, keepdims=True)
            pooled = pooled / np.maximum(lengths, 1e-12)
        return pooled
