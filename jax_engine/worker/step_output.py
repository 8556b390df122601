"""The outputs of a compiled step, and how they come of its hidden states: samples above all.

Most steps end with the sampler. A step with a prompt has up to 256 rows, but few of them sample a
token. Logits of all 256 rows are 50 MB with a vocabulary of 49,152. A CPU writes and reads these in
the time of a 30-token prompt. So `sample_needed_rows` samples for fewer rows than a step has room
for, where that is enough. A step may also end with the logits: `SamplerPrograms`, programs of their
own, are the second half of such steps.

For `LLM.embed` a step sums each sequence's hidden states, and takes the first and the last.

`prompt_logprobs` has the log-probabilities of a prompt's own tokens
(`SamplingParams.prompt_logprobs`). Why they are no `Samples` along the prompt's row, whose token is
known: a sampler has the logits of all its rows at once. For a prompt of 2,048 tokens and a
vocabulary of 49,152 these are 400 MB; a chunk here has 13 MB. A sampler in chunks would be another
program than that of the tokens that are drawn beside them, which is what there is now. Every row
would also have its sampling parameters in the packed plan, 11 words where a target is one, and
every step would return as many `token_ids` as the longest prompt step has tokens, not as the most
that are drawn. The number of compiled shapes would stay: one with as many rows as tokens would take
the place of `StepShape.prompt_logprobs`.

Little would be saved. What a sample takes from its position is for the draw: penalties, bias,
masks, a processor's logits, a seed. A prompt's log-probabilities are of the raw logits, and
nothing is drawn. So the controller would need to know, wherever it counts samples (for a step's
budget, for guesses, for the token that follows), that some draw nothing. Both ways meet where they
are the same: a token's hidden state, `compute_logits` and `with_logprobs`.
"""

import dataclasses
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, UInt32

from jax_engine.host_memory import give_back
from jax_engine.models.decoder import Decoder, Stream
from jax_engine.operations import device_operations, this_device
from jax_engine.progress_log import compiling
from jax_engine.sampling.sampler import SamplerOutput, sample, with_logprobs, without_logprobs
from jax_engine.sampling.sampling_inputs import (
    ROW_WIDTH,
    PackedSampling,
    SamplerStages,
    SamplingInputs,
)
from jax_engine.step import HiddenStates
from jax_engine.weights.low_rank import AdapterRows, sort_rows
from jax_engine.worker.step_shape import StepShape


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class PooledStates:
    """Final hidden states of a step in float32. Padding sequences hold arbitrary finite values.

    Attributes:
        total: Each sequence's sum over its tokens in this step.
        first, last: The state of each sequence's first token in this step, and of its last.
        tokens: The states of all tokens of the step.
    """

    total: Float[Array, "S E"]
    first: Float[Array, "S E"]
    last: Float[Array, "S E"]
    tokens: Float[Array, "T E"]


@jax.named_scope("pooling")
def pool_states(hidden: Float[Array, "T E"], query_start_loc: Int[Array, " S1"]) -> PooledStates:
    """Sums the states of each sequence of a ragged batch, and takes its first and its last."""
    count = query_start_loc.shape[0] - 1
    token = jnp.arange(hidden.shape[0], dtype=jnp.int32)
    owner = jnp.searchsorted(query_start_loc, token, side="right", method="compare_all") - 1
    states = hidden.astype(jnp.float32)
    # Padding tokens follow all sequences: their owner is out of range, so the sum drops them.
    total = jax.ops.segment_sum(states, owner, num_segments=count)
    first = states.at[query_start_loc[:-1]].get(mode="clip")
    last = states[jnp.maximum(query_start_loc[1:] - 1, 0)]
    return PooledStates(total, first, last, states)


def on_host(states: PooledStates, *, with_tokens: bool) -> HiddenStates:
    """The states, of each token if they are wanted. Waits for the step."""
    tokens = np.asarray(states.tokens) if with_tokens else None
    total, first, last = (np.asarray(one) for one in (states.total, states.first, states.last))
    return HiddenStates(total, first, last, tokens)


