"""A beam search without an engine: every beam computed from scratch, in a dozen lines."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from reference.sampling import candidates
from reference.sampling_options import NO_TOKEN
from tests.support.strategies import EOS

LogitsAfter = Callable[[list[int]], np.ndarray]
Ended = tuple[list[int], float, str, int | str | None]
"""Output tokens, cumulative log-probability, finish reason, stop reason."""


def search_without_cache(
    prompt: Sequence[int],
    params: Any,
    max_model_len: int,
    logits_after: LogitsAfter,
    eos_token_id: int = EOS,
) -> list[Ended]:
    """Each beam from scratch at each token, all tokens of all beams in one list."""
    width, penalty = params.best_of or params.n, params.length_penalty
    longest = min(params.max_tokens or max_model_len, max_model_len - len(prompt))
    reasons = {token: ("stop", token) for token in params.stop_token_ids}
    reasons |= {} if params.ignore_eos else {eos_token_id: ("stop", None)}
    live: list[tuple[float, list[int]]] = [(0.0, [])]
    done: list[tuple[float, Ended]] = []
    for length in range(1, longest + 1):
        ways = []
        for value, output in live:
            logits = logits_after([*prompt, *output])
            context = {"prompt_token_ids": prompt, "output_token_ids": output}
            ranked = candidates(
                logits, params, len(logits), **context, eos_token_ids={eos_token_id}
            )
            ways += [(value + logprob, [*output, token]) for token, logprob in sorted(ranked)]
        if not ways and not done:
            return [(output, value, "abort", NO_TOKEN) for value, output in live][: params.n]
        ways.sort(key=lambda way: -way[0])
        live = []
        for place, (value, output) in enumerate(ways):
            reason = reasons.get(output[-1]) or (("length", None) if length == longest else None)
            if reason is None:
                live.append((value, output))
            elif place < width:
                done.append((value / length**penalty, (output, value, *reason)))
        live = live[:width]
        done = sorted(done, key=lambda one: -one[0])[:width]
        if len(done) < width or not live:
            continue
        horizon = longest if params.early_stopping == "never" and penalty > 0 else length
        if params.early_stopping is True or live[0][0] / horizon**penalty <= done[-1][0]:
            break
    return [ended for _, ended in done[: params.n]]


def rounding_decides(
    search: Callable[[LogitsAfter], list[Ended]], logits_after: LogitsAfter, tolerance: float
) -> bool:
    """Whether a search finds something else when noise of this size is added to all logits."""

    def noisy(seed: int) -> LogitsAfter:
        def logits_with_noise(tokens: list[int]) -> np.ndarray:
            logits = logits_after(tokens)
            noise = np.random.default_rng([seed, *tokens]).uniform(-1, 1, logits.shape)
            return np.asarray(logits + tolerance * noise)

        return logits_with_noise

    exact = [ended[0] for ended in search(logits_after)]
    return any([ended[0] for ended in search(noisy(seed))] != exact for seed in range(8))
