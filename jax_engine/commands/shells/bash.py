"""The scripts of bash and zsh."""

import argparse
from collections.abc import Iterable

from jax_engine.commands.shells.words import Command, commands

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
