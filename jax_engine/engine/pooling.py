"""`LLM.embed`: a request like any other, of which only the prompt's hidden states are wanted."""

from dataclasses import dataclass

import numpy as np

from jax_engine.core.output import ScheduledSequence
from jax_engine.pooling_params import PoolingParams
from jax_engine.sampling_params import RequestOutputKind, SamplingParams


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
    """The hidden states of one prompt, pooled as its chunks are computed."""

    def __init__(self, params: PoolingParams) -> None:
        self._params = params
        self._count = 0
        self._total = np.zeros(0)
        self._last = np.zeros(0)

    def add(self, item: ScheduledSequence, total: np.ndarray, last: np.ndarray) -> None:
        """Takes a chunk's sum of hidden states [E], and the last of them [E]."""
        if item.start == 0:  # the first time, or again: it was preempted by recompute
            self._count, self._total = 0, np.zeros(len(total))
        self._count += item.num_tokens
        self._total = self._total + total
        self._last = last

    def embedding(self) -> list[float]:
        """[E]; empty while nothing was computed."""
        if not self._count:
            return []
        mean = self._params.pooling_type == "MEAN"
        pooled = self._total / self._count if mean else self._last.astype(np.float64)
        if self._params.normalize:
            pooled = pooled / max(float(np.linalg.norm(pooled)), 1e-12)
        values: list[float] = pooled.tolist()
        return values
