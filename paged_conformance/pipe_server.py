"""The other end of the pipes, for a target in Python: `serve_pipe(make)`.

    from paged_conformance import serve_pipe
    from my_engine.conformance import blocks

    serve_pipe(blocks)

Started by `paged-conformance block-manager --command "other/python my_target.py"`: a target may
so have another Python than the suite, or packages that the suite's has not.
"""

import json
import os
import sys
import traceback
from collections.abc import Callable
from typing import IO, Any

from paged_conformance.properties import Refused


def serve_pipe(make: Callable[..., Any]) -> None:
    """Answers what standard input asks, until it ends.

    What the target prints goes to standard error. Its `capabilities` and `sizes` are those of
    `make`, as for a target in the suite's own process.

    Args:
        make: The factory; its targets' methods take keyword arguments and return plain JSON.
    """
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answers:
        os.dup2(2, 1)  # whoever prints, in C too, must not write between the answers
        sys.stdout = sys.stderr
        answer_lines(make, sys.stdin, answers)


def answer_lines(make: Callable[..., Any], asked: IO[str], answers: IO[str]) -> None:
    """Answers each line of `asked` by a line of `answers`."""
    targets: dict[int, Any] = {}
    num_made = 0
    for line in asked:
        message = json.loads(line)
        num_made += message["do"] == "make"
        try:
            answer = {"result": _result(make, targets, num_made, message)}
            text = json.dumps({"id": message["id"], **answer})
        except Refused as refusal:
            text = json.dumps({"id": message["id"], "refused": str(refusal)})
        except Exception:
            text = json.dumps({"id": message["id"], "error": traceback.format_exc()})
        answers.write(text + "\n")
        answers.flush()


def _result(
    make: Callable[..., Any], targets: dict[int, Any], number: int, message: dict[str, Any]
) -> Any:
    if message["do"] == "describe":
        words, sizes = getattr(make, "capabilities", ()), getattr(make, "sizes", {})
        return {"capabilities": sorted(words), "sizes": dict(sizes)}
    if message["do"] == "make":
        for old in message["drop"]:
            targets.pop(old, None)
        targets[number] = make(**message["sizes"])
        return number
    return getattr(targets[message["target"]], message["method"])(**message["arguments"])
