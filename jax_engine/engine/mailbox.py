"""Where the ends of requests wait for the call that wants them, whichever thread steps."""

from collections.abc import Iterable
from dataclasses import dataclass
from queue import SimpleQueue

from jax_engine.errors import StepFailedError
from jax_engine.outputs import AnyRequestOutput


@dataclass(frozen=True, slots=True)
class _Failure:
    error: BaseException


class Mailbox:
    """The requests of one call. Any thread fills it, under the engine's lock; one thread reads.

    Attributes:
        request_ids: All of them, in the order of their outputs.
        missing: Those whose output has not been read yet.
    """

    def __init__(self) -> None:
        self.request_ids: list[str] = []
        self.missing: set[str] = set()
        self._outputs: dict[str, AnyRequestOutput] = {}
        # Its put() may be called in a signal handler, also in the middle of a put() or get().
        self._post: SimpleQueue[AnyRequestOutput | _Failure | None] = SimpleQueue()

    def expect(self, request_ids: Iterable[str]) -> None:
        """More requests, which are accepted with this mailbox."""
        for one in request_ids:
            self.request_ids.append(one)
            self.missing.add(one)

    def forget(self, request_ids: Iterable[str]) -> None:
        """Those of the last `expect`, however far it came: they were not accepted after all."""
        gone = set(request_ids)
        self.request_ids = [one for one in self.request_ids if one not in gone]
        self.missing -= gone

    def put(self, output: AnyRequestOutput) -> None:
        """Leaves the last output of a request."""
        self._post.put(output)

    def fail(self, error: BaseException) -> None:
        """Tells the reader that a step raised this, and that its requests were aborted."""
        self._post.put(_Failure(error))

    def wake(self) -> None:
        """Has `take` return, with nothing."""
        self._post.put(None)

    def take(self, *, wait: bool) -> list[AnyRequestOutput]:
        """What has come since the last call, possibly nothing.

        Args:
            wait: Until something comes, or `wake` is called.

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
        """All of them, in the order of `request_ids`; for when nothing is missing."""
        return [self._outputs[request_id] for request_id in self.request_ids]
