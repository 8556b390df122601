"""A block manager in a process of its own, which needs no package at all.

    paged-conformance block-manager --command "python block_manager_alone.py"

`serve` is what `paged_conformance.serve_pipe` is, for a Python that has not the package.
"""

import json
import sys
import traceback
from collections.abc import Callable
from typing import Any


class Refused(Exception):
    """There is no room."""


class BlockManager:
    """Blocks for sequences, the ones freed longest ago first."""

    def __init__(self, *, block_size: int, num_blocks: int, num_swap_blocks: int) -> None:
        self.block_size, self.num_blocks = block_size, num_blocks
        self.free_blocks = list(range(num_blocks))
        self.tables: dict[int, list[int]] = {}
        self.lengths: dict[int, int] = {}

    def capacity(self) -> int:
        return self.num_blocks

    def num_free(self) -> int:
        return len(self.free_blocks)

    def open(self, *, seq: int, tokens: list[int], **_: Any) -> dict[str, int]:
        self._grow(seq, len(tokens))
        return {"hit": 0}

    def extend(self, *, seq: int, tokens: list[int], **_: Any) -> list[list[int]]:
        self._grow(seq, len(tokens))
        return []

    def computed(self, **_: Any) -> None:
        """Nothing is cached."""

    def table(self, *, seq: int) -> list[int]:
        return self.tables.get(seq, [])

    def free(self, *, seq: int) -> None:
        self.free_blocks += self.tables.pop(seq, [])
        self.lengths.pop(seq, None)

    def _grow(self, seq: int, num_tokens: int) -> None:
        length = self.lengths.get(seq, 0) + num_tokens
        needed = -(-length // self.block_size) - len(self.table(seq=seq))
        if needed > len(self.free_blocks):
            raise Refused(f"{needed} blocks are not free")
        taken, self.free_blocks = self.free_blocks[:needed], self.free_blocks[needed:]
        self.tables[seq] = self.table(seq=seq) + taken
        self.lengths[seq] = length


def serve(make: Callable[..., Any]) -> None:
    """Answers each line of standard input by a line, until it ends."""
    targets: dict[int, Any] = {}

    def answer(asked: dict[str, Any]) -> Any:
        if asked["do"] == "describe":
            return {"capabilities": [], "sizes": {}}
        if asked["do"] == "make":
            for old in asked["drop"]:
                targets.pop(old, None)
            targets[asked["id"]] = make(**asked["sizes"])
            return asked["id"]
        return getattr(targets[asked["target"]], asked["method"])(**asked["arguments"])

    for line in sys.stdin:
        asked = json.loads(line)
        try:
            answered = {"result": answer(asked)}
        except Refused as refusal:
            answered = {"refused": str(refusal)}
        except Exception:
            answered = {"error": traceback.format_exc()}
        print(json.dumps({"id": asked["id"], **answered}), flush=True)


if __name__ == "__main__":
    serve(BlockManager)
