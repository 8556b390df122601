"""Calls of `LLM` from any number of threads, in one batch: one thread steps at a time, for all.

The call that came first runs the engine; the others sleep until something for them is in their
mailbox. When its requests have ended it returns, and the next call goes on.
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
        """Accepts all requests, or none; returns their ids, which the mailbox expects now.

        Raises:
            BaseException: What was raised in the middle, Ctrl-C too; none was accepted.
        """
        with self._engine.lock:  # or somebody could take an id that was found to be free
            first = self._num_requests
            while self._engine.is_running(str(first + i) for i in range(len(requests))):
                first += 1  # somebody who drives the engine step by step has taken one
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
            if self._engine.is_running(ids):  # they were accepted before it was raised
                self._num_requests = next_number  # these are not free: the mailbox gets their ends
                self._engine.abort_request(ids)
            raise

    def wait(self, mailbox: Mailbox, *, use_tqdm: UseTqdm) -> list[AnyRequestOutput]:
        """The outputs of a mailbox's requests, in the order in which they were added.

        Raises:
            KeyboardInterrupt: After Ctrl-C, in the main thread.
            StepFailedError: A step in another thread failed.
            BaseException: What a step in this thread raised.

        Whatever is raised, these requests are aborted, and other calls go on.
        """
        total = len(mailbox.request_ids)
        with deferred_interrupt(mailbox.wake) as interrupt, progress_bar(total, use_tqdm) as show:
            try:
                self._enter(mailbox)
                while mailbox.missing:
                    self._go_on(mailbox, interrupt, show)
            finally:
                interrupt.held = True  # a second Ctrl-C in here would leave the others nobody
                self._leave(mailbox)
        return mailbox.outputs()

    def _go_on(self, mailbox: Mailbox, interrupt: Interrupt, show: Progress) -> None:
        if interrupt.pressed:
            raise KeyboardInterrupt
        steps = self._stepper is mailbox
        # First what has ended in the steps of others: a step that is not needed may fail.
        outputs = mailbox.take(wait=not steps)
        if steps and not outputs:
            outputs = self._serve(mailbox)
        for output in outputs:
            show(output)

    def _serve(self, mailbox: Mailbox) -> list[AnyRequestOutput]:
        """Runs a step for all calls. Its outputs wait in the mailboxes, but where there was none.

        A step that only others needed may fail: when the time of all of this call's requests was up
        before it began, they have their ends.
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
        """Hands on to the call that has waited longest, if this one stepped."""
        with self._turns:
            self._calls.pop(mailbox, None)
            if self._stepper is mailbox:
                self._stepper = next(iter(self._calls), None)
                if self._stepper is not None:
                    self._stepper.wake()
        if mailbox.missing:
            self._engine.abort_all(mailbox)
