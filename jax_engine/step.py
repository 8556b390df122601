"""A step as a value, and the runner that carries it out: all that a controller knows of a device.

Nothing here refers to a sequence, a group or a block manager. Steps and results are plain data that
can be pickled, so a runner may be in this process, in another one, or on several devices.

    ticket = runner.launch(step)        starts the step and does not wait for it
    result = runner.collect(ticket)     waits for it and brings its tokens to the host

A *masked* step needs the host between the model and the sampler, because a grammar, bad words or a
logits processor decide which tokens may be drawn. Grammars and processors stay with the
controller, and the runner never sees them. The controller finishes such a step itself:

    ticket = runner.launch(step)        runs the model alone
    logits = runner.logits(ticket)      only if a logits processor wants to read them
    runner.sample(ticket, allowed, processed)
"""

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from jaxtyping import Float, Int, Int32, UInt32

from jax_engine.lora.adapter import Adapter

Pairs = list[tuple[int, int]]


class Row(NamedTuple):
    """New tokens of one sequence: one row of the ragged batch.

    Attributes:
        seq_id: The sequence.
        request: The number of its request (`RequestSetup.number`).
        start: The first position that is computed.
        tokens: The tokens at `start` and behind it. The last one may be -(r + 1): it is sample r of
            the last step that drew any, and is not known on the host yet.
        history: All tokens up to the row's end, if the request has penalties; else None.
        num_draft: The last so many tokens are guesses, which the tokens drawn before them verify.
        adapter: The slot of its LoRA adapter; 0 for none.
    """

    seq_id: int
    request: int
    start: int
    tokens: list[int]
    history: list[int] | None = None
    num_draft: int = 0
    adapter: int = 0

    @property
    def end(self) -> int:
        """The position behind the last one that is computed: the length of the context."""
        return self.start + len(self.tokens)


