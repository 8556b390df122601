"""An exception at any line of the engine, as Ctrl-C or a full memory may raise one."""

import sys
from collections.abc import Callable, Collection
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import jax_engine

PACKAGE = str(Path(jax_engine.__file__).parent)


class Injected(BaseException):
    """Caught by nothing that catches `Exception`, as KeyboardInterrupt."""


type Place = tuple[str, int, str]  # file, line, "line" or "call"


class _Tracer:
    """Notes lines and calls of the package, from when `begin` is called until `end` has returned.

    May raise at one of them.
    """

    def __init__(self, begin: CodeType, end: CodeType, raise_at: Place | None = None) -> None:
        self.places: dict[Place, None] = {}
        self.begun = self.ended = False
        self._begin = begin
        self._end = end
        self._raise_at = raise_at

    def __call__(self, frame: FrameType, event: str, arg: Any) -> Any:
        code = frame.f_code
        if not code.co_filename.startswith(PACKAGE):
            return None  # no lines of it, but calls from it
        if event == "return":
            self.ended |= code is self._end
        self.begun |= code is self._begin
        if event in ("line", "call") and self.begun and not self.ended:
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


def places_of(
    call: Callable[[], Any], begin: Callable[..., Any], end: Callable[..., Any]
) -> list[Place]:
    """The lines of the engine that `call` runs between the two, and the calls."""
    whole = _Tracer(begin.__code__, end.__code__)
    _traced(call, whole)
    assert whole.ended, f"{end} was never called"
    return list(whole.places)


def raise_everywhere(
    call: Callable[[], Any],
    begin: Callable[..., Any],
    end: Callable[..., Any],
    check: Callable[[], None],
    leave_out: Collection[Place] = (),
) -> int:
    """Runs `call` again and again, each time with an exception at the next line of the engine.

    Args:
        call: Must succeed when nothing is raised.
        begin: The function from whose first call on something is raised.
        end: The function after whose first return nothing is raised any more.
        check: Called after each exception; it undoes what `call` did where nothing was raised.
        leave_out: Where not: what `places_of` another call.

    Returns:
        At how many places it was raised: at each line, and at each function's call. What is cached
        may lead past some of them.
    """
    call()  # what is done only once in a process
    check()
    places = places_of(call, begin, end)
    check()
    num_raised = 0
    for place in places:
        if place in leave_out:
            continue
        try:
            _traced(call, _Tracer(begin.__code__, end.__code__, place))
        except Injected:
            num_raised += 1
        check()
    return num_raised
