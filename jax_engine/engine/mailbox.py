"""Hands last outputs of requests to the call that waits for them, whichever thread steps."""

from collections.abc import Iterable
from dataclasses import dataclass
from queue import SimpleQueue

from jax_engine.errors import StepFailedError
from jax_engine.outputs import AnyRequestOutput


@dataclass(frozen=True, slots=True)
class _Failure:
    error: BaseException


class Mailbox:
    """The outputs of one call's requests. Any thread fills it under the engine's lock; one reads.

    Attributes:
        request_ids: The call's requests, in the order of their outputs.
        missing: Requests whose output has not been read yet.
    """

    def __init__(self) -> None:
        self.request_ids: list[str] = []
        self.missing: set[str] = set()
        self._outputs: dict[str, AnyRequestOutput] = {}
        # SimpleQueue: a signal handler may call put(), even in the middle of a put() or get().
        self._post: SimpleQueue[AnyRequestOutput | _Failure | None] = SimpleQueue()

    def expect(self, request_ids: Iterable[str]) -> None:
        """Adds requests, before the engine accepts them with this mailbox."""
        for one in request_ids:
            self.request_ids.append(one)
            self.missing.add(one)

    def forget(self, request_ids: Iterable[str]) -> None:
        """Undoes `expect`, even if it was interrupted: the requests were not accepted."""
        gone = set(request_ids)
        self.request_ids = [one for one in self.request_ids if one not in gone]
        self.missing -= gone

    def put(self, output: AnyRequestOutput) -> None:
        """Delivers the last output of a request."""
        self._post.put(output)

    def fail(self, error: BaseException) -> None:
        """Tells the reader that a step raised this, and that its requests were aborted."""
        self._post.put(_Failure(error))

    def wake(self) -> None:
        """Makes a waiting `take` return, possibly with nothing."""
        self._post.put(None)

    def take(self, *, wait: bool) -> list[AnyRequestOutput]:
        """Returns the outputs delivered since the last call, possibly none.

        Args:
            wait: Whether to wait until something is delivered, or `wake` is called.

        Raises:
            StepFailedError: A step that other threads shared has failed.
        """
        found: list[AnyRequestOutput] = []
        while wait or not self._post.empty():
            wait = False
            letter = self._post.get()
            if isinstance(letter, _Failure):
                raise StepFailedError(
                    f"a step failed, and its requests were aborted: {letter.error!r}. The engine "
                    "goes on with new ones"
                ) from letter.error
            if letter is not None and letter.request_id in self.missing:
                self.missing.remove(letter.request_id)
                self._outputs[letter.request_id] = letter
                found.append(letter)
        return found

    def outputs(self) -> list[AnyRequestOutput]:
        """All outputs, in the order of `request_ids`. Call it when none is missing."""
        return [self._outputs[request_id] for request_id in self.request_ids]
