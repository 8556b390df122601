"""`SamplingParams.trace_decode_token_ids`: an output that is known is fed back token by token.

Log-probabilities and ranks are those that the model gives these tokens.
"""

from collections.abc import Sequence

import numpy as np

from jax_engine.errors import InvalidRequestError
from jax_engine.sampling_params import SamplingParams

_EXCLUDED = ("prompt_logprobs", "bad_words", "structured_outputs", "allowed_token_ids")


def replay_trace(params: SamplingParams, prompt_len: int, max_model_len: int) -> None:
    """Makes a request, the engine's own copy, draw its trace; without one it stays as it is.

    The trace is cut to what `max_model_len` leaves room for. Nothing else ends the output.

    Raises:
        InvalidRequestError: The trace is empty, or something else asks for other tokens.
    """
    trace = params.trace_decode_token_ids
    if trace is None:
        return
    if not trace:
        raise InvalidRequestError("trace_decode_token_ids must hold at least 1 id, got none")
    for name, default in [
        ("n", 1),
        ("use_beam_search", False),
        *((one, None) for one in _EXCLUDED),
    ]:
        if getattr(params, name) not in (default, []):
            raise InvalidRequestError(
                f"{name} must be left out with trace_decode_token_ids, got {getattr(params, name)}"
            )
    trace = trace[: max(1, max_model_len - prompt_len)]
    params.max_tokens, params.min_tokens, params.ignore_eos = len(trace), 0, True
    params.stop, params.stop_token_ids, params.best_of = None, [], None
    params.logits_processors = [Replay(trace)]


class Replay:
    """A logits processor that leaves the next token of a trace as the only one."""

    def __init__(self, trace: Sequence[int]) -> None:
        self._trace = list(trace)

    def __call__(self, output: list[int], logits: np.ndarray) -> np.ndarray:
        # A step planned ahead asks once more than there are tokens.
        token = self._trace[min(len(output), len(self._trace) - 1)]
        only = np.full_like(logits, -np.inf)
        only[token] = 0.0
        return only
