"""From logits to a distribution to a token.

Section 5.2 of the paper: `fork`, `append` and `free` make decoding algorithms out of sequences;
what picks each next token is this. The rules, in this order:

0. to 3. edit the logits: see the chapter `logits`. Here it goes on:
4. temperature: below 1e-5 the token is the argmax, the lowest id if several are equal, and rules 5
   to 9 do not apply. Else the logits are divided by it;
5. `top_n_sigma`: keep the logits that are at most n standard deviations below the largest one. The
   standard deviation is that of all logits that rules 0 to 3 left, so -inf does not count; it is
   the root of the mean squared distance from their mean. The temperature does not matter here,
   since it divides all differences alike. 0 is off;
6. `top_k`: keep the logits not below the k-th largest, so ties with it stay. 0 or -1 is off;
7. `top_p`, on the softmax of what is left: keep a token if and only if the mass of the tokens
   strictly more probable than it is below top_p. That is the smallest set of most probable tokens
   whose mass reaches top_p, the one that crosses the boundary included, and its ties. 1 is off;
8. `min_p`: keep tokens at least min_p times as probable as the most probable one. 0 is off;
9. the probabilities left are made to sum to 1, and one number u in [0, 1) picks: the smallest id
   whose cumulative probability, summed in order of the ids, is larger than u.

u = uniform(seed, position), of the chapter `random_numbers`, where the position is the number of
tokens before the sampled one. So a request's tokens depend on its seed and its own tokens alone,
not on its neighbours in the batch, nor on preemption. Sample i of a request (n > 1) has a seed of
its own, `derive_seed(seed, i)`.

Log-probabilities are those of the raw logits (`log_softmax`), before rule 0. Beam search alone
goes by those of the edited logits, which rule 4 has divided by the temperature (`candidates`).

Rules 0 to 3 may leave no token at all. Then there is nothing to draw (`NoTokenLeft`, or no
candidates), and the sequence cannot go on: its request is aborted, with `NO_TOKEN` as the reason.
Of beams one may die, as one that nobody continues; the request is aborted if there is neither a
beam that can go on nor an output that has ended.

V is the size of the vocabulary. Everything is float64.
"""

from collections.abc import Collection

import numpy as np
from jaxtyping import Float

from reference.logits import TokenIds, edit_logits
from reference.random_numbers import uniform
from reference.sampling_options import NO_TOKEN, Candidate, SamplingOptions

GREEDY_BELOW = 1e-5


class NoTokenLeft(ValueError):
    """Rules 0 to 3 forbid each token."""


def log_softmax(logits: Float[np.ndarray, "V"]) -> Float[np.ndarray, "V"]:
    """Log-probabilities of the raw logits.

    >>> np.exp(log_softmax(np.log([2.0, 6.0]))).round(9).tolist()
    [0.25, 0.75]
    """
    shifted = logits.astype(np.float64) - logits.max()
    return np.asarray(shifted - np.log(np.exp(shifted).sum()))


def keep_top_n_sigma(logits: Float[np.ndarray, "V"], n: float) -> Float[np.ndarray, "V"]:
    """Rule 5.

    The mean of 5, 3, 1 and -1 is 2, and their standard deviation is the root of 5, about 2.24. So
    one of them reaches down from 5 to 2.76, and two reach down to 0.53:

    >>> keep_top_n_sigma(np.array([5.0, 3.0, 1.0, -1.0, -np.inf]), 1.0).tolist()
    [5.0, 3.0, -inf, -inf, -inf]
    >>> keep_top_n_sigma(np.array([5.0, 3.0, 1.0, -1.0, -np.inf]), 2.0).tolist()
    [5.0, 3.0, 1.0, -inf, -inf]
    """
    if n <= 0.0:
        return logits
    possible = logits[logits > -np.inf]
    return np.where(logits >= possible.max() - n * possible.std(), logits, -np.inf)


def keep_top_k(logits: Float[np.ndarray, "V"], k: int) -> Float[np.ndarray, "V"]:
    """Rule 6.

    >>> keep_top_k(np.array([1.0, 3.0, 2.0, 2.0]), 2).tolist()
    [-inf, 3.0, 2.0, 2.0]
    """
    if k <= 0 or k >= len(logits):
        return logits
    return np.where(logits >= np.sort(logits)[-k], logits, -np.inf)


def keep_top_p(logits: Float[np.ndarray, "V"], p: float) -> Float[np.ndarray, "V"]:
    """Rule 7.

    Of 1/2, 1/4, 1/8, 1/8, a top_p of 0.6 is crossed by the second token. With 0.8 it is crossed by
    the third, and the fourth is as probable:

    >>> logits = np.log([0.5, 0.25, 0.125, 0.125])
    >>> np.isfinite(keep_top_p(logits, 0.6)).tolist()
    [True, True, False, False]
    >>> np.isfinite(keep_top_p(logits, 0.8)).tolist()
    [True, True, True, True]
    """
    if p >= 1.0:
        return logits
    probabilities = _softmax(logits)
    descending = np.sort(probabilities)[::-1]
    mass_of_first = np.concatenate([[0.0], np.cumsum(descending)])
    more_probable = np.searchsorted(-descending, -probabilities, side="left")
    return np.where(mass_of_first[more_probable] < p, logits, -np.inf)


