"""The worker: carries out on the device what the scheduler decided.

The order within a step is load-bearing: swap in, swap out, copy, then the model writes and
attends. A copy-on-write destination may be a block that a victim lost in this very step.
"""

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from jax_engine.core.block_manager import BlockManager
from jax_engine.core.output import ScheduledSequence, SchedulerOutput
from jax_engine.core.sequence import SequenceGroup
from jax_engine.models.load import LoadedModel
from jax_engine.sampling.sampler import SamplerOutput
from jax_engine.sampling_params import SamplingParams
from jax_engine.worker.compiled_steps import CompiledSteps
from jax_engine.worker.constraints import ConstrainedRows, RequestConstraints, StepConstraints
from jax_engine.worker.kv_cache import KVCache
from jax_engine.worker.pooling import PooledStates
from jax_engine.worker.request_sampling import RequestSampling, request_sampling
from jax_engine.worker.step_output import StepOutput, Unsampled
from jax_engine.worker.step_plan import pack_step
from jax_engine.worker.step_shape import StepShape, step_shape

_NOBODY: dict[SequenceGroup, str] = {}


@dataclass(frozen=True, slots=True)
class SampleLogprobs:
    """Host copies of log-probabilities, one row a sampled token or a prompt's token."""

    logprobs: np.ndarray
    ranks: np.ndarray
    top_token_ids: np.ndarray
    top_logprobs: np.ndarray


@dataclass(frozen=True, slots=True)
class StepInFlight:
    """A step that the device is computing, or has computed.

    Attributes:
        plan: What was scheduled.
        sampled: The sampler's output for all rows, padding included.
        wants_logprobs: Whether any of the step's requests wanted log-probabilities.
        output: What else the step computes.
        wants_logits: Whether any of them needs the raw logits on the host.
        failed: Requests that the step found no token for, with the reason.
    """

    plan: SchedulerOutput
    sampled: SamplerOutput
    wants_logprobs: bool
    output: StepOutput
    failed: dict[SequenceGroup, str]
    wants_logits: bool = False


@dataclass(frozen=True, slots=True)
class StepResult:
    """Sampled tokens in the order of the step's sequences (n in a row where a prompt forks).

    Attributes:
        token_ids: One Python int for each sampled token.
        logprobs: None when no request of the step wanted them.
        failed: Requests whose tokens are not to be used, with the reason.
        prompt: Of the tokens that follow the step's tokens in their prompts, one row each; None
            when no request of the step wanted them.
        pooled: Hidden states, on the device; None as above.
        logits: The raw ones, [R, V], padding included; None as above.
    """

    token_ids: list[int]
    logprobs: SampleLogprobs | None
    failed: dict[SequenceGroup, str]
    prompt: SampleLogprobs | None = None
    pooled: PooledStates | None = None
    logits: np.ndarray | None = None