NUM_TOP = 20  # vLLM's default `max_logprobs`; a request for more gets the whole vocabulary
ROWS_A_CHUNK = 64  # bounds the logits' memory: never all tokens times the vocabulary


@jax.named_scope("prompt_logprobs")
def prompt_logprobs(
    model: Decoder,
    hidden: Float[Array, "T E"],
    targets: Int[Array, " T"],
    num_top: int,
    batch_invariant: bool = False,
    adapters: AdapterRows | None = None,
) -> SamplerOutput:
    """Log-probabilities of each token's successor in its prompt, and of the most probable tokens.

    Args:
        targets: Each token's successor, or -1 if not requested. A chunk of only -1 is skipped.
        num_top: How many of the most probable tokens are returned.
        batch_invariant: As in `make_batch`.
        adapters: Which tokens have which adapter; None where no step has any.
    """
    tokens = hidden.shape[0]
    rows = min(ROWS_A_CHUNK, tokens)
    padding = -tokens % rows
    hidden = jnp.pad(hidden, ((0, padding), (0, 0))).reshape(-1, rows, hidden.shape[1])
    targets = jnp.pad(targets, (0, padding), constant_values=-1).reshape(-1, rows)

    logsumexp = device_operations(batch_invariant).logsumexp

    def one_chunk(chunk: tuple[Array, ...]) -> list[Array]:
        states, wanted, *slots = chunk
        token_ids = jnp.maximum(wanted, 0)

        def logits() -> Float[Array, "R V"]:
            own = [(None, sort_rows(slot, num_slots)) for slot in slots]
            found: Array = model.compute_logits(states, *(own[0] if own else ()))
            return found

        output = lax.cond(
            jnp.any(wanted >= 0),
            lambda: with_logprobs(logits(), token_ids, num_top, logsumexp),
            lambda: without_logprobs(token_ids, model.spec.vocab_size, num_top),
        )
        return jax.tree.leaves(output)

    chunks: tuple[Array, ...] = hidden, targets
    num_slots = 0
    if adapters is not None:
        num_slots = len(adapters.starts) - 2
        chunks += (jnp.pad(adapters.slot, (0, padding)).reshape(-1, rows),)
    parts = lax.map(one_chunk, chunks)
    return SamplerOutput(*(part.reshape(-1, *part.shape[2:])[:tokens] for part in parts))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Unsampled:
    """The result of a split step's first half: the sampler's inputs, still on the device."""

    logits: Float[Array, "R V"]
    sampling: PackedSampling


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class StepOutput:
    """The outputs of one step. Those that its shape does not request are None.

    Attributes:
        sampled: The sampler's output, one row a sampled token; None in a split step.
        unsampled: The sampler's inputs, in a split step only.
        prompt: Log-probabilities of the prompts' tokens, one row a token of the step.
        pooled: Hidden states, one row a sequence of the step.
        stream: What a stage hands on to the next; the last one has all of the above instead.
    """

    sampled: SamplerOutput | None = None
    unsampled: Unsampled | None = None
    prompt: SamplerOutput | None = None
    pooled: PooledStates | None = None
    stream: Stream | None = None


FEW_ROWS = 32


def sample_needed_rows(
    shape: StepShape, num_samples: Int[Array, ""], sample_first: Callable[[int], SamplerOutput]
) -> SamplerOutput:
    """The sampler's output for all rows. Rows from `num_samples` on hold arbitrary values.

    Args:
        sample_first: Returns the output of the first n rows, given n.
    """
    all_are_cheap = shape.num_rows <= FEW_ROWS or not this_device().logits_are_slow
    if shape.decode_only or all_are_cheap:
        return sample_first(shape.num_rows)

    def few() -> SamplerOutput:
        sampled: SamplerOutput = jax.tree.map(padded, sample_first(FEW_ROWS))
        return sampled

    def padded(array: Array) -> Array:
        missing = max(shape.num_rows - len(array), 0)  # token_ids is longer than the rows
        return jnp.pad(array, [(0, missing)] + [(0, 0)] * (array.ndim - 1))

    needed: SamplerOutput = lax.cond(
        num_samples <= FEW_ROWS, few, lambda: sample_first(shape.num_rows)
    )
    return needed


