"""Scripts of shells that complete the command line, made from its parser.

There is one for bash, which zsh reads too, and one for fish.
"""

import argparse
from collections.abc import Iterable, Iterator
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


# $at: the commands so far, and $other that another word follows them ($path is zsh's own). A word
# behind "=" is a word of its own, as bash splits them. zsh takes a name behind ":" for a modifier,
# so a number stands there.
_SCRIPT = """\
_jax_engine() {
    local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}
    local at="" other="" word words number=$((COMP_CWORD - 1))
    if [[ $current == "=" ]]; then
        current=""
    elif [[ $before == "=" ]]; then
        before=${COMP_WORDS[COMP_CWORD-2]}
    fi
    for word in "${COMP_WORDS[@]:1:$number}"; do
        case "$at $word" in
            PATHS) at="$at $word" ;;
            *) other=" other"; break ;;
        esac
    done
    case "$at $before" in
CHOICES
        *) case "$at$other" in
WORDS
        esac ;;
    esac
    if [[ $words == FILES ]]; then
        COMPREPLY=()
    else
        COMPREPLY=($(compgen -W "$words" -- "$current"))
    fi
}
complete -o default -F _jax_engine jax-engine
"""


def bash_script(parser: argparse.ArgumentParser) -> str:
    """A function, and the line that tells bash to call it."""
    found = list(commands(parser))
    paths = "|".join(f'" {" ".join(one.path)}"' for one in found if one.path)
    choices = "\n".join(line for one in found for line in _values(one))
    words = "\n".join(line for one in found for line in _words(one))
    text = (
        _SCRIPT.replace("PATHS", paths).replace("CHOICES", choices).replace("WORDS\n", f"{words}\n")
    )
    return text


def zsh_script(parser: argparse.ArgumentParser) -> str:
    """The same, by zsh's own reader of such functions."""
    return f"autoload -U +X bashcompinit && bashcompinit\n{bash_script(parser)}"


def _path(command: Command) -> str:
    return "".join(f" {one}" for one in command.path)


def _words(command: Command) -> Iterable[str]:
    names = [name for flag in command.flags for name in flag.names if name.startswith("--")]
    first = [*command.commands, *command.choices]
    yield f'            "{_path(command)}") words="{" ".join(first + names)}" ;;'
    yield f'            "{_path(command)} other") words="{" ".join(names)}" ;;'


def _values(command: Command) -> Iterable[str]:
    for flag in command.flags:
        if flag.takes_value:
            pattern = "|".join(f'"{_path(command)} {name}"' for name in flag.names)
            yield f'        {pattern}) words="{" ".join(flag.choices) or "FILES"}" ;;'


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


SHELLS = {"bash": bash_script, "zsh": zsh_script, "fish": fish_script}
