"""Small schedulers, requests, and a stub model for the tests of the controller."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from jax_engine.core import BlockManager, Scheduler, SchedulerOutput, SequenceGroup
from jax_engine.core.decoding import Drafts

TOKEN = 7  # what the stub model always says
MOST_STEPS = 2000


def make_params(**changes: Any) -> Any:
    defaults = dict(
        n=1, best_of=None, max_tokens=8, min_tokens=0, stop_token_ids=(), ignore_eos=False,
        has_penalties=False, wants_prompt=False, drops_output=False,
    )  # fmt: skip
    return SimpleNamespace(**{**defaults, **changes})


def make_group(
    name: str, prompt: int | Sequence[int] = 4, *, arrival: float = 0.0, **params: Any
) -> SequenceGroup:
    """A request of `prompt` tokens (or these), arriving at 0 unless said otherwise."""
    tokens = list(range(100, 100 + prompt)) if isinstance(prompt, int) else list(prompt)
    return SequenceGroup(name, tokens, make_params(**params), {2}, arrival)


class BoundedScheduler(Scheduler):
    """One whose steps come to an end: a test that goes on until something happens does not hang."""

    num_steps = 0

    def schedule(self, drafts: Drafts | None = None) -> SchedulerOutput:
        self.num_steps += 1
        assert self.num_steps < MOST_STEPS, "I20: no end"
        return super().schedule(drafts)


def make_scheduler(
    num_gpu_blocks: int = 16,
    num_cpu_blocks: int = 16,
    *,
    block_size: int = 2,
    caching: bool = False,
    **changes: Any,
) -> Scheduler:
    blocks = BlockManager(block_size, num_gpu_blocks, num_cpu_blocks, enable_prefix_caching=caching)
    defaults = dict(max_num_seqs=8, max_num_batched_tokens=32, max_model_len=32)
    return BoundedScheduler(blocks, **{**defaults, **changes})


def tokens_for(output: SchedulerOutput) -> dict[int, list[int]]:
    """The stub's answer to a step."""
    return {
        item.seq.seq_id: [TOKEN] * item.num_samples for item in output.scheduled if item.num_samples
    }


def step(scheduler: Scheduler) -> SchedulerOutput:
    """One whole step, within the budget and from where each sequence is; what was scheduled."""
    output = scheduler.schedule()
    num_tokens = sum(item.num_tokens for item in output.scheduled)
    assert output.num_batched_tokens == num_tokens <= scheduler.max_num_batched_tokens
    assert all(item.start == item.seq.num_computed_tokens for item in output.scheduled)
    scheduler.update(tokens_for(output))
    return output


def occupy(blocks: BlockManager, count: int) -> None:
    """A foreign sequence that holds this many blocks; none if 0."""
    blocks.free(-1)
    if count:
        num_tokens = blocks.block_size * count
        blocks.allocate_slots(-1, [0] * num_tokens, 0, num_tokens)
