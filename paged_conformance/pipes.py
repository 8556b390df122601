"""A target in another process, in any language: JSON lines over its standard input and output.

The process reads one JSON object a line and answers each with one line, which has the same `id`:

    {"id": 1, "do": "describe"}
    {"id": 1, "result": {"capabilities": ["fork"], "sizes": {"max_block_size": 16}}}
    {"id": 2, "do": "make", "sizes": {"num_blocks": 4, "block_size": 2}, "drop": []}
    {"id": 2, "result": 1}
    {"id": 3, "do": "call", "target": 1, "method": "free", "arguments": {"id": 7}}
    {"id": 3, "refused": "no sequence 7"}

`make` answers with a number for the new target, which each `call` names. `drop` has the numbers
of targets that nobody calls any more. An answer has `result` (any JSON), `refused` (why the
target says no, as it may) or `error` (what broke; it is a failure). Whatever is written to standard
error is shown when the process fails.
"""

import atexit
import contextlib
import json
import os
import queue
import select
import shlex
import signal
import subprocess
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from paged_conformance.errors import TargetError
from paged_conformance.properties import Refused

START_SECONDS = 60.0  # until the first answer: a process may load a model
ANSWER_SECONDS = 20.0
END_SECONDS = 2.0  # from closing its input until it is killed
SHOWN_LINES = 20  # of its standard error
LONGEST_SHOWN = 300  # characters of a line that is no answer


class PipeFailure(Exception):
    """The process did not answer as it should. The next target is made in a new one."""


class ProcessEnded(PipeFailure):
    """The process ended, or closed its output."""


class NoAnswer(PipeFailure):
    """The process did not answer within its seconds."""


class BadAnswer(PipeFailure):
    """The process wrote a line that is no answer to what it was asked."""


class TargetFailed(Exception):
    """The target raised in its own process; the message is what it says of it."""


class Process:
    """A factory whose targets live in a process. Used as a context manager: it ends the process.

    Attributes:
        capabilities, sizes: What the process said when it was asked to describe its targets.
    """

    def __init__(
        self, command: str, *, start_s: float = START_SECONDS, answer_s: float = ANSWER_SECONDS
    ) -> None:
        self._command = command
        self._start_s, self._answer_s = start_s, answer_s
        self._running: _Running | None = None
        self._dropped: list[tuple[_Running, Any]] = []
        try:
            described = self._started().ask({"do": "describe"}, start_s)
        except PipeFailure as failure:
            self.close()
            raise TargetError(f"{command!r} did not describe its targets. {failure}") from failure
        if not isinstance(described, dict):
            self.close()
            raise TargetError(f"{command!r} described its targets as {described!r}, no object.")
        self.capabilities = described.get("capabilities", [])
        self.sizes = described.get("sizes", {})

    def __call__(self, **sizes: Any) -> "RemoteTarget":
        running = self._started()
        drop = [number for owner, number in self._dropped if owner is running]
        self._dropped.clear()
        number = running.ask({"do": "make", "sizes": sizes, "drop": drop}, self._start_s)
        target = RemoteTarget(running, number, self._answer_s)
        weakref.finalize(target, self._dropped.append, (running, number))
        return target

    def _started(self) -> "_Running":
        if self._running is None or self._running.broken:
            self._running = _Running(self._command)
        return self._running

    def close(self) -> None:
        if self._running is not None:
            self._running.end()
            self._running = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, t: TracebackType | None
    ) -> None:
        self.close()


class RemoteTarget:
    """A target in another process. Each attribute is a method, called with keyword arguments."""

    def __init__(self, running: "_Running", number: Any, answer_s: float) -> None:
        self._running, self._number, self._answer_s = running, number, answer_s

    def __getattr__(self, method: str) -> Callable[..., Any]:
        if method.startswith("_"):
            raise AttributeError(method)

        def call(**arguments: Any) -> Any:
            message = {"do": "call", "target": self._number, "method": method}
            return self._running.ask({**message, "arguments": arguments}, self._answer_s)

        return call


