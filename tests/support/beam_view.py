"""What the client of a beam search is given, held to the oracle's chapters on beams and outputs."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from reference.outputs import Request, Sample, outputs
from reference.sampling import candidates
from reference.sequence import SequenceGroup
from tests.support.compare_outputs import compare_one
from tests.support.engine_pair import TOLERANCE, naive_pass, same_beams_or_rounding

if TYPE_CHECKING:
    from tests.support.client_view import Oracle


def check_beams(oracle: "Oracle", request_id: str, given: Sequence[Any], seen: Counter) -> None:
    """The one output is the oracle's: the hypotheses, or the beams at which it was aborted."""
    request, group = oracle.requests[request_id], oracle.groups[request_id]
    [output] = given
    found = [one.token_ids for one in output.outputs]
    aborted = output.outputs[0].finish_reason == "abort"

    def sample(ids: list[int], reason: str | None = "abort", stop: Any = None) -> Sample:
        return Sample(ids, _rows(oracle, request, group, ids), str(reason), stop)

    if aborted:
        beams = oracle.live_beams[request_id][len(found[0])][: request.params.n]
        same, samples = found == beams, [sample(ids) for ids in beams]
        if not same:
            _check_nearly_as_good([sample(ids) for ids in found], samples)
    else:
        same = same_beams_or_rounding(oracle.model, group, output)
        best = [(seq.output_token_ids, seq.finish_reason, seq.stop_reason) for seq in group.best]
        samples = [sample(*seq) for seq in best]
    if not same:
        seen["rounding decided"] += 1
        return
    counts = {index: len(one.token_ids) for index, one in enumerate(samples)}
    request = replace(request, samples=samples)
    [expected] = outputs(request, [counts])
    assert output.finished
    compare_one(request, output, expected)
    _note(request, output, aborted, seen)


def _rows(
    oracle: "Oracle", request: Request, group: SequenceGroup, token_ids: Sequence[int]
) -> list[np.ndarray]:
    """For each token of a beam, the log-probabilities that the search went by; [V] each."""
    prompt, rows = list(request.prompt_token_ids), []
    params: Any = request.params
    hidden = naive_pass(oracle.model, [*prompt, *token_ids])
    for at, logits in enumerate(oracle.model.compute_logits(hidden[len(prompt) - 1 : -1])):
        row = np.full(len(logits), -np.inf)
        for token, logprob in candidates(
            logits, params, len(logits), prompt_token_ids=prompt,
            output_token_ids=token_ids[:at], eos_token_ids=group.eos_token_ids,
        ):  # fmt: skip
            row[token] = logprob
        rows.append(row)
    return rows


def _check_nearly_as_good(found: Sequence[Sample], wanted: Sequence[Sample]) -> None:
    """Raises AssertionError if other beams live than rounding could have chosen."""
    sums = [[_total(beam) for beam in beams] for beams in (found, wanted)]
    np.testing.assert_allclose(*sums, atol=10 * TOLERANCE)


def _total(beam: Sample) -> float:
    each = zip(beam.token_ids, beam.logprobs, strict=True)
    return float(sum(row[token] for token, row in each))


def _note(request: Request, output: Any, aborted: bool, seen: Counter) -> None:
    happened = {"beams"}
    happened.add("beams aborted" * aborted)
    happened.add("a beam ended by a token" * (output.outputs[0].finish_reason == "stop"))
    happened.add("the best of more beams" * (request.params.num_samples > request.params.n))
    seen.update(happened - {""})
