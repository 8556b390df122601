"""Reads a pickle as plain data: no code that it names is imported or called.

A pickle is a program for a machine with a stack. This machine knows the instructions that build
numbers, texts, lists, tuples and dictionaries. A name becomes the value that the caller has for it,
and only a `Function` of the caller's can be called. Everything else is refused: another name,
another instruction, a program that is long.

A value may hold another one many times, nested as deep as the program is long. So values are never
compared, hashed or printed as a whole.
"""

import itertools
import pickletools
from collections.abc import Callable, Container, Iterator, Mapping
from io import BytesIO
from typing import Any, NamedTuple

MAX_BYTES = 32 << 20  # the pickle of 50,000 tensors has 10 MB
MAX_STEPS = 4_000_000  # some seconds
_KEYS = (str, int, type(None))
_MISSING = object()


class Function(NamedTuple):
    """What a pickle may call.

    Attributes:
        call: raises ValueError for arguments that it does not take.
        counts: how many arguments it takes.
    """

    call: Callable[..., object]
    counts: Container[int]


class Pickle(NamedTuple):
    """A value that was read, and the position behind its last byte."""

    value: Any
    end: int


def read_pickle(
    data: bytes,
    names: Mapping[str, object],
    persistent: Callable[[object], object],
    start: int = 0,
) -> Pickle:
    """The pickle that begins at a position of some bytes.

    Args:
        names: the value of each name that may be asked for, by module and name ("torch.Size").
        persistent: makes a value of what a pickle says of data outside of it. Raises ValueError.

    Raises:
        ValueError: the pickle is damaged, too long, or asks for something else. The message names
            what was refused.
    """
    machine = _Machine(names, persistent)
    try:
        for opcode, argument, position in itertools.islice(_instructions(data, start), MAX_STEPS):
            if opcode == "STOP":
                return Pickle(machine.stack.pop(), position + 1)
            machine.step(opcode, argument)
    except (IndexError, KeyError, OverflowError) as error:
        raise ValueError(f"its pickle is damaged: {error!r}") from error
    raise ValueError(f"its pickle has more than {MAX_STEPS} instructions")


def _instructions(data: bytes, start: int) -> Iterator[tuple[str, Any, int]]:
    """Name, argument and position of each. Raises ValueError for bytes that are none."""
    stream = BytesIO(data)
    stream.seek(start)
    try:
        for opcode, argument, position in pickletools.genops(stream):
            yield opcode.name, argument, position or 0
    except ValueError as error:
        raise ValueError(f"its pickle is damaged: {error}") from error


