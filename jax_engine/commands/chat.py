"""Talks with a model, in the terminal or through a pipe.

    jax-engine chat                                    SmolLM2-135M-Instruct
    jax-engine chat --model ./my-model --system-prompt "Be brief."
    jax-engine chat -q "What is the capital of Italy?" one answer, and the end
    jax-engine chat --url http://127.0.0.1:8000        a server answers
    printf 'Hi!\\nAnd then?\\n' | jax-engine chat        each line is said in turn

/system TEXT sets what the model is told first, /reset begins anew, /exit ends. Ctrl-C ends an
answer; between answers it ends the chat, as Ctrl-D does.
"""

import argparse
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from jax_engine.cli import add_config_flag
from jax_engine.commands.answer_flags import (
    add_sampling_flags,
    add_source_flags,
    make_source,
    sampling_fields,
)
from jax_engine.commands.answers import Source
from jax_engine.errors import EngineDeadError, JaxEngineError

USAGE = "[flags]"
HELP = "talk with a model"
COMMANDS = "/system TEXT, /reset, /exit"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags."""
    add_config_flag(parser)
    add = parser.add_argument
    add("--system-prompt", metavar="TEXT", help="what the model is told first")
    add("-q", "--quick", metavar="TEXT", help="say this, write the answer, and end")
    add("--chat-template", metavar="FILE", help="Jinja, or a file with it (the model's own)")
    add_source_flags(parser)
    add_sampling_flags(parser)


def run(args: argparse.Namespace) -> int:
    """Talks until the end of the input; returns the exit status."""
    source = make_source(args, args.chat_template)
    chat = Conversation(source, sampling_fields(args), args.system_prompt)
    if args.quick is not None:
        try:
            chat.send(args.quick)
        except KeyboardInterrupt:
            print()
            return 130
        return 0
    return _talk(chat)


@dataclass
class Conversation:
    """What was said so far."""

    source: Source
    fields: dict[str, Any]
    system: str | None = None
    turns: list[dict[str, str]] = field(default_factory=list)

    def send(self, text: str) -> None:
        """Writes the model's answer as it comes. Without one, nothing was said.

        Raises:
            JaxEngineError, KeyboardInterrupt: as `Source.chat`. The answer until then is kept.
        """
        first = [{"role": "system", "content": self.system}] if self.system else []
        message = {"role": "user", "content": text}
        answer = ""
        try:
            for piece in self.source.chat([*first, *self.turns, message], self.fields):
                answer += piece.text
                print(piece.text, end="", flush=True)
            print()
        finally:
            if answer:
                self.turns += [message, {"role": "assistant", "content": answer}]

    def obey(self, command: str) -> bool:
        """Carries out a command that begins with "/"; returns whether the chat goes on."""
        name, _, text = command.partition(" ")
        if name == "/reset":
            self.turns.clear()
        elif name == "/system":
            self.system = text.strip() or None
        elif name not in ("/exit", "/quit"):
            _complain(f"{name} is not a command: there are {COMMANDS}")
        return name not in ("/exit", "/quit")


def _talk(chat: Conversation) -> int:
    """Says line after line; returns the exit status, which of a terminal is 0."""
    terminal = sys.stdin.isatty()
    if terminal:
        _edit_lines()
        print(COMMANDS)
    failed = False
    while True:
        try:
            line = input("> " if terminal else "")
        except (EOFError, KeyboardInterrupt):
            if terminal:
                print()
            return int(failed and not terminal)
        if line.startswith("/"):
            if not chat.obey(line.strip()):
                return int(failed and not terminal)
        elif line.strip():
            try:
                chat.send(line)
            except KeyboardInterrupt:
                print()
            except EngineDeadError:
                raise
            except JaxEngineError as error:
                failed = True
                _complain(str(error))


def _edit_lines() -> None:
    """Lets `input` edit lines and recall earlier ones, where Python can."""
    with suppress(ImportError):
        import readline  # noqa: F401


def _complain(message: str) -> None:
    print(f"jax-engine chat: {' '.join(message.split())}", file=sys.stderr)
