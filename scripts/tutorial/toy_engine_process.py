"""A process that plays the engine's: it takes `Add`s, and answers each step with one `Outputs`.

The messages are the engine's own (`jax_engine.serving.messages`), each behind its length, over
standard input and output instead of sockets. The model counts: a request's next token is its last
one plus one.
"""

import sys
import threading
import time
from queue import SimpleQueue
from typing import IO

from jax_engine.engine.engine_core_output import EngineCoreOutput, SequenceOutput
from jax_engine.serving.messages import Add, Command, Outputs, decode_command, encode

STEP_S = 0.002


def write(file: IO[bytes], message: bytes) -> None:
    file.write(len(message).to_bytes(4, "big") + message)
    file.flush()


def read(file: IO[bytes]) -> bytes | None:
    """The next message; None when the other process has closed its end."""
    head = file.read(4)
    return file.read(int.from_bytes(head, "big")) if len(head) == 4 else None


def receive(inbox: SimpleQueue[Command | None]) -> None:
    """Runs in a thread of its own, so that a message never waits for a step."""
    while (message := read(sys.stdin.buffer)) is not None:
        inbox.put(decode_command(message))
    inbox.put(None)  # the process that started this one is gone


def run(inbox: SimpleQueue[Command | None]) -> None:
    """Takes what has arrived, or waits for it where nothing runs; then a token for everybody."""
    running: dict[str, int] = {}
    while True:
        while not running or not inbox.empty():
            match inbox.get():
                case None:
                    return
                case Add(request_id, token_ids):
                    running[request_id] = token_ids[-1]
        time.sleep(STEP_S)
        running = {name: token + 1 for name, token in running.items()}
        outputs = [
            EngineCoreOutput(name, [SequenceOutput(0, [token])], False, 0)
            for name, token in running.items()
        ]
        write(sys.stdout.buffer, encode(Outputs(outputs)))


def main() -> None:
    inbox: SimpleQueue[Command | None] = SimpleQueue()
    threading.Thread(target=receive, args=(inbox,), daemon=True).start()
    run(inbox)


if __name__ == "__main__":
    main()
