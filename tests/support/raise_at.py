"""An exception at any line of the engine, as Ctrl-C or a full memory may raise one."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

import jax_engine

PACKAGE = str(Path(jax_engine.__file__).parent)


class Injected(BaseException):
    """Caught by nothing that catches `Exception`, as KeyboardInterrupt."""


type Place = tuple[str, int, str]  # file, line, "line" or "call"


class _Tracer:
    """Notes lines and calls of the package, until `end` has returned; may raise at one of them."""

    def __init__(self, end: CodeType, raise_at: Place | None = None) -> None:
        self.places: dict[Place, None] = {}
        self.ended = False
        self._end = end
        self._raise_at = raise_at

    def __call__(self, frame: FrameType, event: str, arg: Any) -> Any:
        code = frame.f_code
        if event == "return":
            self.ended |= code is self._end
        elif event != "exception" and not self.ended and code.co_filename.startswith(PACKAGE):
            place = code.co_filename, frame.f_lineno, event
            self.places[place] = None
            if place == self._raise_at:
                raise Injected(place)
        return self


def _traced(call: Callable[[], Any], tracer: _Tracer) -> None:
    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        call()
    finally:
        sys.settrace(before)


def raise_everywhere(
    call: Callable[[], Any], end: Callable[..., Any], check: Callable[[], None]
) -> int:
    """Runs `call` again and again, each time with an exception at the next line of the engine.

    Args:
        call: Must succeed when nothing is raised.
        end: The function after whose first return nothing is raised any more.
        check: Called after each exception; it undoes what `call` did where nothing was raised.

    Returns:
        How many places there were: each line, and each function at its call.
    """
    call()  # what is done only once in a process
    check()
    whole = _Tracer(end.__code__)
    _traced(call, whole)
    check()
    assert whole.ended, f"{end} was never called"
    for place in whole.places:
        with pytest.raises(Injected):
            _traced(call, _Tracer(end.__code__, place))
        check()
    return len(whole.places)
