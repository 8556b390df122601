"""The script of fish."""

import argparse
from collections.abc import Iterator

from jax_engine.commands.shells.words import Command, Flag, commands

# fish's own __fish_seen_subcommand_from finds a command's name anywhere on the line, even as the
# value of a flag or as a prompt. A command is named by the first words only.
_FUNCTIONS = """\
function __jax_engine_at -d 'whether these are the names of the command'
    set -l at
    set -l words (commandline -opc)
    for word in $words[2..]
        set -l longer $at $word
        contains -- "$longer" PATHS; or break
        set at $longer
    end
    test "$at" = "$argv"
end
function __jax_engine_next -d 'whether nothing but these stands before the word'
    set -l words (commandline -opc)
    test "$words[2..]" = "$argv"
end
"""


def fish_script(parser: argparse.ArgumentParser) -> str:
    """Two conditions, and a line for each word that can be completed."""
    found = list(commands(parser))
    paths = " ".join(f"'{' '.join(one.path)}'" for one in found if one.path)
    lines = "".join(f"{line}\n" for one in found for line in _lines(one))
    return _FUNCTIONS.replace("PATHS", paths) + lines


def _lines(command: Command) -> Iterator[str]:
    path = "".join(f" {one}" for one in command.path)
    first = f"complete -c jax-engine -f -n '__jax_engine_next{path}' -a"
    for name, says in command.commands.items():
        yield f"{first} {name} -d {_quoted(says)}"
    for word in command.choices:
        yield f"{first} {word}"
    where = f"-n '__jax_engine_at{path}'"
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
