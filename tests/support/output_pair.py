"""What the engine says of a request, against the oracle's sequence group (I30 to I39).

Where a token differs, rounding must have decided (`same_or_rounding`); from there on the two are
about different texts, and nothing more is compared.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jax_engine import RequestOutput
from reference.parameters import Parameters
from reference.sequence import SequenceGroup
from reference.transformer import Transformer
from tests.support.engine_pair import (
    LOGPROB_TOLERANCE,
    same_beams_or_rounding,
    same_or_rounding,
    tolerance_of,
    tolerance_of_sum,
)
from tests.support.sometimes import saw


def check_output(
    transformer: Transformer | None,
    group: SequenceGroup,
    output: RequestOutput,
    *,
    may_be_aborted: bool,
    alike: bool = True,
) -> bool:
    """Tokens, reasons and log-probabilities; False if rounding has led elsewhere.

    An output that was cut short is compared as far as it came; a beam search then has none.

    Args:
        alike: The oracle's was cut short where the engine's was, if any of it was.
    """
    params: Any = group.params
    aborted = any(one.finish_reason == "abort" for one in output.outputs)
    stuck = any(seq.finish_reason == "abort" for seq in group.seqs)  # the oracle's own, too
    assert may_be_aborted or stuck or not aborted, "nobody aborted it"
    if output.finished:
        saw("aborted" if aborted else "finished")
    tolerance = max(LOGPROB_TOLERANCE, tolerance_of(transformer))
    complete = output.finished and not aborted
    check_prompt_logprobs(group, output, complete=complete, tolerance=tolerance)
    if params.use_beam_search:
        return aborted or same_beams_or_rounding(transformer, group, output)
    same = True
    for one in output.outputs:
        wanted = group.seqs[one.index].output_token_ids
        if output.finished and one.finish_reason != "abort":
            matches = same_or_rounding(transformer, group, one.index, one.token_ids)
            if matches:
                seq = group.seqs[one.index]
                assert (one.finish_reason, one.stop_reason) == (seq.finish_reason, seq.stop_reason)
        else:
            matches = one.token_ids == wanted[: len(one.token_ids)]
            matches = matches or same_or_rounding(transformer, group, one.index, one.token_ids)
        same &= matches
        if matches:
            check_logprobs(params, group, one, tolerance)
            check_sum(params, group, one, tolerance_of_sum(transformer, len(one.token_ids)))
    if output.finished and not aborted:
        # A sample that was cut short may be one of those that are not shown.
        exactly = same and (alike or not may_be_aborted)
        most = max(len(seq.logprobs) for seq in group.seqs)
        limit = tolerance_of_sum(transformer, most)
        check_choice(params, group, output, exactly=exactly, tolerance=limit)
    return same


def check_choice(
    params: Parameters,
    group: SequenceGroup,
    output: RequestOutput,
    *,
    exactly: bool,
    tolerance: float,
) -> None:
    """All samples in order; or the n of best_of that the oracle ranks first (I51).

    Args:
        tolerance: How far a sample's sum of log-probabilities may differ.
    """
    found = [one.index for one in output.outputs]
    if not params.ranked:
        assert found == list(range(params.n))
        return
    saw("best_of")
    assert len(set(found)) == params.n and set(found) <= set(range(params.num_samples))
    if exactly and all(seq.logprobs for seq in group.seqs):
        totals = [sum(group.seqs[index].logprobs) for index in found]
        wanted = [sum(seq.logprobs) for seq in group.best]
        np.testing.assert_allclose(totals, wanted, atol=tolerance)


def check_sum(params: Parameters, group: SequenceGroup, one: Any, tolerance: float) -> None:
    """The log-probabilities of one sample's tokens added up: its own, and the oracle's."""
    if params.logprobs is None and not params.ranked:
        assert one.cumulative_logprob is None
        return
    if one.logprobs is not None:
        own = sum(
            entry[token].logprob for token, entry in zip(one.token_ids, one.logprobs, strict=True)
        )
        assert abs(one.cumulative_logprob - own) < LOGPROB_TOLERANCE
    total = sum(group.seqs[one.index].logprobs[: len(one.token_ids)])
    assert abs(one.cumulative_logprob - total) < tolerance


def check_logprobs(params: Parameters, group: SequenceGroup, one: Any, tolerance: float) -> None:
    """Checks each token of a sample: its log-probability, the most probable ones, and the ranks."""
    seq = group.seqs[one.index]
    if params.logprobs is None:
        assert one.logprobs is None
        return
    assert seq.distributions is not None and len(one.logprobs) == len(one.token_ids)
    for token, entry, row in zip(one.token_ids, one.logprobs, seq.distributions, strict=False):
        check_entry(entry, token, row, params.logprobs, tolerance)


def check_prompt_logprobs(
    group: SequenceGroup, output: RequestOutput, *, complete: bool, tolerance: float
) -> None:
    """At each position but the first; what was not computed when it was aborted is None."""
    found, rows = output.prompt_logprobs, group.prompt_logprobs
    if rows is None:
        assert found is None
        return
    assert found is not None and len(found) == group.prompt_len and found[0] is None
    params: Any = group.params
    for position in range(1, group.prompt_len):
        entry, row = found[position], rows[position]
        assert entry is not None or not complete
        if entry is not None:
            assert row is not None
            token = group.prompt_token_ids[position]
            check_entry(entry, token, row, params.prompt_logprobs, tolerance)


def check_entry(
    entry: Mapping[int, Any], token: int, row: np.ndarray, num_top: int, tolerance: float
) -> None:
    """The token first, then the `num_top` most probable (-1: all), with values and ranks.

    Args:
        row: [V], the oracle's log-probabilities.
    """
    tokens = list(entry)
    num_top = len(row) if num_top == -1 else min(num_top, len(row))
    assert tokens[0] == token and len(set(tokens)) == len(tokens)
    assert num_top <= len(tokens) <= num_top + 1
    top = tokens if len(tokens) == num_top else tokens[1:]
    if num_top:
        least = np.sort(row)[-num_top]
        assert all(row[one] > least - tolerance for one in top), "one is not among the best"
    for one, found in entry.items():
        assert abs(found.logprob - row[one]) < tolerance
        at_least = 1 + int((row > row[one] + tolerance).sum())
        assert at_least <= found.rank <= int((row > row[one] - tolerance).sum())


def check_cache_hits(
    block_size: int, served: Sequence[tuple[SequenceGroup, RequestOutput]]
) -> None:
    """I26, I29: what a prompt found in the cache, another of its salt has had, in whole blocks."""
    for group, output in served:
        cached = output.num_cached_tokens
        assert cached % block_size == 0 and cached < group.prompt_len
        start = list(group.prompt_token_ids[:cached])
        others = [one for one in served if one[0] is not group]
        assert not cached or any(_has_had(start, group.salt, *one) for one in others), "I29"


def _has_had(
    start: list[int], salt: str | None, group: SequenceGroup, output: RequestOutput
) -> bool:
    """A beam search may have had any start: only its best beams are known in the end."""
    texts = [seq.token_ids for seq in group.seqs]
    texts += [[*group.prompt_token_ids, *one.token_ids] for one in output.outputs]
    if group.beam_search:
        texts += [[*group.prompt_token_ids, *start[group.prompt_len :]]]
    return group.salt == salt and any(text[: len(start)] == start for text in texts)
