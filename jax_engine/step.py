"""A step as a value: what the controller asks of a worker, and what the worker answers.

Nothing here refers to a sequence, a group or a block manager. All of it is plain data that can be
pickled, so a worker may run in this process, in another one, or on several devices.

    ticket = worker.launch(step)        starts the step and does not wait for it
    result = worker.collect(ticket)     waits for it and brings its tokens to the host

A *masked* step needs the host between the model and the sampler, because a grammar, bad words or a
logits processor decide which tokens a row may draw. Grammars and processors stay with the
controller, and the worker never sees them. The controller finishes such a step itself:

    ticket = worker.launch(step)        runs the model alone
    logits = worker.logits(ticket)      only if a logits processor wants to read them
    worker.sample(ticket, allowed, processed)
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int, Int32

Pairs = list[tuple[int, int]]


class Row(NamedTuple):
    """New tokens of one sequence: one row of the ragged batch.

    Attributes:
        seq_id: The sequence.
        request: The number of its request (`RequestSetup.number`).
        start: The first position that is computed.
        tokens: The tokens at `start` and behind it. The last one may be -(r + 1): it is the token
            that the step before draws in its sampled row r, and is not known on the host yet.
        num_samples: How many tokens to draw behind the last position: 0 for a chunk that does not
            reach the end, n for a prompt about to fork into n sequences, else 1.
        sample: The index in its request of the first token's sequence, which names its seed.
        history: All tokens up to the row's end, if the request has penalties; else None.
    """

    seq_id: int
    request: int
    start: int
    tokens: list[int]
    num_samples: int
    sample: int = 0
    history: list[int] | None = None

    @property
    def end(self) -> int:
        """The position behind the last one that is computed: the length of the context."""
        return self.start + len(self.tokens)


class Moves(NamedTuple):
    """Blocks to move before the model writes, in this order.

    A copy may land in a block that a preempted sequence lost in this very step, so blocks are
    swapped out before they are copied.

    Attributes:
        swap_in: (CPU block, GPU block) pairs.
        swap_out: (GPU block, CPU block) pairs.
        copy: (source, destination) pairs of GPU blocks, for copy-on-write.
    """

    swap_in: Pairs
    swap_out: Pairs
    copy: Pairs


@dataclass(frozen=True, slots=True)
class RequestSetup:
    """What a worker needs to know of a request, once.

    Attributes:
        number: The request's name between controller and worker. No two requests of an engine have
            the same one; numbers below 0 are the worker's own.
        prompt_token_ids: The prompt.
        rows: The packed sampling parameters, a row for each of the request's samples: they differ
            in their seeds (`jax_engine.sampling.inputs`).
        bias: Tokens and the bits of their float32 bias, from `logit_bias`.
        forbidden: Tokens that must not be drawn before `min_tokens`, and the bits of -inf.
        min_tokens: As in `SamplingParams`.
        edits_logits: Whether there is any of bias, forbidden tokens or penalties.
        has_penalties: Whether the sampler needs the tokens so far.
        wants_logprobs: Whether log-probabilities of the sampled tokens are wanted.
        needs_logits: Whether the raw logits are wanted on the host.
        prompt_logprobs: Whether log-probabilities of the prompt's tokens are wanted.
        whole_prompt_logprobs: Whether they are wanted for the whole vocabulary.
        pooling: Whether the hidden states of the prompt are wanted, pooled.
        token_states: Whether they are wanted for each token.
        is_special: Whether a step with it computes more than tokens and their log-probabilities.
    """

    number: int
    prompt_token_ids: list[int]
    rows: Int32[np.ndarray, "samples words"]
    bias: Int32[np.ndarray, "2 entries"]
    forbidden: Int32[np.ndarray, "2 ends"]
    min_tokens: int = 0
    edits_logits: bool = False
    has_penalties: bool = False
    wants_logprobs: bool = False
    needs_logits: bool = False
    prompt_logprobs: bool = False
    whole_prompt_logprobs: bool = False
    pooling: bool = False
    token_states: bool = False
    is_special: bool = False


class Step(NamedTuple):
    """One step.

    Attributes:
        rows: In the order of the ragged batch. A step without rows only moves blocks.
        block_tables: The block table of each row, padded with zeros.
        moves: Blocks to move first.
        opened: Requests that begin with this step.
        closed: Numbers of requests that no later step has rows of.
        masked: Whether the controller finishes the step with `sample`.
    """

    rows: list[Row]
    block_tables: Int32[np.ndarray, "S W"]
    moves: Moves
    opened: list[RequestSetup]
    closed: list[int]
    masked: bool = False


@dataclass(frozen=True, slots=True)
class SampleLogprobs:
    """Log-probabilities on the host, a row for each sampled token or prompt token.

    Attributes:
        logprobs: Of the token itself.
        ranks: Its place among all tokens, 1 for the most probable one.
        top_token_ids: The most probable tokens, best first.
        top_logprobs: Their log-probabilities.
    """

    logprobs: Float[np.ndarray, " rows"]
    ranks: Int[np.ndarray, " rows"]
    top_token_ids: Int[np.ndarray, "rows top"]
    top_logprobs: Float[np.ndarray, "rows top"]


@dataclass(frozen=True, slots=True)
class HiddenStates:
    """Final hidden states in float32, for pooling.

    Attributes:
        total: Of each row of the step, the sum over its tokens.
        last: Of each row, that of its last token.
        tokens: Of each token of the step; None if no request of the step wants them.
    """

    total: Float[np.ndarray, "S E"]
    last: Float[np.ndarray, "S E"]
    tokens: Float[np.ndarray, "T E"] | None


@dataclass(frozen=True, slots=True)
class StepResult:
    """What a step computed.

    Attributes:
        token_ids: The sampled tokens in the order of the step's rows, `num_samples` for each.
        logprobs: Theirs; None if no request of the step wants them.
        prompt: Of each token of the step, the log-probability of the token behind it in its
            prompt; None if no request of the step wants them.
        hidden: None if no request of the step wants them.
        logits: The raw logits, a row for each sampled token; None if no request wants them.
    """

    token_ids: list[int]
    logprobs: SampleLogprobs | None = None
    prompt: SampleLogprobs | None = None
    hidden: HiddenStates | None = None
    logits: Float[np.ndarray, "samples V"] | None = None
