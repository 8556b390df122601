"""What docs/javascripts/oracle_worker.js calls; JSON goes in and comes out.

>>> call("playground.session", "run", '{"seed": -1}')
'{"error": "seed must be a whole number from 0 to 9999, got -1"}'
>>> run_code("print(x * 7)", before="x = 6")
'{"printed": "42\\\\n", "error": null}'
"""

import contextlib
import importlib
import io
import json
import linecache
import sys
import traceback
from types import ModuleType
from typing import Any

OWN = "<cell>"


def call(module: str, name: str, argument: str) -> str:
    """A function's result, given one argument."""
    function = getattr(importlib.import_module(module), name)
    return json.dumps(function(json.loads(argument)), ensure_ascii=False)


def run_code(code: str, before: str = "") -> str:
    """Runs code in a namespace of its own: what it prints, and the error that ended it.

    Args:
        before: runs first, in the same namespace; what it prints is not shown.
    """
    namespace = {"__name__": "__main__"}
    printed = io.StringIO()
    error = None
    linecache.cache[OWN] = len(code), None, code.splitlines(keepends=True), OWN
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(before, "<before>", "exec"), namespace)
        with contextlib.redirect_stdout(printed):
            exec(compile(code, OWN, "exec"), namespace)
    except BaseException as found:  # SystemExit too: nothing ends the worker
        error = _short(found)
    return json.dumps({"printed": printed.getvalue(), "error": error}, ensure_ascii=False)


def leave_shapes_unchecked() -> None:
    """Puts a `jaxtyping` in place whose `Float[array, "T D"]` is the array's type alone."""

    class Shaped:
        def __class_getitem__(cls, key: tuple[Any, str]) -> Any:
            return key[0]

    module = ModuleType("jaxtyping")
    module.__getattr__ = lambda _: Shaped  # type: ignore[method-assign]
    sys.modules["jaxtyping"] = module


def _short(error: BaseException) -> str:
    """The lines of the cell alone, then the error."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [f"line {frame.lineno}" for frame in frames if frame.filename == OWN]
    if isinstance(error, SyntaxError) and error.lineno is not None:
        lines = [f"line {error.lineno}"]
    where = f" ({', '.join(lines)})" if lines else ""
    return f"{type(error).__name__}: {error}{where}"