class Worker:
    """One device's model, KV cache and compiled steps.

    Attributes:
        mask_seconds: Spent on the host on which tokens are allowed, since the start.
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
        enforce_eager: bool = False,
    ) -> None:
        self.table_width = -(-max_model_len // block_size)
        self.kv_cache = KVCache(
            model.config,
            num_blocks=num_blocks,
            num_cpu_blocks=num_cpu_blocks,
            block_size=block_size,
            dtype=dtype,
        )
        self.steps = CompiledSteps(
            model,
            block_size=block_size,
            table_width=self.table_width,
            max_rows=max_rows,
            enforce_eager=enforce_eager,
        )
        self.mask_seconds = 0.0
        self._vocab_size = model.config.vocab_size
        self._no_tokens = jnp.zeros(max_rows, jnp.int32)
        self._sampling: dict[str, RequestSampling] = {}

    def prepare_first_step(self) -> None:
        """Compiles the step of one short prompt, which most processes need first."""
        shape = step_shape(2, 1, 1)
        if not self.steps.has(shape):
            self.steps.prepare(shape, self.kv_cache.array)

    def add_request(
        self,
        request_id: str,
        params: SamplingParams,
        seed: int,
        eos_token_ids: frozenset[int],
        constraints: RequestConstraints | None = None,
    ) -> None:
        """Packs what the sampler needs of the request, once."""
        self._sampling[request_id] = request_sampling(params, seed, eos_token_ids, constraints)

    def remove_request(self, request_id: str) -> None:
        self._sampling.pop(request_id, None)

    def launch(
        self, output: SchedulerOutput, blocks: BlockManager, before: StepInFlight | None = None
    ) -> StepInFlight:
        """Starts one step, and does not wait for it.

        Args:
            before: The step whose tokens some of this one's sequences wait for
                (`Sequence.pending`); they reach it on the device.
        """
        self.move_blocks(output)
        scheduled, states = output.scheduled, self._sampling
        rows = [blocks.block_table_row(item.seq.seq_id) for item in scheduled]
        shape, packed = pack_step(scheduled, rows, states, self.table_width)
        previous = self._no_tokens if before is None else before.sampled.token_ids
        self.kv_cache.array, computed = self.steps(shape, self.kv_cache.array, packed, previous)
        wanted = any([states[item.group.request_id].wants_logprobs for item in scheduled])
        sampled, failed = computed.sampled, _NOBODY
        if computed.unsampled is not None:
            sampled, failed = self._sample(shape, scheduled, computed.unsampled)
        assert sampled is not None
        logits = any([states[item.group.request_id].needs_logits for item in scheduled])
        return StepInFlight(output, sampled, wanted, computed, failed, logits)

    def _sample(
        self, shape: StepShape, scheduled: list[ScheduledSequence], unsampled: Unsampled
    ) -> tuple[SamplerOutput, dict[SequenceGroup, str]]:
        """The rest of a split step: masks, while the model runs, then its sampler."""
        parts, row = [], 0
        for item in scheduled:
            rows = slice(row, row + item.num_samples)
            constraints = self._sampling[item.group.request_id].constraints
            if item.num_samples and constraints is not None:
                parts.append(ConstrainedRows(item, constraints, rows))
            row = rows.stop
        step = StepConstraints(parts, shape.num_rows, self._vocab_size)
        mask = step.mask()
        processed = step.process(lambda: np.asarray(unsampled.logits), mask)
        self.mask_seconds += step.seconds
        logits = unsampled.logits if processed is None else processed
        return self.steps.sample(unsampled, logits, mask), step.failed

    def move_blocks(self, output: SchedulerOutput) -> None:
        """Swaps and copies blocks, as a step needs it before it writes."""
        self.kv_cache.swap_in(output.blocks_to_swap_in)
        self.kv_cache.swap_out(output.blocks_to_swap_out)
        self.kv_cache.copy(output.blocks_to_copy)

    def collect(self, step: StepInFlight) -> StepResult:
        """Waits for a step's tokens and brings them to the host."""
        sampled = step.sampled
        count = sum([item.num_samples for item in step.plan.scheduled])
        token_ids = np.asarray(sampled.token_ids)[:count].tolist()
        logprobs = _on_host(sampled, count) if step.wants_logprobs else None
        prompt, pooled, unsampled = step.output.prompt, step.output.pooled, step.output.unsampled
        return StepResult(
            token_ids,
            logprobs,
            step.failed,
            None if prompt is None else _on_host(prompt, step.plan.num_batched_tokens),
            pooled,
            np.asarray(unsampled.logits) if unsampled is not None and step.wants_logits else None,
        )


def _on_host(output: SamplerOutput, count: int) -> SampleLogprobs:
    """The first `count` rows."""
    parts = (output.logprobs, output.ranks, output.top_token_ids, output.top_logprobs)
    return SampleLogprobs(*(np.asarray(part)[:count] for part in parts))