def keep_min_p(logits: Float[np.ndarray, "V"], min_p: float) -> Float[np.ndarray, "V"]:
    """Rule 8. Only a quotient of probabilities counts, so it does not matter what was cut before.

    >>> np.isfinite(keep_min_p(np.log([0.6, 0.3, 0.1]), 0.25)).tolist()
    [True, True, False]
    """
    probabilities = _softmax(logits)
    return np.where(probabilities >= min_p * probabilities.max(), logits, -np.inf)


def distribution(
    logits: Float[np.ndarray, "V"],
    params: SamplingOptions,
    *,
    prompt_token_ids: TokenIds = (),
    output_token_ids: TokenIds = (),
    eos_token_ids: Collection[int] = (),
) -> Float[np.ndarray, "V"]:
    """Rules 0 to 8: the probability of each token. Of one alone, when the temperature is 0.

    Raises NoTokenLeft if there is none to have one.
    """
    edited = edit_logits(
        logits,
        params,
        prompt_token_ids=prompt_token_ids,
        output_token_ids=output_token_ids,
        eos_token_ids=eos_token_ids,
    )
    if edited.max() == -np.inf:
        raise NoTokenLeft(NO_TOKEN)
    if params.temperature < GREEDY_BELOW:
        certain = np.zeros(len(edited))
        certain[np.argmax(edited)] = 1.0
        return certain
    kept = keep_top_n_sigma(edited / params.temperature, float(params.top_n_sigma))
    kept = keep_top_k(kept, params.top_k)
    kept = keep_top_p(kept, float(params.top_p))
    return _softmax(keep_min_p(kept, float(params.min_p)))


def draw(probabilities: Float[np.ndarray, "V"], u: float) -> int:
    """Rule 9. The last cumulative probability is 1 exactly, so every u < 1 picks a token.

    >>> [draw(np.array([0.25, 0.0, 0.75]), u) for u in (0.0, 0.24, 0.25, 0.99)]
    [0, 0, 2, 2]
    """
    cumulative = np.cumsum(probabilities)
    return int(np.searchsorted(cumulative / cumulative[-1], u, side="right"))


def candidates(
    logits: Float[np.ndarray, "V"],
    params: SamplingOptions,
    count: int,
    *,
    prompt_token_ids: TokenIds = (),
    output_token_ids: TokenIds = (),
    eos_token_ids: Collection[int] = (),
) -> list[Candidate]:
    """What beam search draws: the `count` most probable tokens with their log-probabilities, after
    rules 0 to 4; best first, of equal ones the lowest id. Fewer, or none, if fewer are possible.

    >>> from types import SimpleNamespace
    >>> params = SimpleNamespace(repetition_penalty=1.0, frequency_penalty=0.0, min_tokens=0,
    ...     presence_penalty=0.0, logit_bias=None, temperature=0.0, allowed_token_ids=[1, 2, 3])
    >>> logits = np.log([5.0, 1.0, 2.0, 1.0])
    >>> drawn = candidates(logits, params, 2)
    >>> [(token, float(np.exp(logprob).round(2))) for token, logprob in drawn]
    [(2, 0.5), (1, 0.25)]
    """
    edited = edit_logits(
        logits,
        params,
        prompt_token_ids=prompt_token_ids,
        output_token_ids=output_token_ids,
        eos_token_ids=eos_token_ids,
    )
    if edited.max() == -np.inf:
        return []
    if params.temperature >= GREEDY_BELOW:
        edited = edited / params.temperature
    logprobs = log_softmax(edited)
    best_first = np.argsort(-logprobs, kind="stable")[:count]
    return [
        (int(token), float(logprobs[token])) for token in best_first if logprobs[token] > -np.inf
    ]


def sample(
    logits: Float[np.ndarray, "V"],
    params: SamplingOptions,
    *,
    prompt_token_ids: TokenIds,
    output_token_ids: TokenIds,
    eos_token_ids: Collection[int] = (),
    seed: int = 0,
) -> int:
    """The next token of a sequence: all rules.

    Raises NoTokenLeft if there is none.
    """
    probabilities = distribution(
        logits,
        params,
        prompt_token_ids=prompt_token_ids,
        output_token_ids=output_token_ids,
        eos_token_ids=eos_token_ids,
    )
    return draw(probabilities, uniform(seed, len(prompt_token_ids) + len(output_token_ids)))


def _softmax(logits: Float[np.ndarray, "V"]) -> Float[np.ndarray, "V"]:
    weights = np.exp(logits - logits.max())
    return np.asarray(weights / weights.sum())
