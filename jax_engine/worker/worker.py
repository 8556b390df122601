"""The worker: the `Runner` of one device, or of several that share a model.

The step, the block copies and the calibration are run by each device on its share; what they
return, and all that is done outside of them, is of the first device. Of several processes that
share a model each has a worker, and all do the same: the first one's results count, and the others
give a digest of theirs.

The order within a step matters: swap in, swap out, copy, then the model writes and attends. A
copy-on-write destination may be a block that a preempted sequence lost in the same step.
"""

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Int, UInt32

from jax_engine.config.engine_config import CudagraphMode
from jax_engine.errors import WeightsError
from jax_engine.lora.slot_weights import AdapterSlots
from jax_engine.models.huge_pages import gather_in_background
from jax_engine.models.model_loader import LoadedModel
from jax_engine.operations import this_device
from jax_engine.parallel.collectives import own_rank
from jax_engine.parallel.mesh import addressable
from jax_engine.sampling.masked_steps import ALL_TOKENS, num_words
from jax_engine.sampling.sampler import SamplerOutput
from jax_engine.sampling.sampling_inputs import SamplerStages, stages_needed
from jax_engine.step import (
    Capabilities,
    PreemptionCosts,
    RequestSetup,
    SampleLogprobs,
    Step,
    StepResult,
    Unread,
)
from jax_engine.worker.compiled_steps import CompiledSteps, compile_ahead
from jax_engine.worker.fingerprint import fingerprint
from jax_engine.worker.kv_cache import KVCache, scales_for, scales_shape
from jax_engine.worker.preemption_costs import measure_costs
from jax_engine.worker.step_output import StepOutput, Unsampled, on_host
from jax_engine.worker.step_plan import (
    gather,
    moved,
    num_right,
    own_numbers,
    pack_step,
    prompt_embeds,
    split_fields,
)
from jax_engine.worker.step_shape import StepShape, all_step_shapes, step_shape


@dataclass(slots=True, eq=False)
class Ticket:
    """A step that the device is computing, or has computed.

    Attributes:
        output: The compiled step's outputs; None for a step without rows.
        sampled: The sampler's output, padding rows included; None until a masked step is sampled.
        num_samples: How many of the sampler's rows are real tokens.
        wants: The outputs that the step's requests need on the host.
        asks: What its rows ask of the sampler; None of a step that sampled by itself.
        step, previous: What was launched, and what it was given as the tokens drawn before it.
        right: How many guesses of each row are right, once a step asks that follows unread.
        digest: Digest of the step's number, plan and moves, without its tokens; None in a process
            that is alone with its model.
    """

    output: StepOutput | None
    sampled: SamplerOutput | None
    num_samples: int
    wants: "HostOutputs"
    asks: SamplerStages | None = None
    step: Step | None = None
    previous: Int[Array, " M"] | None = None
    right: Int[Array, " S"] | None = None
    digest: Any = None


@dataclass(frozen=True, slots=True)
class HostOutputs:
    """Outputs to copy to the host beside the tokens, as any of the step's requests needs them."""

    logprobs: bool = False
    logits: bool = False
    token_states: bool = False


