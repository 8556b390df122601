"""Whether an engine's tokens are the oracle's.

Where they differ, the oracle's logits of the two candidates decide whether it is rounding.
"""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jax_engine import RequestOutput
from reference import sampling as reference_sampling
from reference.kv_cache import KVCache
from reference.random_numbers import derive_seed, request_seed, uniform
from reference.sequence import SequenceGroup
from reference.transformer import Transformer
from tests.support.beam_oracle import Ended, LogitsAfter, rounding_decides, search_without_cache
from tests.support.quantised_llama import RoundedInputs
from tests.support.tiny_llama import EOS

MAX_LEN = 40
ENGINE_SEED = 7  # from which requests without one draw theirs
TOLERANCE = 1e-4  # of logits in float32, two layers
LOGPROB_TOLERANCE = 1e-3  # of log-probabilities in float32, and of their sums over an output
# The same over an 8-bit cache, and with inputs rounded to 8 bits: where rounding decides between
# two codes, they are a step apart. Noise of float32 in the oracle's inputs changes a code in 3 of
# 100 sequences with "w8a8", and then logits by 0.14 at most (4,000 sequences of 40 tokens).
TOLERANCES = {"auto": TOLERANCE, "int8": 5e-3, "fp8": 2e-2, "w8a8": 0.2}


class Oracle(Transformer):
    """The oracle's decoder over a cache like the engine's.

    Attributes:
        cache: Arguments of its caches beside their sizes.
        tolerance: How far its logits may differ.
    """

    cache: Mapping[str, Any] = {}
    tolerance = TOLERANCE


def tolerance_of(transformer: Transformer | None) -> float:
    """The most that a logit may differ from the oracle's."""
    if isinstance(transformer, RoundedInputs):
        return TOLERANCES["w8a8"]
    return transformer.tolerance if isinstance(transformer, Oracle) else TOLERANCE


def tolerance_of_sum(transformer: Transformer | None, count: int) -> float:
    """The most that the sum of `count` log-probabilities may differ.

    Each term may be off by the tolerance of one, and all in the same direction: a code of an 8-bit
    cache that is a step away stays there for every later token. So the sum may be off by `count`
    times as much, and no more.
    """
    return max(LOGPROB_TOLERANCE, count * tolerance_of(transformer))


def cache_for(transformer: Transformer, **sizes: int) -> KVCache:
    """A cache of the oracle's."""
    own = transformer.cache if isinstance(transformer, Oracle) else {}
    return KVCache(**transformer.config.cache_sizes(), **sizes, **own)


def same_or_rounding(
    transformer: Transformer | None, group: SequenceGroup, index: int, tokens: list[int]
) -> bool:
    """Whether `tokens` are the reference's, up to the first place where rounding may decide.

    Without a transformer nothing is rounded.

    Raises:
        AssertionError: They differ where the reference's logits leave no doubt.
    """
    wanted = group.seqs[index].output_token_ids
    if tokens == wanted:
        return True
    assert transformer is not None, f"engine {tokens}, reference {wanted}"
    at = next((i for i, (a, b) in enumerate(zip(tokens, wanted, strict=False)) if a != b), None)
    assert at is not None, f"lengths differ: engine {tokens}, reference {wanted}"
    context = group.seqs[index].token_ids[: group.prompt_len + at]
    logits = naive_logits(transformer, context, group.prompt_embeds)
    params: Any = group.params
    seed = derive_seed(request_seed(params.seed, ENGINE_SEED, group.add_index), index)
    probabilities = reference_sampling.distribution(
        logits,
        params,
        prompt_token_ids=context[: group.prompt_len],
        output_token_ids=context[group.prompt_len :],
        eos_token_ids=group.eos_token_ids,
    )
    if params.temperature < reference_sampling.GREEDY_BELOW:
        margin = abs(float(logits[tokens[at]] - logits[wanted[at]]))
    else:
        edges = np.cumsum(probabilities)
        margin = float(np.abs(edges - uniform(seed, len(context))).min())
    assert margin < tolerance_of(transformer), (
        f"token {at}: {tokens[at]} for {wanted[at]}, margin {margin}"
    )
    return False


def same_beams_or_rounding(
    transformer: Transformer | None, group: SequenceGroup, output: RequestOutput
) -> bool:
    """Whether its hypotheses are the reference's.

    Raises:
        AssertionError: They are not, and no noise explains them.
    """
    found = [(one.token_ids, one.finish_reason, one.stop_reason) for one in output.outputs]
    wanted = [(seq.output_token_ids, seq.finish_reason, seq.stop_reason) for seq in group.best]
    if found == wanted:
        for one, seq in zip(output.outputs, group.best, strict=True):
            assert one.cumulative_logprob is not None and one.logprobs is not None
            pairs = zip(one.logprobs, one.token_ids, strict=True)
            own = [entry[token].logprob for entry, token in pairs]
            tolerance = max(LOGPROB_TOLERANCE, tolerance_of(transformer))
            np.testing.assert_allclose(own, seq.logprobs, atol=tolerance)
            assert abs(one.cumulative_logprob - sum(own)) < LOGPROB_TOLERANCE
            difference = abs(one.cumulative_logprob - seq.cumulative_logprob)
            assert difference < tolerance_of_sum(transformer, len(own))
        return True

    assert transformer is not None, f"engine {found}, reference {wanted}"

    def search(logits_after: LogitsAfter) -> list[Ended]:
        prompt = list(group.prompt_token_ids)
        return search_without_cache(prompt, group.params, MAX_LEN, logits_after, EOS)

    exact = functools.partial(naive_logits, transformer, prompt_embeds=group.prompt_embeds)
    tolerance = tolerance_of(transformer)
    assert rounding_decides(search, exact, tolerance), f"engine {found}, reference {wanted}"
    return False


def naive_pass(
    transformer: Transformer, token_ids: Sequence[int], prompt_embeds: np.ndarray | None = None
) -> np.ndarray:
    """Hidden states [T, E] of these tokens, by a forward pass without any history (I39).

    Args:
        prompt_embeds: What is read in place of the first ones.
    """
    count = len(token_ids)
    cache = cache_for(transformer, num_blocks=1, block_size=count)
    positions = np.arange(count)
    inputs = [] if prompt_embeds is None else [dict(enumerate(prompt_embeds))]
    return transformer.forward(
        np.array(token_ids), positions, cache, np.array([[0]]), np.array([count]),
        np.array([0, count]), positions, *inputs,
    )  # fmt: skip


def naive_logits(
    transformer: Transformer, token_ids: Sequence[int], prompt_embeds: np.ndarray | None = None
) -> np.ndarray:
    """Logits [V] after these tokens."""
    hidden = naive_pass(transformer, token_ids, prompt_embeds)
    return np.asarray(transformer.compute_logits(hidden[-1:])[0])
