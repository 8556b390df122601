"""The runner of one stage of a model, in a process of its own (pipeline parallelism).

All stages get the same steps. A thread carries them out in their order: it waits for what the stage
before hands on, runs the layers, and hands on what they give. So the process goes on to listen, and
the results of one step can be had while the next one has not come.

Tokens are drawn by the last stage alone. The first one learns them from the controller: it must not
launch a step with a token that is not known yet.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from queue import SimpleQueue
from typing import Any

import numpy as np
from jaxtyping import Float, UInt32

from jax_engine.parallel.collectives import others_gave_up, own_stage
from jax_engine.processes.stage_link import Folders, StageLink
from jax_engine.step import PreemptionCosts, Runner, Step, StepResult
from jax_engine.worker.worker import Worker


@dataclass(slots=True, eq=False)
class StageTicket:
    """A step that waits for its turn, is computed, or was computed.

    Attributes:
        launched: Gives the worker's ticket.
        sampled: When the tokens of a masked step are drawn; None for any other step.
    """

    launched: "Future[Any]"
    sampled: "Future[None] | None" = None


class StageRunner:
    """A `Runner` over the worker that has the layers of this stage.

    After a step has failed, those behind it fail, too, until `recover`.

    Args:
        num_stages: Number of the model's stages. So many steps may be in flight.
    """

    def __init__(self, worker: Worker, link: StageLink, num_stages: int) -> None:
        self.capabilities = replace(
            worker.capabilities, accepts_guesses=False, max_concurrent_batches=num_stages
        )
        self._worker, self._link = worker, link
        self._failure: Exception | None = None
        self._recovered = self._number = 0
        self._jobs: SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = SimpleQueue()
        # Its end is that of the process, which must not wait for a stage that has ended before it.
        threading.Thread(target=self._work, name="jax-engine-stage", daemon=True).start()

    def launch(self, step: Step) -> StageTicket:
        """See `Runner`. Even what it raises comes from `collect`."""
        return StageTicket(self._soon(lambda: self._carry_out(step)))

    def logits(self, ticket: StageTicket) -> Float[np.ndarray, "samples V"]:
        """See `Runner`; nothing in a stage that others follow."""
        if self._link.has_after:
            return np.zeros((0, self.capabilities.vocab_size), np.float32)
        return self._worker.logits(ticket.launched.result())

    def sample(
        self,
        ticket: StageTicket,
        allowed: UInt32[np.ndarray, "samples words"] | None,
        processed: Float[np.ndarray, "samples V"] | None,
    ) -> None:
        """See `Runner`."""
        if self._link.has_after:
            return

        def draw() -> None:
            self._worker.sample(ticket.launched.result(), allowed, processed)

        ticket.sampled = self._soon(draw)

    def collect(self, ticket: StageTicket) -> StepResult:
        """See `Runner`; without tokens in a stage that others follow."""
        launched = ticket.launched.result()
        if ticket.sampled is not None:
            ticket.sampled.result()
        return self._worker.collect(launched)

    def recover(self) -> None:
        """See `Runner`. All stages must do this before one of them launches a step."""

        def forget() -> None:
            self._failure, self._number = None, 0
            self._recovered += 1
            self._worker.recover()

        self._soon(forget, always=True).result()

    def host_room(self, blocks: list[int]) -> bool:
        """See `Runner`. Steps in flight do not have these blocks."""
        return self._worker.host_room(blocks)

    def measure_costs(self) -> PreemptionCosts:
        """See `Runner`; of this stage's layers alone."""
        return self._soon(self._worker.measure_costs).result()

    def compile_ahead(
        self, max_num_batched_tokens: int, max_num_seqs: int, *, use_tqdm: bool = True
    ) -> int:
        """See `Runner`."""
        limits = max_num_batched_tokens, max_num_seqs
        shown = use_tqdm and not self._link.has_after  # one bar for all stages
        return self._soon(lambda: self._worker.compile_ahead(*limits, use_tqdm=shown)).result()

    def set_weights(self, model: Any) -> None:
        """See `Runner`."""
        self._soon(lambda: self._worker.set_weights(model)).result()

    def _carry_out(self, step: Step) -> Any:
        if not step.rows:  # it moves blocks, of which each stage has its own
            return self._worker.launch(step)
        self._number += 1
        tag = self._recovered, self._number
        stream = tuple(self._link.receive(tag)) if self._link.has_before else None
        ticket = self._worker.launch(step, stream)
        if self._link.has_after:
            assert ticket.output is not None and ticket.output.stream is not None, "it has rows"
            self._link.send(tag, [np.asarray(one) for one in ticket.output.stream])
        return ticket

    def _soon[T](self, job: Callable[[], T], *, always: bool = False) -> "Future[T]":
        """Lets the thread do something behind all that it was given before.

        Args:
            always: Even after a failure.
        """

        def guarded() -> T:
            if self._failure is not None and not always:
                raise self._failure
            try:
                return job()
            except Exception as error:
                self._failure = error
                raise

        future: Future[T] = Future()
        self._jobs.put((guarded, future))
        return future

    def _work(self) -> None:
        while True:
            job, future = self._jobs.get()
            try:
                future.set_result(job())
            except Exception as error:
                future.set_exception(error)
            del job, future  # or the arrays of a step would be kept until the next one comes


def runner_of_stage(worker: Runner, folders: Folders) -> Runner:
    """The runner of this process: the worker itself, if it has all layers."""
    stage, num_stages = own_stage()
    if num_stages == 1:
        return worker
    assert isinstance(worker, Worker), "it was built in this process"
    link = StageLink(folders, others_gave_up, has_before=stage > 0)
    return StageRunner(worker, link, num_stages)