@dataclass(frozen=True, slots=True)
class Samples:
    """Tokens to draw: behind any token of the batch, and several may be behind one.

    A prompt about to fork into n sequences has n samples behind its last token, a chunk that does
    not reach the end of its prompt has none, a row with guesses has one behind each. The position
    of a draw in its sequence, and with it all that came before, follows from the token in front of
    it. Prompt log-probabilities, which draw nothing, go another way: `worker.step_output` says
    why.

    Attributes:
        tokens: The token of the step that each follows, counted over all rows.
        indices: Which of its request's sequences each is for, which names its seed.
    """

    tokens: list[int]
    indices: list[int]

    def __len__(self) -> int:
        return len(self.tokens)


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
    """What a runner needs to know of a request, once.

    Attributes:
        number: The request's name between controller and runner. No two requests of an engine have
            the same one; numbers below 0 are the runner's own.
        prompt_token_ids: The prompt.
        rows: The packed sampling parameters, a row for each of the request's samples: they differ
            in their seeds (`jax_engine.sampling.sampling_inputs`).
        bias: Tokens and the bits of their float32 bias, from `logit_bias`.
        forbidden: Tokens that must not be drawn before `min_tokens`, and the bits of -inf.
        min_tokens: As in `SamplingParams`.
        edits_logits: Whether there is any of bias, forbidden tokens or penalties.
        has_penalties: Whether the sampler needs the tokens so far.
        wants_logprobs: Whether log-probabilities of the sampled tokens are wanted.
        needs_logits: Whether the raw logits are wanted on the host.
        prompt_logprobs: How many of the most probable tokens in the place of each prompt token are
            wanted, with log-probabilities; -1 for all, None for no log-probabilities.
        pooling: Whether the hidden states of the prompt are wanted, pooled.
        token_states: Whether they are wanted for each token.
        token_type_ids: The type of each token of the prompt; None: 0.
        embeds: What the first layer reads at each position of the prompt, in the dtype of
            activations; None: the vectors of its tokens.
        is_special: Whether a step with it may read more than tokens, or compute more than tokens
            and their log-probabilities.
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
    prompt_logprobs: int | None = None
    pooling: bool = False
    token_states: bool = False
    token_type_ids: list[int] | None = None
    embeds: Float[np.ndarray, "n E"] | None = None
    is_special: bool = False


class Unread(NamedTuple):
    """What a step takes from steps that the host has not collected, of any runner of its device.

    So a draft model goes on behind guesses of which the host does not know yet how many are right,
    and the next guesses are verified before the host has seen them.

    Attributes:
        drawn: Steps whose tokens it is fed. Token -(r + 1) is sample r, counted over all of them;
            one that this runner's model does not know becomes token 0.
        verified: A step with guesses; None if nothing depends on how many of them are right.
        rows: The row of `verified` that each row of the step follows. It moves by as many positions
            as there are right guesses in that one.
        along: Whether a row stays where it is, and its sample moves along it instead.
    """

    drawn: list["Ticket"]
    verified: "Ticket" = None
    rows: list[int] = []  # noqa: RUF012  nobody writes it
    along: bool = False


class Step(NamedTuple):
    """One step.

    Attributes:
        rows: In the order of the ragged batch. A step without rows only moves blocks.
        samples: The tokens to draw, in the order of its results.
        block_tables: The block table of each row, padded with zeros.
        moves: Blocks to move first.
        opened: Requests that begin with this step.
        closed: Numbers of requests that no later step has rows of.
        masked: Whether the controller finishes the step with `sample`.
        unread: What it takes from steps that the host has not collected, if anything beside a last
            token of the step before.
        adapters: LoRA adapters and the slots that they take, before the model runs. A slot, from
            1 on, keeps its adapter until another one takes it, and no step launched before is
            touched. A step without rows may have them, too.
    """

    rows: list[Row]
    samples: Samples
    block_tables: Int32[np.ndarray, "S W"]
    moves: Moves
    opened: list[RequestSetup]
    closed: list[int]
    masked: bool = False
    unread: Unread | None = None
    adapters: list[tuple[int, Adapter]] = []  # noqa: RUF012  nobody writes it


@dataclass(frozen=True, slots=True)
class SampleLogprobs:
    """Log-probabilities on the host, a row for each sampled token or prompt token.

    Attributes:
        logprobs: The log-probability of the token itself.
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
        total: The sum over the tokens of each row of the step.
        first: The state of each row's first token in the step.
        last: The state of each row's last token.
        tokens: The state of each token of the step; None if no request of the step wants them.
    """

    total: Float[np.ndarray, "S E"]
    first: Float[np.ndarray, "S E"]
    last: Float[np.ndarray, "S E"]
    tokens: Float[np.ndarray, "T E"] | None


@dataclass(frozen=True, slots=True)
class StepResult:
    """What a step computed.

    Rows of requests that did not ask for them, and those behind the last one, mean nothing.

    Attributes:
        token_ids: The sampled tokens in the order of `Step.samples`.
        logprobs: Theirs; None if no request of the step wants them.
        prompt: For each token of the step, the log-probability of the token behind it in its
            prompt; None if no request of the step wants them.
        hidden: None if no request of the step wants them.
        logits: The raw logits, a row for each sampled token; None if no request wants them.
        digest: Digest of what was carried out: the step's number, its plan, moves and tokens. Only
            several processes that share a model have one, and theirs must be the same.
    """

    token_ids: list[int]
    logprobs: SampleLogprobs | None = None
    prompt: SampleLogprobs | None = None
    hidden: HiddenStates | None = None
    logits: Float[np.ndarray, "samples V"] | None = None
    digest: bytes = b""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The sizes of a runner. They never change.

    Attributes:
        vocab_size: Logits of a token, padding included.
        block_size: Tokens of a KV block.
        num_blocks: KV blocks on the device; 0 without a KV cache (an encoder). Its steps have whole
            prompts and move nothing, and nobody reads their block tables.
        num_cpu_blocks: Blocks in the host's memory, for swapping.
        table_width: W, the most blocks of a sequence.
        look_ahead_tokens: While a step computes more tokens of prompts than this, a step that is
            launched behind it makes newcomers wait longer than it saves.
        max_samples: The most tokens that one step can draw, and the most rows, a guess being one.
        accepts_guesses: Whether steps are worth launching on what the host has not read (`Unread`).
        max_loras: Slots for LoRA adapters; 0: it takes none.
        max_concurrent_batches: How many steps it computes at once, each in another stage of the
            model. If several, the tokens that a step draws are not known to those behind it.
    """

    vocab_size: int
    block_size: int
    num_blocks: int
    num_cpu_blocks: int
    table_width: int
    look_ahead_tokens: int
    max_samples: int = 2**31
    accepts_guesses: bool = False
    max_loras: int = 0
    max_concurrent_batches: int = 1