class Worker:
    """One device's model, KV cache and compiled steps.

    Args:
        dtype: The dtype of activations.
        cache_dtype: The dtype of the KV cache.
        batch_invariant: As in `make_batch`, for a model that was opened with it.
        max_loras: Slots for adapters; 0: it takes none.
        max_lora_rank: The largest rank that a slot holds.

    Attributes:
        setups: The open requests' setups, by request number.
        slots: The adapters' slots; None if it takes none.
    """

    def __init__(
        self,
        model: LoadedModel,
        *,
        num_blocks: int,
        num_cpu_blocks: int,
        block_size: int,
        max_model_len: int,
        max_rows: int,
        dtype: DTypeLike,
        cache_dtype: DTypeLike,
        enforce_eager: bool = False,
        cudagraph_mode: CudagraphMode = "PIECEWISE",
        batch_invariant: bool = False,
        max_loras: int = 0,
        max_lora_rank: int = 16,
    ) -> None:
        self.capabilities = Capabilities(
            model.config.vocab_size,
            block_size,
            num_blocks,
            num_cpu_blocks,
            table_width=-(-max_model_len // block_size),
            look_ahead_tokens=this_device().look_ahead_tokens,
            max_samples=max_rows,
            accepts_guesses=this_device().accepts_guesses,
            max_loras=max_loras,
        )
        self.slots = AdapterSlots(model, max_loras, max_lora_rank, dtype) if max_loras else None
        if self.slots is not None:
            self.slots.make()
        self.kv_cache = KVCache(
            model.config,
            num_blocks=num_blocks,
            num_cpu_blocks=num_cpu_blocks,
            block_size=block_size,
            dtype=cache_dtype,
            mesh=model.mesh,
        )
        self.steps = CompiledSteps(
            model,
            block_size=block_size,
            table_width=self.capabilities.table_width,
            max_rows=max_rows,
            enforce_eager=enforce_eager,
            dtype=dtype,
            kv_scales=scales_shape(model.config, cache_dtype),
            cudagraph_mode=cudagraph_mode,
            batch_invariant=batch_invariant,
            slots=self.slots,
        )
        self.setups: dict[int, RequestSetup] = {}
        self._dtype, self._max_model_len = dtype, max_model_len
        self._config = model.config
        self._batch_invariant = batch_invariant
        self._no_tokens = jnp.zeros(max_rows, jnp.int32)
        self._last_tokens = self._no_tokens
        self._rank, self._launched = own_rank(), 0

    def prepare_first_step(self) -> None:
        """Compiles the step of one short prompt, which most processes need first."""
        shape = step_shape(2, 1, 1)
        if not self.steps.has(shape):
            self.steps.prepare(shape, self.kv_cache.array)

    def compile_ahead(
        self, max_num_batched_tokens: int, max_num_seqs: int, *, use_tqdm: bool = True
    ) -> int:
        """See `Runner`. Those in the persistent cache are loaded from it."""
        shapes = all_step_shapes(max_num_batched_tokens, max_num_seqs)
        vocab_size = self.capabilities.vocab_size
        return compile_ahead(self.steps, self.kv_cache, vocab_size, shapes, use_tqdm=use_tqdm)

    def set_weights(self, model: LoadedModel | Callable[[], LoadedModel]) -> None:
        """Takes the weights of the model that it was built for, and the scales of its cache.

        Args:
            model: or what reads it, in the process that has the device.

        Raises:
            ConfigError: The weights that were read are not like those before.
        """
        if not isinstance(model, LoadedModel):
            model = model()
            self.steps.check_alike(model)
        scales = scales_for(
            model, self.kv_cache.dtype, dtype=self._dtype, max_model_len=self._max_model_len
        )
        self.steps.set_weights(model, scales)
        if this_device().in_host_memory:
            gather_in_background(addressable(self.steps.weights))

    def host_room(self, blocks: list[int]) -> bool:
        """Takes memory for these CPU blocks, once; False if there is too little."""
        return self.kv_cache.host.make_room(blocks)

    @property
    def block_bytes(self) -> int:
        """See `BlockMover`."""
        host = self.kv_cache.host
        return math.prod(host.block_shape) * host.dtype.itemsize

    def fingerprint(self) -> bytes:
        """See `BlockMover`. Of the weights that it has now."""
        steps, host = self.steps, self.kv_cache.host
        settings = (
            jnp.dtype(self._dtype).name, host.dtype.name, host.block_shape, steps.enforce_eager,
            self._batch_invariant,
        )  # fmt: skip
        return fingerprint(self._config, steps.weights, settings)

    def read_blocks(self, blocks: list[int]) -> list[Any]:
        """See `BlockMover`."""
        return self.kv_cache.read_blocks(blocks)

    def write_blocks(self, blocks: list[int], contents: list[Any]) -> None:
        """See `BlockMover`."""
        self.kv_cache.write_blocks(blocks, contents)

    def measure_costs(self) -> PreemptionCosts:
        """Times moves and steps, between two steps."""
        return measure_costs(self, self.steps, self.kv_cache, self._max_model_len)

    def launch(self, step: Step, stream: Any = None) -> Ticket:
        """Starts one step without waiting for it.

        Args:
            stream: What the stage before has handed on (`Stream`); None in the first one.

        Raises:
            WeightsError: An adapter cannot be held: see `AdapterSlots.write`.
        """
        for slot, adapter in step.adapters:
            if self.slots is None:
                raise WeightsError(
                    "an adapter came to a worker without slots, max_loras must be at least 1: got 0"
                )
            self.slots.write(slot, adapter)
        self.setups.update([(setup.number, setup) for setup in step.opened])
        if any(step.moves):  # most steps move nothing
            self.kv_cache.swap_in(step.moves.swap_in)
            self.kv_cache.swap_out(step.moves.swap_out)
            self.kv_cache.copy(step.moves.copy)
        digest = None if self._rank is None else self._digest(step)
        ticket = (
            self._start(step, digest, stream) if step.rows else Ticket(None, None, 0, HostOutputs())
        )
        ticket.digest = digest
        for number in step.closed:
            self.setups.pop(number, None)
        return ticket

    def _digest(self, step: Step) -> Any:
        """The digest of the step's number and moves, which other processes compare with theirs."""
        self._launched += 1
        return hashlib.blake2b(repr((self._launched, step.moves)).encode(), digest_size=16)

    def _start(self, step: Step, digest: Any, stream: Any) -> Ticket:
        table_width = self.capabilities.table_width
        previous, unread = self._last_tokens, step.unread
        if unread is not None:
            step, samples = own_numbers(step)
            previous = self._unread_tokens(unread, samples)
        shape, packed = pack_step(
            step, self.setups, table_width, batch_invariant=self._batch_invariant
        )
        read = stream
        if shape.embeds and self._config.spec.has_embedding:
            sizes = shape.num_tokens, self._config.spec.width
            read = prompt_embeds(step.rows, self.setups, *sizes, self._dtype)
        elif shape.embeds:  # they are read in the first stage
            shape = replace(shape, embeds=False)
        if digest is not None:
            digest.update(packed)
        plan: np.ndarray | Int[Array, " P"] = packed
        if unread is not None:
            plan = self._moved(packed, shape, step, unread)
        arrays = (plan, previous) if read is None else (plan, previous, read)
        self.kv_cache.array, output = self.steps(shape, self.kv_cache.array, *arrays)
        setups = [self.setups[row.request] for row in step.rows]
        wants = HostOutputs(  # the shape tells most steps that nobody wants logits or states
            any([setup.wants_logprobs for setup in setups]),
            shape.split and any([setup.needs_logits for setup in setups]),
            shape.pooling and any([setup.token_states for setup in setups]),
        )
        num_samples = len(step.samples)
        ticket = Ticket(output, None, num_samples, wants)
        # Without the tickets that it was unread from, or each would keep all before it
        ticket.step = step if unread is None else step._replace(unread=None)
        ticket.previous = previous
        if output.sampled is not None:
            self._keep_tokens(ticket, output.sampled)
        if output.unsampled is None:
            return ticket
        rows = split_fields(packed, shape, table_width)["sampling"]
        ticket.asks = stages_needed(rows[:num_samples])
        if not step.masked:
            self.sample(ticket, None, None)
        return ticket

    def _unread_tokens(self, unread: Unread, samples: list[int]) -> Int[Array, " M"]:
        """What other steps have drawn, in place of the tokens of the step before."""
        sizes = self.capabilities
        drawn = [_sampled(ticket).token_ids for ticket in unread.drawn]
        counts = [ticket.num_samples for ticket in unread.drawn]
        return gather(drawn, counts, samples, sizes.max_samples, sizes.vocab_size)

    def _moved(
        self, packed: np.ndarray, shape: StepShape, step: Step, unread: Unread
    ) -> np.ndarray | Int[Array, " P"]:
        """The plan, moved by as many positions as there are right guesses in another step."""
        verified = unread.verified
        if verified is None:
            return packed
        if verified.right is None:
            drawn = _sampled(verified).token_ids
            verified.right = num_right(verified.step, verified.previous, drawn)
        right = verified.right
        return moved(packed, shape, self.capabilities.table_width, step, unread, right)

    def _keep_tokens(self, ticket: Ticket, sampled: SamplerOutput) -> None:
        """Keeps the tokens on the device: rows of the next step may begin with them."""
        ticket.sampled = sampled
        if ticket.num_samples:
            self._last_tokens = sampled.token_ids

    def logits(self, ticket: Ticket) -> Float[np.ndarray, "samples V"]:
        """The raw logits of a masked step, a row for each token to draw. Waits for the model."""
        count = 0 if self._rank else ticket.num_samples
        return np.asarray(_unsampled(ticket).logits)[:count]

    def sample(
        self,
        ticket: Ticket,
        allowed: UInt32[np.ndarray, "samples words"] | None,
        processed: Float[np.ndarray, "samples V"] | None,
    ) -> None:
        """Draws the tokens of a masked step (its second half) without waiting for them."""
        unsampled = _unsampled(ticket)
        rows, vocab_size = unsampled.logits.shape
        mask, logits = None, None
        if allowed is not None:
            mask = np.full((rows, num_words(vocab_size)), ALL_TOKENS)
            mask[: len(allowed)] = allowed
        if processed is not None:
            logits = np.zeros((rows, vocab_size), np.float32)
            logits[: len(processed)] = processed
        self._keep_tokens(ticket, self.steps.sample(unsampled, logits, mask, ticket.asks))

    def collect(self, ticket: Ticket) -> StepResult:
        """Waits for a step's tokens and brings them to the host."""
        output, sampled, wants = ticket.output, ticket.sampled, ticket.wants
        if output is None or output.stream is not None:
            return StepResult([], digest=_digest_of(ticket, None))
        assert sampled is not None, "a masked step must be sampled before it is collected"
        count = ticket.num_samples
        tokens = np.asarray(sampled.token_ids)[:count]
        if self._rank:
            return StepResult([], digest=_digest_of(ticket, tokens))
        return StepResult(
            tokens.tolist(),
            _on_host(sampled, count) if wants.logprobs else None,
            None if output.prompt is None else _on_host(output.prompt, None),
            None
            if output.pooled is None
            else on_host(output.pooled, with_tokens=wants.token_states),
            self.logits(ticket) if wants.logits and output.unsampled is not None else None,
            _digest_of(ticket, tokens),
        )

    def recover(self) -> None:
        """Forgets all requests and steps after a failed step.

        The contents of the cache and of the adapters' slots are lost.
        """
        self.setups.clear()
        if self.slots is not None:
            self.slots.make()
        self._last_tokens, self._launched = self._no_tokens, 0
        self.kv_cache.recover()


def _sampled(ticket: Ticket) -> SamplerOutput:
    assert ticket.sampled is not None, "a masked step must be sampled before another follows it"
    return ticket.sampled


def _digest_of(ticket: Ticket, tokens: Int[np.ndarray, " samples"] | None) -> bytes:
    if ticket.digest is None:
        return b""
    whole = ticket.digest.copy()
    if tokens is not None:
        whole.update(np.ascontiguousarray(tokens))
    found: bytes = whole.digest()
    return found


def _unsampled(ticket: Ticket) -> Unsampled:
    assert ticket.output is not None and ticket.output.unsampled is not None, "no masked step"
    return ticket.output.unsampled


def _on_host(sampled: SamplerOutput, count: int | None) -> SampleLogprobs:
    """The first `count` rows."""
    parts = sampled.logprobs, sampled.ranks, sampled.top_token_ids, sampled.top_logprobs
    return SampleLogprobs(*(np.asarray(part)[:count] for part in parts))
