"""The checks of `SamplingParams` that need no model: ranges of fields, and contradictions.

`params` is always a `SamplingParams`; it is annotated `Any`, since that class imports this module.
"""

from collections.abc import Mapping
from typing import Any

from jax_engine.checks import check_integer, check_number
from jax_engine.errors import InvalidRequestError
from jax_engine.sampler_numbers import sampler_numbers

MAX_LOGPROB_TOKEN_IDS = 128  # vLLM's limit
MAX_SAMPLES = 16384  # as vLLM's VLLM_MAX_N_SEQUENCES


def check_sampling_params(params: Any) -> None:
    """
    Raises:
        InvalidRequestError: A field is out of range or contradicts another; the message names it.
    """
    _check_counts(params)
    _check_sampler(params)
    _check_stops(params)
    _check_constraints(params)
    _check_guide(params)
    _check_beams(params)


def clipped_bias(logit_bias: Mapping[int, float]) -> dict[int, float]:
    """Converts token ids to integers, and clips biases to [-100, 100].

    Raises:
        InvalidRequestError: A key is not a token id, or a value not a finite number.
    """
    clipped = {}
    for token, bias in logit_bias.items():
        try:
            token_id = int(token)  # clients of OpenAI's API send ids as strings
        except (TypeError, ValueError):
            raise InvalidRequestError(
                f"logit_bias must have token ids as keys, got {token!r}"
            ) from None
        check_integer("logit_bias", token_id, 0)
        check_number("logit_bias", bias)
        clipped[token_id] = min(100.0, max(-100.0, float(bias)))
    return clipped


def _check_counts(params: Any) -> None:
    check_integer("n", params.n, 1)
    if params.best_of is not None:
        check_integer("best_of", params.best_of, params.n, note=f" (n is {params.n})")
        _check_deltas(params)
    if params.num_samples > MAX_SAMPLES:
        raise InvalidRequestError(
            f"{_samples_name(params)} must be at most {MAX_SAMPLES}, got {params.num_samples}: "
            "ask in several requests, with a seed each"
        )
    if params.max_tokens is not None:
        check_integer("max_tokens", params.max_tokens, 1)
    check_integer("min_tokens", params.min_tokens, 0)
    if params.max_tokens is not None and params.min_tokens > params.max_tokens:
        raise InvalidRequestError(
            f"min_tokens must be at most max_tokens ({params.max_tokens}), got {params.min_tokens}"
        )
    for name in ("logprobs", "prompt_logprobs"):
        if getattr(params, name) is not None:
            check_integer(name, getattr(params, name), -1)
    _check_logprob_tokens(params)
    if params.truncate_prompt_tokens is not None and params.truncate_prompt_tokens != -1:
        check_integer("truncate_prompt_tokens", params.truncate_prompt_tokens, 1)
    if params.num_speculative_tokens is not None:
        check_integer("num_speculative_tokens", params.num_speculative_tokens, 0)
    if params.seed is not None:
        check_integer("seed", params.seed, -(2**63), 2**64 - 1)


def _check_logprob_tokens(params: Any) -> None:
    tokens = params.logprob_token_ids
    if tokens is None:
        return
    for token in tokens:
        check_integer("logprob_token_ids", token, 0)
    if not tokens or len(tokens) > MAX_LOGPROB_TOKEN_IDS:
        raise InvalidRequestError(
            f"logprob_token_ids must hold 1 to {MAX_LOGPROB_TOKEN_IDS} ids, got {len(tokens)}"
        )
    if params.logprobs not in (None, len(tokens)):
        raise InvalidRequestError(
            f"logprobs must be left out with logprob_token_ids, or their number ({len(tokens)}), "
            f"got {params.logprobs}"
        )


def _check_deltas(params: Any) -> None:
    """Refuses deltas with best_of > n: a streamed sample might not be among the results."""
    if params.gives_deltas and params.num_samples > params.n:
        raise InvalidRequestError(
            f"best_of must be n ({params.n}) with RequestOutputKind.DELTA, got "
            f"{params.best_of}: which ones are returned is known only at the end"
        )


def _samples_name(params: Any) -> str:
    """The field that says how many samples there are."""
    return "n" if params.best_of is None else "best_of"


def _check_sampler(params: Any) -> None:
    for name, number in sampler_numbers(type(params)).items():
        number.check(name, getattr(params, name))
    if params.greedy and params.num_samples > 1 and not params.use_beam_search:
        raise InvalidRequestError(
            f"{_samples_name(params)} must be 1 when temperature is 0 (greedy), got "
            f"{params.num_samples}: all of them would be the same; set a temperature above 0"
        )


def _check_stops(params: Any) -> None:
    for text in params.stop_strings:
        if not text:
            raise InvalidRequestError("stop must hold non-empty strings, got ''")
    if params.stop_strings and not params.detokenize:
        raise InvalidRequestError("stop needs text: set detokenize=True, or use stop_token_ids")
    for token in params.stop_token_ids or ():
        check_integer("stop_token_ids", token, 0)


def _check_constraints(params: Any) -> None:
    if params.allowed_token_ids is not None:
        for token in params.allowed_token_ids:
            check_integer("allowed_token_ids", token, 0)
        if not params.allowed_token_ids:
            raise InvalidRequestError("allowed_token_ids must hold at least 1 id, got none")
    for word in params.bad_words or ():
        if not word.strip():
            raise InvalidRequestError(f"bad_words must hold non-empty strings, got {word!r}")


def _check_guide(params: Any) -> None:
    if params.structured_outputs is None:
        return
    for name in ("ignore_eos", "min_tokens"):
        if getattr(params, name):
            raise InvalidRequestError(
                f"{name} must be left out with structured_outputs, got {getattr(params, name)}: "
                "an output that is complete can only end"
            )


def _check_beams(params: Any) -> None:
    # Any length to this power is then within the range of floats
    check_number("length_penalty", params.length_penalty, -32.0, 32.0)
    if not params.use_beam_search:
        return
    for name, number in sampler_numbers(type(params)).items():
        number.check_off(name, getattr(params, name), "use_beam_search")
    for name in ("stop", "logprobs", "logprob_token_ids"):
        if getattr(params, name) not in (None, []):
            raise InvalidRequestError(
                f"{name} must be left out with use_beam_search, got {getattr(params, name)!r}"
            )
