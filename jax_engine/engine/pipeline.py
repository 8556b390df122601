"""Steps on their way: while the device computes one, the host plans and launches the next.

The tokens of a step reach the one after it on the device, so that it need not wait for the host
(the slides' lightweight runtime). What the host learns one step late, that a sequence has ended,
costs one token that is dropped. Outputs are the same with and without.
"""

from typing import Literal

from jax_engine.core.output import SchedulerOutput
from jax_engine.core.scheduler import Scheduler
from jax_engine.host_memory import allocating
from jax_engine.worker.worker import StepInFlight, StepResult, Worker


class StepPipeline:
    """At most two steps at a time: one whose tokens are awaited, and one ahead of it.

    Args:
        look_ahead: False plans each step when the tokens of the one before are known.
    """

    def __init__(self, scheduler: Scheduler, worker: Worker, *, look_ahead: bool) -> None:
        self.look_ahead = look_ahead
        self._scheduler = scheduler
        self._worker = worker
        self._ahead: StepInFlight | None = None
        self._restart = False

    def restart(self) -> Literal[True]:
        """Forgets all KV blocks, cached ones too, before the next step that is planned.

        A step on its way comes first: it has read what was valid when it was launched.
        """
        self._restart = True
        if self._ahead is None:
            self._forget_blocks()
        return True

    @allocating("a step, to which a lower gpu_memory_utilization would leave more,")
    def step(self) -> tuple[SchedulerOutput, StepResult]:
        """The next step and its tokens, with which `Scheduler.update` must be called.

        Raises:
            OutOfMemoryError: The device or the host has too little for it.
        """
        current, self._ahead = self._ahead, None
        if current is None or _useless(current):
            self._scheduler.drop_steps()
            if self._restart:
                self._forget_blocks()
            current = self._worker.launch(self._scheduler.schedule(), self._scheduler.block_manager)
        self._ahead = self._launch_ahead(current)
        return current.plan, self._worker.collect(current)

    def clear(self) -> None:
        """Forgets all steps, after a failure; their requests must have ended."""
        self._ahead, self._restart = None, False
        self._scheduler.drop_steps()

    def _forget_blocks(self) -> None:
        self._restart = False
        self._scheduler.recompute_all()
        self._scheduler.block_manager.reset_prefix_cache()

    def _launch_ahead(self, current: StepInFlight) -> StepInFlight | None:
        if not self.look_ahead or self._restart or not self._scheduler.can_advance():
            return None
        self._scheduler.advance()
        plan = self._scheduler.schedule()
        if not plan.scheduled:  # all wait for their last token; blocks may have to move even so
            self._worker.move_blocks(plan)
            return None
        return self._worker.launch(plan, self._scheduler.block_manager, current)


def _useless(step: StepInFlight) -> bool:
    """Whether all sequences of a step have ended since it was planned."""
    return all(item.seq.finish_reason is not None for item in step.plan.scheduled)
