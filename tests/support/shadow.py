"""The shadow-content oracle (I13): which token's key and value lies in which slot?

A key depends on all tokens up to its own, so the content of a slot can stand for itself as that
tuple of tokens. `ShadowCache` replays what a scheduler ordered, on tuples instead of numbers, and
compares: for each scheduled sequence, the slot of position p must hold exactly tokens[:p+1]. It
works on any scheduler whose output has the agreed attributes.
"""

from collections.abc import Sequence
from typing import Any

Content = tuple[int, ...] | None
STEP_ORDER = ("swap_in", "swap_out", "copy", "write")


def known_and_drafted(entry: Any) -> list[int]:
    """The tokens of a scheduled sequence, and its drafts of this step if it has any."""
    return [*entry.seq.token_ids, *entry.drafts]


class ShadowCache:
    """Contents of all slots of a GPU pool and a CPU pool; None where nothing was written."""

    def __init__(self, block_size: int, num_gpu_blocks: int, num_cpu_blocks: int) -> None:
        self.block_size = block_size
        self.gpu: list[list[Content]] = [[None] * block_size for _ in range(num_gpu_blocks)]
        self.cpu: list[list[Content]] = [[None] * block_size for _ in range(num_cpu_blocks)]

    def replay(self, output: Any, block_manager: Any, order: Sequence[str] = STEP_ORDER) -> None:
        """Run one step's block operations, then see that each scheduled sequence reads its own.

        Call it between `schedule` and `update`. Another `order` shows what the order is for.
        """
        operations = {
            "swap_in": lambda: self.move(self.cpu, self.gpu, output.blocks_to_swap_in),
            "swap_out": lambda: self.move(self.gpu, self.cpu, output.blocks_to_swap_out),
            "copy": lambda: self.move(self.gpu, self.gpu, output.blocks_to_copy),
            "write": lambda: self.write_scheduled(output, block_manager),
        }
        for operation in order:
            operations[operation]()
        for entry in output.scheduled:
            seq = entry.seq
            end = entry.start + entry.num_tokens
            self.check(known_and_drafted(entry)[:end], block_manager.block_table(seq.seq_id))

    def write_scheduled(self, output: Any, block_manager: Any) -> None:
        for entry in output.scheduled:
            table = block_manager.block_table(entry.seq.seq_id)
            end = entry.start + entry.num_tokens
            self.write(known_and_drafted(entry), table, entry.start, end)

    def write(self, token_ids: Sequence[int], table: Sequence[int], start: int, end: int) -> None:
        for position in range(start, end):
            block, offset = table[position // self.block_size], position % self.block_size
            self.gpu[block][offset] = tuple(token_ids[: position + 1])

    def check(
        self, token_ids: Sequence[int], table: Sequence[int], device: str | None = "gpu"
    ) -> None:
        """Every position of `token_ids` has its own content, reached through the table."""
        pool = self.cpu if device == "cpu" else self.gpu
        for position in range(len(token_ids)):
            block, offset = table[position // self.block_size], position % self.block_size
            expected = tuple(token_ids[: position + 1])
            assert pool[block][offset] == expected, (
                f"position {position} should hold {expected} in {device} block {block}, "
                f"which holds {pool[block][offset]}"
            )

    @staticmethod
    def move(
        source: list[list[Content]], target: list[list[Content]], pairs: Sequence[tuple[int, int]]
    ) -> None:
        """target[dst] = source[src] for all pairs, all read before any is written."""
        contents = [list(source[src]) for src, _ in pairs]
        for (_, dst), content in zip(pairs, contents, strict=True):
            target[dst] = content
