"""What a runner is told of a request, once: its sampling parameters, packed."""

import numpy as np
from jaxtyping import Int32

from jax_engine.engine.pooling import PooledParams
from jax_engine.sampling.inputs import sampling_row
from jax_engine.sampling_params import SamplingParams
from jax_engine.step import RequestSetup

_MASK = 2**64 - 1


def request_setup(
    number: int,
    prompt_token_ids: list[int],
    params: SamplingParams,
    seed: int,
    eos_token_ids: frozenset[int],
) -> RequestSetup:
    """Packs a request's parameters; sample i draws with `derive_seed(seed, i)`.

    Args:
        number: See `RequestSetup`.
    """
    rows = [sampling_row(params, derive_seed(seed, i)) for i in range(params.num_samples)]
    bias = params.logit_bias or {}
    ends = sorted(eos_token_ids | set(params.stop_token_ids or ()))
    pooling = params.pooling if isinstance(params, PooledParams) else None
    return RequestSetup(
        number,
        prompt_token_ids,
        np.stack(rows),
        bias=_entries(list(bias), list(bias.values())),
        forbidden=_entries(ends, [-np.inf] * len(ends)),
        min_tokens=params.min_tokens,
        edits_logits=bool(bias) or params.min_tokens > 0 or params.has_penalties,
        has_penalties=params.has_penalties,
        wants_logprobs=params.needs_logprobs,
        needs_logits=params.needs_logits,
        prompt_logprobs=params.prompt_logprobs,
        pooling=pooling is not None,
        token_states=pooling is not None and pooling.needs_tokens,
        is_special=params.needs_logits or params.prompt_logprobs is not None or pooling is not None,
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


def _entries(tokens: list[int], values: list[float]) -> Int32[np.ndarray, "2 entries"]:
    bits = np.array(values, np.float32).view(np.int32)
    return np.stack([np.array(tokens, np.int32), bits])