class _Running:
    """One process with the threads that read from it."""

    def __init__(self, command: str) -> None:
        self.broken = False
        self._last_id = 0
        try:
            self._process = subprocess.Popen(
                shlex.split(command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,  # so that its children can be ended with it
            )
        except (OSError, ValueError) as error:
            raise TargetError(f"{command!r} cannot be started: {error}.") from error
        assert self._process.stdin and self._process.stdout and self._process.stderr
        self._lines: queue.Queue[bytes | None] = queue.Queue()
        self._errors: deque[str] = deque(maxlen=SHOWN_LINES)
        os.set_blocking(self._process.stdin.fileno(), False)
        out, err = self._process.stdout, self._process.stderr
        self._threads = [
            threading.Thread(target=_pass_on, args=(out, self._lines.put), daemon=True),
            threading.Thread(target=_pass_on, args=(err, self._note_error), daemon=True),
        ]
        for thread in self._threads:
            thread.start()
        atexit.register(self.kill)

    def _note_error(self, line: bytes | None) -> None:
        if line is not None:
            self._errors.append(line.decode(errors="replace").rstrip())

    def ask(self, message: dict[str, Any], seconds: float) -> Any:
        """Sends a message and returns the result of its answer.

        Raises:
            Refused: The target says no.
            TargetFailed: The target raised.
            PipeFailure: There is no proper answer. The process is killed.
        """
        if self.broken:
            raise ProcessEnded("The process of this target has ended before.")
        self._last_id += 1
        try:
            self._send({"id": self._last_id, **message}, seconds)
            answer = self._answer(seconds)
        except BaseException:  # by a signal as well: an answer may come later
            self.kill()
            raise
        if "refused" in answer:
            raise Refused(str(answer["refused"]))
        if "error" in answer:
            raise TargetFailed(str(answer["error"]))
        return answer["result"]

    def _send(self, message: dict[str, Any], seconds: float) -> None:
        """Writes a line, piece by piece: a process that does not read must not stop us."""
        assert self._process.stdin is not None
        pipe, rest = self._process.stdin.fileno(), json.dumps(message).encode() + b"\n"
        end = time.monotonic() + seconds
        try:
            while rest:
                if not select.select([], [pipe], [], max(0.0, end - time.monotonic()))[1]:
                    raise NoAnswer(self._with_errors(f"It read nothing for {seconds:g} s."))
                rest = rest[os.write(pipe, rest) :]
        except OSError as error:
            raise ProcessEnded(self._with_errors(f"{self._how_it_ended()}.")) from error

    def _answer(self, seconds: float) -> dict[str, Any]:
        try:
            line = self._lines.get(timeout=seconds)
        except queue.Empty:
            raise NoAnswer(self._with_errors(f"No answer within {seconds:g} s.")) from None
        if line is None:
            raise ProcessEnded(self._with_errors(f"{self._how_it_ended()}."))
        shown = line.decode(errors="replace").rstrip("\n")[:LONGEST_SHOWN]
        try:
            answer = json.loads(line)
        except ValueError:
            answer = None
        if not isinstance(answer, dict) or not answer.keys() & {"result", "refused", "error"}:
            raise BadAnswer(
                self._with_errors(
                    f"A line that is no answer: {shown!r}. Standard output is for answers alone, "
                    "with result, refused or error; print to standard error."
                )
            )
        if answer.get("id") != self._last_id:
            raise BadAnswer(f"The answer has not the id {self._last_id}: {shown!r}.")
        return answer

    def _how_it_ended(self) -> str:
        try:
            code = self._process.wait(timeout=END_SECONDS)
        except subprocess.TimeoutExpired:
            return "The process closed its output and runs on"
        if code < 0:
            return f"The process was ended by {signal.Signals(-code).name}"
        return f"The process ended with exit status {code}"

    def _with_errors(self, says: str) -> str:
        self._threads[1].join(timeout=0.2)  # what it wrote just before it ended
        return "\n".join([says, *(f"  {line}" for line in self._errors)])

    def end(self) -> None:
        """Closes its input, waits a little, and kills it."""
        if not self.broken and self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=END_SECONDS)
        self.kill()

    def kill(self) -> None:
        """Kills it with its children, and waits for its threads."""
        if self.broken:
            return
        self.broken = True
        atexit.unregister(self.kill)
        with contextlib.suppress(OSError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for thread in self._threads:
            thread.join(timeout=END_SECONDS)
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


def _pass_on(pipe: Any, take: Callable[[bytes | None], None]) -> None:
    """Hands each line on, and None at the end."""
    with contextlib.suppress(OSError, ValueError):
        for line in pipe:
            take(line)
    take(None)