class _Machine:
    """The stack and what else a pickle's program works on."""

    def __init__(self, names: Mapping[str, object], persistent: Callable[[object], object]) -> None:
        self.stack: list[Any] = []
        self._names, self._persistent = names, persistent
        self._marks: list[int] = []
        self._memo: dict[int, Any] = {}

    def step(self, name: str, argument: Any) -> None:
        """Carries out one instruction. Raises ValueError, IndexError, KeyError."""
        if name in _IGNORED:
            return
        if name in _PUSHED:
            self.stack.append(argument)
        elif name in _MADE:
            self.stack.append(_MADE[name]())
        else:
            does = _STEPS.get(name)
            if does is None:
                raise ValueError(f"its pickle has the instruction {name}, which is refused")
            does(self, argument)

    def _mark(self, _: object) -> None:
        self._marks.append(len(self.stack))

    def _since_mark(self) -> list[Any]:
        start = self._marks.pop()
        found = self.stack[start:]
        del self.stack[start:]
        return found

    def _put(self, index: int) -> None:
        self._memo[index] = self.stack[-1]

    def _memoize(self, _: object) -> None:
        self._memo[len(self._memo)] = self.stack[-1]

    def _get(self, index: int) -> None:
        self.stack.append(self._memo[index])

    def _tuple(self, _: object) -> None:
        self.stack.append(tuple(self._since_mark()))

    def _last(self, count: int) -> None:
        """Makes a tuple of the last values."""
        self.stack.append(tuple(self._popped(count)))

    def _popped(self, count: int) -> list[Any]:
        found = [self.stack.pop() for _ in range(count)]
        return found[::-1]

    def _append(self, _: object) -> None:
        self._extend(self._popped(1))

    def _appends(self, _: object) -> None:
        self._extend(self._since_mark())

    def _extend(self, items: list[Any]) -> None:
        self._target(list).extend(items)

    def _set_item(self, _: object) -> None:
        self._update(self._popped(2))

    def _set_items(self, _: object) -> None:
        self._update(self._since_mark())

    def _update(self, items: list[Any]) -> None:
        target = self._target(dict)
        for key, value in zip(items[::2], items[1::2], strict=True):
            target[checked_key(key)] = value

    def _target(self, kind: type) -> Any:
        """The last value, which others are put into."""
        if type(self.stack[-1]) is not kind:
            raise ValueError(f"its pickle puts a value into a {type(self.stack[-1]).__name__}")
        return self.stack[-1]

    def _build(self, _: object) -> None:
        """The attributes of a dictionary, such as `_metadata`, are left out."""
        self.stack.pop()
        self._target(dict)

    def _global(self, name: str) -> None:
        self._push_name(name.replace(" ", ".", 1))

    def _stack_global(self, _: object) -> None:
        module, name = self._popped(2)
        if not (isinstance(module, str) and isinstance(name, str)):
            raise ValueError("its pickle asks for a name that is no text")
        self._push_name(f"{module}.{name}")

    def _push_name(self, name: str) -> None:
        value = self._names.get(name, _MISSING)
        if value is _MISSING:
            raise ValueError(
                f"its pickle asks for {name[:80]!r}, which is refused: only tensors are read, and "
                "no code is run"
            )
        self.stack.append(value)

    def _reduce(self, _: object) -> None:
        function, arguments = self._popped(2)
        if not isinstance(function, Function) or type(arguments) is not tuple:
            raise ValueError("its pickle calls what is no function, which is refused")
        if len(arguments) not in function.counts:
            raise ValueError(f"its pickle calls a function with {len(arguments)} arguments")
        self.stack.append(function.call(*arguments))

    def _persid(self, _: object) -> None:
        self.stack.append(self._persistent(self.stack.pop()))


def checked_key(key: object) -> object:
    """A key of a dictionary. Raises ValueError for a tuple, which may hold any number of values."""
    if type(key) not in _KEYS:
        raise ValueError(f"its pickle has a {type(key).__name__} as a key; expected texts")
    return key


_IGNORED = frozenset({"PROTO", "FRAME"})
_PUSHED = frozenset({
    "BININT", "BININT1", "BININT2", "LONG1", "LONG4", "BINFLOAT",
    "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "BINSTRING", "SHORT_BINSTRING",
})  # fmt: skip
_MADE: dict[str, Callable[[], object]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_TUPLE": tuple,
    "EMPTY_LIST": list,
    "EMPTY_DICT": dict,
}
_STEPS: dict[str, Callable[[_Machine, Any], None]] = {
    "MARK": _Machine._mark,
    "BINPUT": _Machine._put,
    "LONG_BINPUT": _Machine._put,
    "MEMOIZE": _Machine._memoize,
    "BINGET": _Machine._get,
    "LONG_BINGET": _Machine._get,
    "TUPLE": _Machine._tuple,
    "TUPLE1": lambda machine, _: machine._last(1),
    "TUPLE2": lambda machine, _: machine._last(2),
    "TUPLE3": lambda machine, _: machine._last(3),
    "APPEND": _Machine._append,
    "APPENDS": _Machine._appends,
    "SETITEM": _Machine._set_item,
    "SETITEMS": _Machine._set_items,
    "BUILD": _Machine._build,
    "GLOBAL": _Machine._global,
    "STACK_GLOBAL": _Machine._stack_global,
    "REDUCE": _Machine._reduce,
    "BINPERSID": _Machine._persid,
}
