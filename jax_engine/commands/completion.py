"""Writes a script that lets a shell complete commands, flags and their values.

source <(jax-engine completion bash)       in ~/.bashrc
source <(jax-engine completion zsh)        in ~/.zshrc, after compinit
jax-engine completion fish | source        in ~/.config/fish/config.fish
"""

import argparse

from jax_engine.commands.shell_scripts import SHELLS

USAGE = "SHELL"
HELP = "let a shell complete commands and flags"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the shell."""
    parser.add_argument("shell", choices=list(SHELLS), help="which shell the script is for")


def run(args: argparse.Namespace) -> int:
    """Writes the script; returns the exit status."""
    from jax_engine.cli import make_parser

    print(SHELLS[args.shell](make_parser()), end="")
    return 0
