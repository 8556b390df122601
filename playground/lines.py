"""The lines of the oracle that ran in a moment of the playground, with the values that they saw.

    lit         one moment, for docs/javascripts/playground_code.js
    Recorder    what `sys.settrace` reports of `statements.MODULES`

Only the moment that is asked for is traced, since tracing is slow. The run before it goes as ever.

>>> found = lit({"settings": {"requests": [{"prompt": "To be or"}]}, "index": 1})
>>> [found["functions"][call["function"]]["name"] for call in found["calls"]][:3]
['Scheduler.schedule', 'schedule_unified', '_advance_running']
>>> [one["says"] for one in found["decisions"]]
['A is admitted', 'block 8 is taken']
"""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from types import FrameType, FunctionType
from typing import Any

from playground import session
from playground.breaks import system_of
from playground.decisions import decisions
from playground.settings import SettingError
from playground.statements import PLANTED, Function, Statement, function_of, of_code
from playground.values import Values

ROOTS = {
    "reference/scheduler.py": ("schedule", "update", "add_group"),
    "reference/speculation.py": ("ask_for_drafts",),
    "playground/breaks.py": ("schedule", "update", "begin_step"),
    "playground/trace_memory.py": ("begin_step",),
    "playground/trace_run.py": ("write",),
}
"""Where a step enters the code that is shown. What else calls that code only looks."""
MOST = 3000
"""So many statements of a moment are kept."""


class Recorder:
    """Calls and statements in the order in which they ran, while `recording`.

    Attributes:
        calls: `function`; `parent`, the call that it was made in, and `at`, the number of the
            statement that made it; `returned`.
        events: `call`; `statement`, its number in the function; the values that it `reads`, as they
            were before it ran, and that it `sets`, as they were after.
        cut: whether there was more than `MOST`.
    """

    def __init__(self, values: Values) -> None:
        self.values = values
        self.functions: list[Function] = []
        self.calls: list[dict[str, Any]] = []
        self.events: list[dict[str, Any]] = []
        self.cut = False
        self._stack: list[_Call] = []

    @contextmanager
    def recording(self) -> Iterator[None]:
        before = sys.gettrace()
        sys.settrace(self._enters)
        try:
            yield
        finally:
            sys.settrace(before)

    def _enters(self, frame: FrameType, event: str, _: Any) -> Any:
        """A function is called: `sys.settrace` wants to know who is told of its lines."""
        function = function_of(frame.f_code)
        if event != "call" or function is None or self.cut:
            return None
        name = frame.f_code.co_name
        if not self._stack and name not in ROOTS.get(function.file, ()):
            return None
        if function not in self.functions:
            self.functions.append(function)
        call = _Call(self, function, frame)
        self._stack.append(call)
        return call.sees

    def leave(self, call: "_Call") -> None:
        while self._stack and self._stack.pop() is not call:
            pass

    @property
    def top(self) -> "_Call | None":
        return self._stack[-1] if self._stack else None