logger = logging.getLogger("jax_engine.compile")


class SamplerPrograms:
    """One program for each kind of arguments, compiled when it is first needed.

    Args:
        max_rows: M, the number of tokens that every step returns.
        enforce_eager: Run operation by operation without compiling.
        batch_invariant: As in `make_batch`; log-probabilities are, drawn tokens are not.
    """

    def __init__(
        self, max_rows: int, *, enforce_eager: bool = False, batch_invariant: bool = False
    ) -> None:
        self.max_rows, self.enforce_eager = max_rows, enforce_eager
        self.batch_invariant = batch_invariant
        self.branches_wait = this_device().branches_wait
        self.programs: dict[Any, Any] = {}

    def __call__(
        self,
        unsampled: Unsampled,
        processed: Float[Array, "R V"] | np.ndarray | None,
        allowed: np.ndarray | None,
        asks: SamplerStages | None = None,
    ) -> SamplerOutput:
        """Draws the tokens without waiting for them. `sampling.sample` documents the arguments.

        Args:
            asks: What the rows ask for; left to the device where its branches make nobody wait.
        """
        asks = asks if self.branches_wait else None
        leaves, structure = jax.tree.flatten((unsampled, processed, allowed))
        if self.enforce_eager:
            return self._finish(structure, asks, [jnp.asarray(leaf) for leaf in leaves])
        sampled: SamplerOutput = self._program(structure, asks, leaves)(leaves)
        return sampled

    def prepare(self, rows: int, vocab_size: int, asks: SamplerStages | None) -> Any:
        """The program for rows whose logits nobody edits, compiled."""
        settings, position = jnp.zeros((rows, ROW_WIDTH), jnp.int32), jnp.zeros(rows, jnp.int32)
        nothing = jnp.zeros((3, 0), jnp.int32)
        packed = PackedSampling(settings, position, nothing, nothing)
        leaves, structure = jax.tree.flatten((Unsampled(jnp.zeros((rows, 1)), packed), None, None))
        leaves[0] = jax.ShapeDtypeStruct((rows, vocab_size), jnp.float32)  # not allocated
        return self._program(structure, asks, leaves)

    def _program(
        self, structure: jax.tree_util.PyTreeDef, asks: SamplerStages | None, leaves: list[Any]
    ) -> Any:
        key = structure, asks, *[leaf.shape for leaf in leaves]
        program = self.programs.get(key)
        if program is None:
            with compiling(logger, f"the sampling of {leaves[0].shape[0]} rows"):
                finish = partial(self._finish, structure, asks)
                jitted = jax.jit(finish, compiler_options=this_device().compiler_options)
                program = self.programs[key] = jitted.lower(leaves).compile()
                give_back()
        return program

    def _finish(
        self, structure: jax.tree_util.PyTreeDef, asks: SamplerStages | None, leaves: list[Array]
    ) -> SamplerOutput:
        unsampled, processed, allowed = jax.tree.unflatten(structure, leaves)
        inputs = unsampled.sampling.unpacked(asks)
        return self.sample(unsampled.logits, inputs, processed, allowed)

    def sample(
        self,
        logits: Float[Array, "R V"],
        inputs: SamplingInputs,
        processed: Float[Array, "R V"] | None = None,
        allowed: UInt32[Array, "R words"] | None = None,
    ) -> SamplerOutput:
        """Samples, and pads the tokens to M so that the next step accepts them from any shape."""
        ours = device_operations(self.batch_invariant)
        sampled = sample(
            logits, inputs, processed, allowed, draw=ours.draw, logsumexp=ours.logsumexp
        )
        tokens = jnp.pad(sampled.token_ids, (0, self.max_rows - logits.shape[0]))
        return dataclasses.replace(sampled, token_ids=tokens)
