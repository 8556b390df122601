"""Beam search in the engine: checks a request, hands on its candidates, and makes its output."""

from collections.abc import Collection

import numpy as np

from jax_engine.core.beam_search import num_candidates
from jax_engine.core.scheduler_output import ScheduledSequence
from jax_engine.core.sequence import Candidate
from jax_engine.errors import RequestTooLargeError
from jax_engine.outputs import BeamSearchOutput, BeamSearchSequence, RequestOutput
from jax_engine.sampling_params import MAX_CANDIDATES, SamplingParams
from jax_engine.step import SampleLogprobs
from jax_engine.tokenization.tokenizer import Tokenizer


def check_beams(params: SamplingParams, eos_token_ids: Collection[int], vocab_size: int) -> None:
    """Checks that the sampler returns enough candidates for a request's beams.

    Raises:
        RequestTooLargeError: A step needs more candidates than the sampler returns.
    """
    if not params.use_beam_search:
        return
    need = num_candidates(params, eos_token_ids)
    if min(need, vocab_size) > MAX_CANDIDATES:
        raise RequestTooLargeError(
            f"use_beam_search with {params.num_samples} beams (best_of, n or beam_width) and these "
            f"end-of-sequence and stop tokens looks at {need} candidates a step, the sampler gives "
            f"{MAX_CANDIDATES}: lower the width, or give fewer stop_token_ids"
        )


def candidates_of(
    sampled: list[tuple[ScheduledSequence, int]], logprobs: SampleLogprobs
) -> dict[int, list[Candidate]]:
    """The candidates of each beam of a step: its most probable allowed tokens, best first.

    Args:
        sampled: Sequences that got tokens, each with the row of its first token.
    """
    found = {}
    for item, row in sampled:
        beam = item.group.beam
        if beam is not None:
            tokens = logprobs.top_token_ids[row, : beam.num_candidates].tolist()
            values = logprobs.top_logprobs[row, : beam.num_candidates].tolist()
            pairs = zip(tokens, values, strict=True)
            # A forbidden token has log-probability -inf
            found[item.seq.seq_id] = [pair for pair in pairs if pair[1] > -np.inf]
    return found


def beam_search_output(output: RequestOutput, tokenizer: Tokenizer | None) -> BeamSearchOutput:
    """Converts the output of a finished beam-search request to that of `LLM.beam_search`."""
    sequences = []
    for one in output.outputs:
        tokens = output.prompt_token_ids + one.token_ids
        sequences.append(
            BeamSearchSequence(
                tokens=tokens,
                logprobs=one.logprobs,
                cum_logprob=one.cumulative_logprob or 0.0,
                text=None if tokenizer is None else tokenizer.decode(tokens),
                finish_reason=one.finish_reason,
                stop_reason=one.stop_reason,
            )
        )
    return BeamSearchOutput(sequences)
