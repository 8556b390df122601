"""Batches calls of `LLM` from any number of threads: one thread at a time runs steps for all.

The oldest call runs the engine; the others sleep until an output is in their mailbox. When the
oldest call's requests have ended it returns, and the next call runs the engine.
"""

import logging
from collections.abc import Sequence
from contextlib import suppress
from threading import Lock

from jax_engine.engine.batch import Progress, UseTqdm, progress_bar
from jax_engine.engine.interrupt import Interrupt, deferred_interrupt
from jax_engine.engine.llm_engine import LLMEngine
from jax_engine.engine.mailbox import Mailbox
from jax_engine.engine.request import Request
from jax_engine.errors import StepFailedError
from jax_engine.outputs import AnyRequestOutput

logger = logging.getLogger("jax_engine")


class SharedBatch:
    """The calls that wait for requests of one engine."""

    def __init__(self, engine: LLMEngine) -> None:
        self._engine = engine
        self._num_requests = 0
        self._turns = Lock()
        self._calls: dict[Mailbox, None] = {}  # in the order in which they came
        self._stepper: Mailbox | None = None

    def add(
        self,
        requests: Sequence[Request],
        priorities: Sequence[int],
        timeouts: Sequence[float | None],
        mailbox: Mailbox,
    ) -> list[str]:
        """Accepts all requests, or none; returns their ids, which the mailbox then expects.

        Raises:
            BaseException: Whatever interrupts it, such as Ctrl-C; no request was accepted.
        """
        with self._engine.lock:  # else another thread could take an id that was free
            first = self._num_requests
            while self._engine.is_running(str(first + i) for i in range(len(requests))):
                first += 1  # a caller of `LLMEngine.add_request` has taken one
            ids = [str(first + i) for i in range(len(requests))]
            service = zip(requests, ids, priorities, timeouts, strict=True)
            for request, request_id, priority, timeout in service:
                request.serve_as(request_id, priority=priority, timeout=timeout)
            self._add(requests, ids, mailbox, next_number=first + len(ids))
            return ids

    def _add(
        self,
        requests: Sequence[Request],
        ids: Sequence[str],
        mailbox: Mailbox,
        *,
        next_number: int,
    ) -> None:
        try:
            mailbox.expect(ids)
            self._engine.add_all(requests, mailbox)
            self._num_requests = next_number
        except BaseException:
            mailbox.forget(ids)
            if self._engine.is_running(ids):  # they were accepted before the exception
                self._num_requests = next_number  # the mailbox gets their outputs: use new ids
                self._engine.abort_request(ids)
            raise

    def wait(self, mailbox: Mailbox, *, use_tqdm: UseTqdm) -> list[AnyRequestOutput]:
        """Waits for a mailbox's requests; returns their outputs in the order they were added.

        If it raises, these requests are aborted, and other calls go on.

        Raises:
            KeyboardInterrupt: After Ctrl-C, in the main thread.
            StepFailedError: A step in another thread failed.
            BaseException: What a step in this thread raised.
        """
        total = len(mailbox.request_ids)
        with deferred_interrupt(mailbox.wake) as interrupt, progress_bar(total, use_tqdm) as show:
            try:
                self._enter(mailbox)
                while mailbox.missing:
                    self._go_on(mailbox, interrupt, show)
            finally:
                interrupt.held = True  # a second Ctrl-C here would leave no thread that steps
                self._leave(mailbox)
        return mailbox.outputs()

    def _go_on(self, mailbox: Mailbox, interrupt: Interrupt, show: Progress) -> None:
        if interrupt.pressed:
            raise KeyboardInterrupt
        steps = self._stepper is mailbox
        # First read what steps of other threads have ended: a needless step could fail.
        outputs = mailbox.take(wait=not steps)
        if steps and not outputs:
            outputs = self._serve(mailbox)
        for output in outputs:
            show(output)

    def _serve(self, mailbox: Mailbox) -> list[AnyRequestOutput]:
        """Runs a step for all calls; its outputs go to the mailboxes.

        Returns this call's outputs only if there was nothing to run, or if the step failed after
        this call's requests had all ended by timeout: then only other calls needed it.
        """
        try:
            if self._engine.serve():
                return []
        except Exception as error:
            outputs = list[AnyRequestOutput]()
            with suppress(StepFailedError):
                outputs = mailbox.take(wait=False)
            if mailbox.missing:
                raise
            logger.warning("a step failed that only other calls needed: %r", error)
            return outputs
        outputs = mailbox.take(wait=False)
        if not outputs:
            lost = sorted(mailbox.missing)
            raise StepFailedError(f"requests {lost} are not in the engine: a bug, report it")
        return outputs

    def _enter(self, mailbox: Mailbox) -> None:
        with self._turns:
            self._calls[mailbox] = None
            if self._stepper is None:
                self._stepper = mailbox

    def _leave(self, mailbox: Mailbox) -> None:
        """Removes a call; if it ran the steps, the call that waits longest goes on with them."""
        with self._turns:
            self._calls.pop(mailbox, None)
            if self._stepper is mailbox:
                self._stepper = next(iter(self._calls), None)
                if self._stepper is not None:
                    self._stepper.wake()
        if mailbox.missing:
            self._engine.abort_all(mailbox)
