"""The parser of the command line: errors of one line, and help that can be searched."""

import argparse
from typing import Any, NoReturn

from jax_engine.typed_fields import suggestion


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line. `--help=KEYWORD` shows the flags that KEYWORD is about."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options, add_help=False, allow_abbrev=False)
        self.add_argument(
            "-h",
            "--help",
            action=_Help,
            nargs="?",
            metavar="KEYWORD",
            help="show this help; with a keyword, the flags that it is about",
        )

    def error(self, message: str) -> NoReturn:
        """Ends the process."""
        self.exit(2, f"{self.prog}: error: {' '.join(message.split())} (see {self.prog} --help)\n")

    def refuse(self, flag: str) -> NoReturn:
        """Ends the process: a flag is not known."""
        flags = [one for action in self._actions for one in action.option_strings]
        near = suggestion(flag.partition("=")[0], flags)
        self.error(f"{flag} is not known{near if 'did you mean' in near else ''}")

    def help_about(self, keyword: str) -> str:
        """The help of the flags whose group, name or explanation has a word like the keyword."""
        wanted = keyword.lower().lstrip("-").replace("_", "-")
        formatter = self._get_formatter()
        found = False
        for group in self._action_groups:
            in_title = wanted in (group.title or "").lower()
            actions = [
                one
                for one in group._group_actions
                if one.help != argparse.SUPPRESS and (in_title or _is_about(one, wanted))
            ]
            if actions:
                found = True
                formatter.start_section(group.title)
                formatter.add_arguments(actions)
                formatter.end_section()
        if not found:
            titles = ", ".join(str(group.title) for group in self._action_groups)
            self.error(f"no flag is about {keyword!r}; there are groups of flags: {titles}")
        return formatter.format_help()


class _Help(argparse.Action):
    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        """Prints the help and ends the process."""
        if values is not None and isinstance(parser, Parser):
            print(parser.help_about(values), end="")
        else:
            parser.print_help()
        parser.exit()


def _is_about(action: argparse.Action, wanted: str) -> bool:
    names = [one.lstrip("-") for one in action.option_strings] or [str(action.metavar)]
    return any(wanted in one.lower() for one in names) or wanted in (action.help or "").lower()
