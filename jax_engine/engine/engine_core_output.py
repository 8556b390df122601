"""What is new in a request, as plain data: the engine makes it, and an `Assembler` reads it.

The engine may have a process of its own (`jax_engine.serving.messages`), so all of it can be
written as msgpack. There are no words: whoever reads has a tokenizer.
"""

import msgspec

type Drafts = tuple[int, int, int, int]
type Times = tuple[float | None, float | None, float | None, float | None, float | None]


class Plain(msgspec.Struct, array_like=True, gc=False):
    """Encoded as an array of its fields."""


class LogprobLists(Plain):
    """Log-probabilities of tokens, position by position, in a few flat lists.

    Attributes:
        counts: The number of entries of each position; 0: nothing is known of it.
        token_ids, logprobs, ranks: Those of all positions, one behind the other.
    """

    counts: list[int] = []
    token_ids: list[int] = []
    logprobs: list[float] = []
    ranks: list[int] = []

    def add(self, token_ids: list[int], logprobs: list[float], ranks: list[int]) -> None:
        """Appends a position with these entries."""
        self.counts.append(len(token_ids))
        self.token_ids += token_ids
        self.logprobs += logprobs
        self.ranks += ranks


class SequenceOutput(Plain):
    """What is new in one sequence of a request.

    Attributes:
        text: None if whoever reads makes the text of the tokens.
        cumulative_logprob: Sum over the whole sequence; None unless log-probabilities were
            computed.
        logprobs: A position for each of the tokens; None if they are not wanted.
    """

    index: int
    token_ids: list[int]
    text: str | None = None
    cumulative_logprob: float | None = None
    logprobs: LogprobLists | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None


class EngineCoreOutput(Plain, tag="engine_core_output"):
    """What is new in a request that generates.

    Attributes:
        outputs: Outputs of the sequences with something new. If only the end tells which sequences
            are returned (`SamplingParams.is_ranked`), the last one has an output for each, best
            first.
        times: The times of `RequestMetrics` behind `arrival_time`, with the first and with
            the last; None in between, where none of them changes.
        prompt_logprobs: A position for each token of the prompt; once, if they are wanted.
        drafts: The counts of `RequestMetrics` that are about guesses; with the last one.
    """

    request_id: str
    outputs: list[SequenceOutput]
    finished: bool
    num_cached_tokens: int
    times: Times | None = None
    prompt_logprobs: LogprobLists | None = None
    drafts: Drafts = (0, 0, 0, 0)
