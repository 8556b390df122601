"""What a stage of a model hands on to the next one, which is another process.

Each process binds a socket in its own folder, and the process of the stage before connects to it.
Messages wait in the socket's queue, so a stage goes on with its next step while the one behind it
is busy. Who waits for a message looks whether others have given up, so nobody waits for ever.
"""

import pickle
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import zmq

from jax_engine.errors import StepFailedError
from jax_engine.processes.child_process import Context, connect

HANDED = "handed"  # name of the socket
LOOK_MS = 50

type Tag = tuple[int, int]
"""How often the stages have recovered, and the number of a step since then."""


class Folders(NamedTuple):
    """Where the sockets of a process are, and those of the process with the next stage.

    Attributes:
        after: None: no stage follows.
    """

    own: str
    after: str | None = None


class StageLink:
    """The two ends of a stage: the one before hands it arrays, and it hands others on.

    Args:
        has_before: Whether a stage precedes this one.
        given_up: Whether a process of this model has failed, so that nobody must wait for it.
    """

    def __init__(self, folders: Folders, given_up: Callable[[], bool], *, has_before: bool) -> None:
        self._given_up, context = given_up, Context()
        self._before = self._after = None
        if has_before:
            self._before = context.socket(zmq.PULL)
            self._before.set_hwm(0)
            self._before.bind(f"ipc://{folders.own}/{HANDED}")
        if folders.after is not None:
            self._after = connect(context, zmq.PUSH, f"{folders.after}/{HANDED}")

    @property
    def has_before(self) -> bool:
        """Whether a stage precedes this one."""
        return self._before is not None

    @property
    def has_after(self) -> bool:
        """Whether a stage follows this one."""
        return self._after is not None

    def send(self, tag: Tag, arrays: Sequence[np.ndarray]) -> None:
        """Hands on the arrays of a step, without waiting. They must not change any more."""
        assert self._after is not None, "no stage follows"
        kinds = [(one.shape, one.dtype) for one in arrays]
        parts = [np.ascontiguousarray(one).view(np.uint8).data for one in arrays]
        self._after.send_multipart([pickle.dumps((tag, kinds)), *parts], copy=False)

    def receive(self, tag: Tag) -> list[np.ndarray]:
        """Waits for the arrays of a step. Those of steps before a failure are left out.

        Raises:
            StepFailedError: Others have given up; or the stage before has carried out another step.
        """
        assert self._before is not None, "no stage precedes"
        while True:
            while not self._before.poll(LOOK_MS):
                if self._given_up():
                    raise StepFailedError("a step failed: another stage of the model has failed")
            header, *parts = self._before.recv_multipart()
            found, kinds = pickle.loads(header)
            if found == tag:
                return [
                    np.frombuffer(part, np.uint8).view(dtype).reshape(shape)
                    for part, (shape, dtype) in zip(parts, kinds, strict=True)
                ]
            if found > tag:
                raise StepFailedError(
                    f"a step failed: the stage before has carried out step {found[1]}, and this "
                    f"one waits for step {tag[1]}, which is a bug: report it"
                )
