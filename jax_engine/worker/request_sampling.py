"""What the worker keeps of a request's `SamplingParams`: rows packed once, and the sparse edits."""

from dataclasses import dataclass

import numpy as np

from jax_engine.core.output import ScheduledSequence
from jax_engine.sampling.inputs import sampling_row
from jax_engine.sampling_params import SamplingParams
from jax_engine.worker.constraints import RequestConstraints
from jax_engine.worker.prompt_logprobs import NUM_TOP

_NONE = np.zeros((3, 0), np.int32)
_MASK = 2**64 - 1


@dataclass(frozen=True, slots=True)
class RequestSampling:
    """One request's settings as the device wants them.

    Attributes:
        rows: One row of words for each of the request's samples (their seeds differ), each
            [1, ROW_WIDTH] so that rows of many requests concatenate.
        bias: Entries (token, value bits) of `logit_bias`, [2, entries].
        forbidden: Entries (token, bits of -inf) while `min_tokens` is not reached.
        min_tokens: As in the request's params.
        has_penalties: Whether the token history must travel.
        wants_logprobs: Whether log-probabilities must come back.
        edits_logits: Whether there is any of bias, forbidden tokens or penalties.
        constraints: What masks its tokens from the host, if anything.
        prompt_logprobs: Whether its prompt's log-probabilities are wanted.
        whole_prompt_logprobs: Whether those of more tokens than a step usually gives.
        needs_logits: Whether the raw logits must come to the host.
        pooling: Whether its hidden states are.
    """

    rows: list[np.ndarray]
    bias: np.ndarray
    forbidden: np.ndarray
    min_tokens: int
    has_penalties: bool
    wants_logprobs: bool
    edits_logits: bool
    constraints: RequestConstraints | None = None
    prompt_logprobs: bool = False
    whole_prompt_logprobs: bool = False
    needs_logits: bool = False
    pooling: bool = False

    @property
    def special(self) -> bool:
        """Whether a step with it is not the ordinary one."""
        masked = self.constraints is not None or self.needs_logits
        return masked or self.prompt_logprobs or self.pooling


def request_sampling(
    params: SamplingParams,
    seed: int,
    eos_token_ids: frozenset[int],
    constraints: RequestConstraints | None = None,
) -> RequestSampling:
    """Packs the settings; sample i draws with `derive_seed(seed, i)`."""
    rows = [sampling_row(params, derive_seed(seed, i)) for i in range(params.num_samples)]
    bias = params.logit_bias or {}
    ends = sorted(eos_token_ids | set(params.stop_token_ids or ()))
    return RequestSampling(
        rows=[row[None] for row in rows],
        bias=_entries(list(bias), list(bias.values())),
        forbidden=_entries(ends, [-np.inf] * len(ends)),
        min_tokens=params.min_tokens,
        has_penalties=params.has_penalties,
        wants_logprobs=params.needs_logprobs,
        edits_logits=bool(bias) or params.min_tokens > 0 or params.has_penalties,
        constraints=constraints,
        prompt_logprobs=params.prompt_logprobs is not None,
        whole_prompt_logprobs=not 0 <= (params.prompt_logprobs or 0) <= NUM_TOP,
        needs_logits=params.needs_logits,
        pooling=getattr(params, "pooling", None) is not None,
    )


def request_seed(params: SamplingParams, engine_seed: int, number: int) -> int:
    """The request's own seed, or one drawn for the number-th request of an engine."""
    if params.seed is not None:
        return params.seed
    return int(np.random.SeedSequence([engine_seed, number]).generate_state(1, np.uint64)[0])


def derive_seed(seed: int, sample: int) -> int:
    """The seed of a request's i-th sample: its own for i = 0, else SplitMix64's i-th output.

    A single request with that seed draws the same tokens (I37). One bit is dropped so that the
    result is a valid `SamplingParams.seed` everywhere.
    """
    if sample == 0:
        return seed & _MASK
    mixed = (seed + sample * 0x9E3779B97F4A7C15) & _MASK
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = ((mixed ^ (mixed >> shift)) * factor) & _MASK
    return (mixed ^ (mixed >> 31)) >> 1


def sparse_entries(
    samplers: list[ScheduledSequence], states: list[RequestSampling]
) -> tuple[np.ndarray, np.ndarray]:
    """Bias entries (row, token, bits) and history entries (row, token, is_output) of a step."""
    if not any([state.edits_logits for state in states]):
        return _NONE, _NONE
    bias: list[np.ndarray] = []
    history: list[np.ndarray] = []
    row = 0
    for item, state in zip(samplers, states, strict=True):
        rows = range(row, row + item.num_samples)
        row += item.num_samples
        output_len = item.seq.num_tokens - item.group.prompt_len
        if state.bias.size:
            bias += [_with_row(r, state.bias) for r in rows]
        if output_len < state.min_tokens:
            bias += [_with_row(r, state.forbidden) for r in rows]
        if state.has_penalties:
            entries = _history(item)
            history += [_with_row(r, entries) for r in rows]
    return (
        np.concatenate(bias, axis=1) if bias else _NONE,
        np.concatenate(history, axis=1) if history else _NONE,
    )


def _entries(tokens: list[int], values: list[float]) -> np.ndarray:
    bits = np.array(values, np.float32).view(np.int32)
    return np.stack([np.array(tokens, np.int32), bits])


def _history(item: ScheduledSequence) -> np.ndarray:
    known, pending = item.seq.token_ids, item.seq.pending
    tokens = np.array([*known, pending] if pending else known, np.int32)
    return np.stack([tokens, (np.arange(len(tokens)) >= item.group.prompt_len).astype(np.int32)])


def _with_row(row: int, entries: np.ndarray) -> np.ndarray:
    return np.concatenate([np.full((1, entries.shape[1]), row, np.int32), entries])
