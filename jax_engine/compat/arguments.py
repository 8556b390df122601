"""`FlexibleArgumentParser`: argparse, with `_` as good as `-` in the names of options."""

import argparse
import sys
from collections.abc import Sequence
from typing import Any


class FlexibleArgumentParser(argparse.ArgumentParser):
    """`--max_tokens 8` and `--max-tokens=8` are the same option, however the program wrote it."""

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        given = sys.argv[1:] if args is None else list(args)
        return super().parse_known_args([self._as_added(one) for one in given], namespace)

    def _as_added(self, argument: str) -> str:
        if not argument.startswith("--"):
            return argument
        name, equals, value = argument.partition("=")
        words = name.removeprefix("--")
        for one in (name, "--" + words.replace("_", "-"), "--" + words.replace("-", "_")):
            if one in self._option_string_actions:
                return one + equals + value
        return argument
