"""The script of fish."""

import argparse
from collections.abc import Iterator

from jax_engine.commands.shells.words import Command, Flag, commands


def fish_script(parser: argparse.ArgumentParser) -> str:
    """A line for each word that can be completed."""
    return "".join(f"{line}\n" for one in commands(parser) for line in _lines(one))


def _lines(command: Command) -> Iterator[str]:
    seen = "; and ".join(f"__fish_seen_subcommand_from {one}" for one in command.path)
    if command.commands:
        others = " ".join(command.commands)
        first = f"not __fish_seen_subcommand_from {others}"
        condition = f"{seen}; and {first}" if seen else first
        for name, says in command.commands.items():
            yield f"complete -c jax-engine -f -n '{condition}' -a {name} -d {_quoted(says)}"
    where = f"-n '{seen or '__fish_use_subcommand'}'"
    for word in command.choices:
        yield f"complete -c jax-engine -f {where} -a {word}"
    for flag in command.flags:
        yield f"complete -c jax-engine {where} {_names(flag)} -d {_quoted(flag.says)}"


def _names(flag: Flag) -> str:
    words = [f"-l {one[2:]}" if one.startswith("--") else f"-s {one[1:]}" for one in flag.names]
    if flag.choices:
        words.append(f"-xa {_quoted(' '.join(flag.choices))}")
    elif flag.takes_value and flag.names != ("-h", "--help"):
        words.append("-r")
    return " ".join(words)


def _quoted(text: str) -> str:
    short = text.partition(". ")[0][:80]
    return "'" + short.replace("\\", "\\\\").replace("'", "\\'") + "'"
