"""`FlexibleArgumentParser`: argparse, with `_` as good as `-` in the names of options."""

import argparse
import sys
from collections.abc import Sequence
from typing import Any


class FlexibleArgumentParser(argparse.ArgumentParser):
    """`--max_tokens 8`, `--max-tokens 8` and `--max_tokens=8` are the same option."""

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        given = sys.argv[1:] if args is None else list(args)
        return super().parse_known_args([_dashed(one) for one in given], namespace)


def _dashed(argument: str) -> str:
    if not argument.startswith("--"):
        return argument
    name, equals, value = argument.partition("=")
    return name.replace("_", "-") + equals + value
