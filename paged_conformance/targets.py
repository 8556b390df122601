"""Finds what is to be tested: an object of a module, a process behind pipes, or an address.

A target is named in one of three ways:

- `module:name`: a factory, which makes targets; the current folder is on the import path.
- a command: a process that speaks JSON lines (`paged_conformance.pipes`).
- a text such as a URL, where the suite has a function `connect(target, options)`. It may load
  a `module:name` as well, by `loaded`.
"""

import difflib
import importlib
import os
import sys
import traceback
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from paged_conformance.errors import BadCapability, TargetError
from paged_conformance.pipes import Process
from paged_conformance.properties import Capabilities
from paged_conformance.suites import Suite


@dataclass(frozen=True)
class Target:
    """How a target is named, so that a script can name it again.

    Attributes:
        name: `module:name`, or a URL; None with a command.
        command: What starts a process that speaks JSON lines, as in a shell; None with a name.
        options: What a suite's `connect` reads.
    """

    name: str | None = None
    command: str | None = None
    options: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.command if self.command is not None else str(self.name)


@contextmanager
def opened(target: Target, suite: Suite) -> Iterator[Any]:
    """Gives the factory that makes targets, and ends the target's process at the end.

    Raises:
        TargetError: It cannot be loaded.
    """
    connect = suite.connect()
    if target.options and connect is None:
        raise TargetError(f"A target of the kind {suite.kind} takes no --option.")
    if target.command is not None:
        if connect is not None:
            raise TargetError(f"A target of the kind {suite.kind} is named, not started.")
        with Process(target.command) as process:
            yield suite.adapt(process)
    elif connect is not None:
        try:
            made = connect(target.name or "", target.options)
        except Exception as error:
            raise TargetError(f"No connection to {target}: {error}") from error
        try:
            yield made
        finally:
            getattr(made, "close", lambda: None)()
    else:
        made = suite.adapt(loaded(target.name or ""))
        if not callable(made):
            raise TargetError(
                f"{target} is of type {type(made).__name__} and cannot be called. A target of the "
                f"kind {suite.kind} is a factory: `make(**sizes)` makes one for each example."
            )
        yield made


def loaded(name: str) -> Any:
    """The object that `module:name` names, with the current folder on the import path."""
    module_name, colon, path = name.partition(":")
    if not (module_name and colon and path):
        raise TargetError(
            f"The target {name!r} is no module:name, such as my_engine.conformance:blocks."
        )
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise TargetError(
            f"No module {error.name!r} for the target {name!r}. Modules are looked for in the "
            "current folder and in this Python's packages: change the folder, or install it."
        ) from error
    except Exception as error:
        raise TargetError(
            f"The module {module_name!r} cannot be imported:\n{traceback.format_exc()}"
        ) from error
    for part in path.split("."):
        if not hasattr(found, part):
            meant = near(part, [word for word in vars(found) if not word.startswith("_")])
            raise TargetError(f"The module {module_name!r} has no {path!r}{meant}.")
        found = getattr(found, part)
    return found


def capabilities(make: Any, suite: Suite) -> Capabilities:
    """What the target says that it can do.

    Raises:
        BadCapability: A word that the suite does not know, or a size that is no whole number.
    """
    known = suite.capabilities()
    words = getattr(make, "capabilities", ())
    sizes = getattr(make, "sizes", {})
    if isinstance(words, str) or not all(isinstance(word, str) for word in words):
        raise BadCapability(f"capabilities is {words!r}; it must be a list of words.")
    for word in words:
        if word not in known:
            raise BadCapability(
                f"The suite {suite.kind} knows no capability {word!r}{near(word, known)}. "
                f"It knows {', '.join(sorted(known)) or 'none'}."
            )
    for name, size in dict(sizes).items():
        if not isinstance(size, int) or isinstance(size, bool):
            raise BadCapability(f"sizes[{name!r}] is {size!r}; it must be a whole number.")
    return Capabilities(frozenset(words), dict(sizes))


def near(word: str, words: Collection[str]) -> str:
    """The nearest of the words as a question, with a space before it; nothing if none is near."""
    found = difflib.get_close_matches(word, list(words), n=1)
    return f" (did you mean {found[0]!r}?)" if found else ""
