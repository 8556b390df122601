"""§4.4, beam search: which continuations of a group's beams go on, and which ended ones are best.

Only values are compared here; `decoding` moves the sequences and their blocks accordingly. It
selects as transformers' `generate` does, so that outputs can be compared.
"""

from collections.abc import Collection
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, field
from typing import NamedTuple

from jax_engine.core.sequence import Candidate, SamplingLimits, Sequence


class Choice(NamedTuple):
    """A beam and its next token.

    Attributes:
        value: Cumulative log-probability with the new token.
        beam: Rank of the beam.
        token: Its new token.
        logprob: Log-probability of the new token alone.
        rank: Rank of the new token among the beam's candidates; 1 is the most probable.
    """

    value: float
    beam: int
    token: int
    logprob: float
    rank: int


class Hypothesis(NamedTuple):
    """A beam that has ended.

    Attributes:
        score: Cumulative log-probability / output length ** length penalty.
        seq: Finished; it holds no blocks.
    """

    score: float
    seq: Sequence


def num_candidates(params: SamplingLimits, eos_token_ids: Collection[int]) -> int:
    """M, the candidates compared in a step: enough that at least k are not stop tokens."""
    ends = set(params.stop_token_ids or ()) | set(() if params.ignore_eos else eos_token_ids)
    return max(2, 1 + len(ends)) * (params.best_of or params.n)


def best_choices(
    beams: SequenceOf[tuple[float, SequenceOf[Candidate]]], count: int
) -> list[Choice]:
    """The `count` best of all beams' candidates; equal values by beam, then by token id.

    Args:
        beams: Cumulative log-probability and candidates, best first, of each beam in rank order.
    """
    choices = [
        Choice(total + logprob, beam, token, logprob, rank)
        for beam, (total, candidates) in enumerate(beams)
        for rank, (token, logprob) in enumerate(candidates[:count], 1)
    ]
    choices.sort(key=lambda choice: (-choice.value, choice.beam, choice.token))
    return choices[:count]


@dataclass(slots=True)
class BeamSearch:
    """The settings of a beam search, and its hypotheses so far.

    Attributes:
        width: k, the beams that go on, and the hypotheses that are kept.
        num_candidates: M, how many continuations are compared in a step.
        length_penalty: a; above 0 long hypotheses are favoured.
        early_stopping: When to stop, once there are k hypotheses. True: at once. False: when no
            beam beats the worst at its current length. "never": when none can at any length.
        hypotheses: The best ended beams, best first; older ones first at equal scores.
    """

    width: int
    num_candidates: int
    length_penalty: float = 1.0
    early_stopping: bool | str = False
    hypotheses: list[Hypothesis] = field(default_factory=list)

    @classmethod
    def for_request(
        cls, params: SamplingLimits, eos_token_ids: Collection[int]
    ) -> "BeamSearch | None":
        """Returns None for a request without beam search."""
        if not getattr(params, "use_beam_search", False):
            return None
        return cls(
            params.best_of or params.n,
            num_candidates(params, eos_token_ids),
            params.length_penalty,
            params.early_stopping,
        )

    def add(self, value: float, seq: Sequence) -> None:
        """Keeps an ended beam with this cumulative log-probability if it is among the best k."""
        score = value / seq.output_len**self.length_penalty
        self.hypotheses.append(Hypothesis(score, seq))
        self.hypotheses.sort(key=lambda hypothesis: -hypothesis.score)
        del self.hypotheses[self.width :]

    def done(self, live: SequenceOf[Choice], length: int, longest: int) -> bool:
        """Whether the search can stop: no better hypothesis can follow.

        Args:
            live: The choices that go on, best first.
            length: Their output tokens, the new ones included.
            longest: Output tokens at which every beam ends.
        """
        if not live:
            return True
        if len(self.hypotheses) < self.width:
            return False
        if self.early_stopping is True:
            return True
        hopes = self.early_stopping == "never" and self.length_penalty > 0
        reach = longest if hopes else length
        best: float = live[0].value / reach**self.length_penalty
        return best <= self.hypotheses[-1].score
