"""What there is to complete."""

import argparse
from collections.abc import Iterator
from typing import NamedTuple


class Flag(NamedTuple):
    """
    Attributes:
        names: `-q`, `--quick`.
        takes_value: whether a word belongs to it.
        choices: those words, if they are few.
        says: its help.
    """

    names: tuple[str, ...]
    takes_value: bool
    choices: tuple[str, ...]
    says: str


class Command(NamedTuple):
    """
    Attributes:
        path: its words, such as ("bench", "serve"); () is `jax-engine` itself.
        commands: the names of its own commands, with a line of help each.
        choices: what its first other word may be, if that is one of few.
    """

    path: tuple[str, ...]
    commands: dict[str, str]
    flags: list[Flag]
    choices: tuple[str, ...]


def commands(parser: argparse.ArgumentParser, path: tuple[str, ...] = ()) -> Iterator[Command]:
    """A parser's command and those below it."""
    below = [one for one in parser._actions if isinstance(one, argparse._SubParsersAction)]
    says: dict[str, str] = {}
    for action in below:
        helps = {one.dest: one.help or "" for one in action._choices_actions}
        same = {id(action.choices[name]): text for name, text in helps.items()}
        says |= {name: same.get(id(one), "") for name, one in action.choices.items()}
    flags = [
        _flag(one) for one in parser._actions if one.option_strings and one.help != "==SUPPRESS=="
    ]
    words = [
        str(choice)
        for one in parser._actions
        if not one.option_strings and one not in below
        for choice in one.choices or ()
    ]
    yield Command(path, says, flags, tuple(words))
    for action in below:
        for name, one in action.choices.items():
            yield from commands(one, (*path, name))


def _flag(action: argparse.Action) -> Flag:
    text = (action.help or "").replace("%(default)s", str(action.default)).replace("%%", "%")
    choices = tuple(map(str, action.choices or ()))
    return Flag(tuple(action.option_strings), action.nargs != 0, choices, text)