class _Call:
    """One call while it lasts."""

    def __init__(self, recorder: Recorder, function: Function, frame: FrameType) -> None:
        self.recorder, self.function = recorder, function
        self.number = len(recorder.calls)
        above = recorder.top
        self.last: int | None = None  # the number of its latest event
        self.began = 0  # where in the bytecode that is
        self.made: dict[str, Any] = {
            "function": recorder.functions.index(function),
            "parent": -1 if above is None else above.number,
            "at": -1 if above is None or above.last is None else above.last,
            "returned": None,
            "given": recorder.values.of(frame, _arguments(frame)),
        }
        recorder.calls.append(self.made)

    def sees(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            number = self.function.at(frame.f_lineno)
            if number is not None and not self._goes_on(number, frame):
                self._finish(frame, number)
                self._begin(frame, number)
        elif event == "exception":
            self.made["raised"] = f"{argument[0].__name__}: {argument[1]}"
        elif event == "return":
            self._finish(frame, None)
            if "raised" not in self.made:
                self.made["returned"] = self.recorder.values.short(argument)
            self.recorder.leave(self)
        return self.sees

    def _goes_on(self, number: int, frame: FrameType) -> bool:
        """Is it another line of the long statement that runs already, or its first line again?

        A statement that is run once more begins where it began.
        """
        if self.last is None or self.recorder.events[self.last]["statement"] != number:
            return False
        return frame.f_lasti > self.began

    def _begin(self, frame: FrameType, number: int) -> None:
        recorder = self.recorder
        if len(recorder.events) >= MOST:
            recorder.cut = True
            return
        statement = self.function.statements[number]
        self.last, self.began = len(recorder.events), frame.f_lasti
        recorder.events.append(
            {
                "call": self.number,
                "statement": number,
                "reads": recorder.values.of(frame, statement.reads),
                "sets": {},
            }
        )

    def _finish(self, frame: FrameType, following: int | None) -> None:
        """What the statement before has set. The head of a loop sets nothing when the loop ends."""
        if self.last is None:
            return
        event = self.recorder.events[self.last]
        statement = self.function.statements[event["statement"]]
        if not event["sets"] and not _ends(statement, self.function, following):
            event["sets"] = self.recorder.values.of(frame, statement.sets)


def _arguments(frame: FrameType) -> tuple[str, ...]:
    code = frame.f_code
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


def _ends(loop: Statement, function: Function, following: int | None) -> bool:
    if loop.kind != "for" or loop.body is None:
        return False
    first, last = loop.body
    return following is None or not first <= function.statements[following].first <= last


def lit(asked: dict[str, Any]) -> dict[str, Any]:
    """What ran between the moment before and this one.

    Args:
        asked: `settings`, as `session.run` takes them, and the `index` of a moment.

    Returns:
        `functions` (`file`, `name`, `lines`: pairs of number and text, `statements`: pairs of first
        and last line; `instead`: of a planted fault, the oracle's function that did not run);
        `calls` and `events`, see `Recorder`; `decisions`, see `decisions.decisions`; `cut`. Or only
        `error`.
    """
    try:
        run = session.watched(asked["settings"])
    except SettingError as error:
        return {"error": str(error)}
    recorder, wanted = Recorder(Values(run)), asked["index"]
    kind, seen = "", session.seen(run)
    for index in range(wanted + 1):
        if kind != "fell":  # else what ran led to the moment behind it, too
            recorder = Recorder(Values(run))
        with recorder.recording() if index >= wanted - 1 else nullcontext():
            found = next(seen, None)
        if found is None:
            return {"error": f"there is no moment {wanted}, of {index}"}
        kind = found[0]["kind"]
    return shown(recorder, asked["settings"].get("breaks", []))


def shown(recorder: Recorder, breaks: list[str]) -> dict[str, Any]:
    """As JSON."""
    instead = replaced(breaks)
    return {
        "functions": [_function(one, instead) for one in recorder.functions],
        "calls": recorder.calls,
        "events": recorder.events,
        "decisions": decisions(recorder.functions, recorder.calls, recorder.events),
        "cut": recorder.cut,
    }


def _function(one: Function, instead: Mapping[str, Function]) -> dict[str, Any]:
    known: dict[str, Any] = {
        "file": one.file,
        "name": one.name,
        "lines": one.shown,
        "statements": [[part.first, part.last] for part in one.statements],
    }
    if one.file == PLANTED and one.name in instead:
        rule = instead[one.name]
        known["instead"] = {"file": rule.file, "name": rule.name, "lines": rule.shown}
    return known


def replaced(breaks: list[str]) -> dict[str, Function]:
    """The oracle's functions that a planted fault takes the place of, and does not call.

    >>> {name: rule.name for name, rule in replaced(["no copy on write"]).items()}
    {'_WritesSharedBlocks._copy_on_write': 'BlockManager._copy_on_write'}
    """
    system = system_of(breaks)
    found = {}
    for part in (system.block_manager, system.scheduler, system.memory):
        for name, own in vars(part).items():
            planted = function_of(own.__code__) if isinstance(own, FunctionType) else None
            if planted is None or planted.file != PLANTED or _calls_super(own):
                continue
            rule = next((getattr(one, name) for one in part.mro()[1:] if hasattr(one, name)), None)
            if isinstance(rule, FunctionType):
                found[planted.name] = of_code(rule.__code__)
    return found


def _calls_super(function: FunctionType) -> bool:
    return "super" in function.__code__.co_names