@dataclass(frozen=True, slots=True)
class PreemptionCosts:
    """What it costs to preempt, in seconds.

    Attributes:
        seconds_per_block: To move one KV block between the device and the host, one way.
        seconds_per_token: To recompute one token, as part of a long prompt step.
    """

    seconds_per_block: float
    seconds_per_token: float


type Ticket = Any
"""A step that was launched. Only its runner looks into it."""


class BlockMover(Protocol):
    """Hands out and takes the contents of KV blocks, between two launches."""

    def fingerprint(self) -> bytes:
        """32 bytes that are others where the bits of a block's contents may be others."""

    @property
    def block_bytes(self) -> int:
        """Bytes of a block's contents in all layers."""

    def read_blocks(self, blocks: list[int]) -> list[Any]:
        """The contents of GPU blocks as the steps leave them that were launched so far.

        Returns:
            Arrays of 8 blocks each, the last one with more than were asked for, maybe. Whoever
            makes them NumPy's waits for them, and may be in another thread.
        """

    def write_blocks(self, blocks: list[int], contents: list[Any]) -> None:
        """Fills GPU blocks, for the steps that are launched next.

        Args:
            contents: Arrays of uint8, at most 8 blocks each, [blocks, bytes].
        """


class Runner(Protocol):
    """Carries out steps, in the order in which they are launched.

    After any method has raised, the next call is `recover`.
    """

    @property
    def capabilities(self) -> Capabilities:
        """Known before the first step."""

    def launch(self, step: Step) -> Ticket:
        """Starts a step without waiting for it.

        The ticket is collected before the launch after the next one, or never; where there are
        several `max_concurrent_batches`, before so many others with rows are launched. One that a
        later step is `Unread` from may be collected at any time.
        """

    def logits(self, ticket: Ticket) -> Float[np.ndarray, "samples V"]:
        """The raw logits of a masked step, a row for each token to draw. Waits for the model."""

    def sample(
        self,
        ticket: Ticket,
        allowed: UInt32[np.ndarray, "samples words"] | None,
        processed: Float[np.ndarray, "samples V"] | None,
    ) -> None:
        """Draws the tokens of a masked step without waiting for them: once, before other steps.

        Args:
            allowed: A bit for each token that a sample may be; None for all tokens.
            processed: Logits to draw from in place of the raw ones; None for the raw ones.
        """

    def collect(self, ticket: Ticket) -> StepResult:
        """Waits for a step and brings what it computed to the host."""

    def recover(self) -> None:
        """Forgets all requests and steps after a failure. The cache's contents are lost."""

    def host_room(self, blocks: list[int]) -> bool:
        """Takes memory for these CPU blocks before any is written; False if there is too little."""

    def measure_costs(self) -> PreemptionCosts:
        """Takes a moment, between any two steps, and leaves the cache as it was."""

    def compile_ahead(
        self, max_num_batched_tokens: int, max_num_seqs: int, *, use_tqdm: bool = True
    ) -> int:
        """Compiles what steps of plain requests need within these limits; returns how many.

        Args:
            max_num_seqs: The most rows; a guess is one.
        """

    def set_weights(self, model: Any) -> None:
        """Takes the model's weights, as its loader gives them, or a function that loads them."""
