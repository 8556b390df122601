"""A shadow of the KV cache: what each slot holds, if the plans are carried out as they say."""

from collections.abc import Sequence
from typing import Any

Slot = tuple[int, int]


class Memory:
    """The slots of the blocks of a device and of CPU memory, each with the digest of its prefix.

    Blocks come into being when they are first written; what was never written holds None.
    """

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self._gpu: dict[int, list[int | None]] = {}
        self._cpu: dict[int, list[int | None]] = {}
        self._written: dict[Slot, int] = {}

    def move(self, plan: dict[str, Any]) -> None:
        """Swaps in, swaps out and copies, in this order, each pair after the other's reading."""
        self._written = {}
        for name, source, target in (
            ("swap_in", self._cpu, self._gpu),
            ("swap_out", self._gpu, self._cpu),
            ("copies", self._gpu, self._gpu),
        ):
            pairs = plan.get(name) or []
            read = [list(self._block(source, one)) for one, _ in pairs]
            for (_, to), slots in zip(pairs, read, strict=True):
                target[to] = slots

    def write(self, table: Sequence[int], position: int, digest: int) -> bool:
        """Writes one slot; False if another row of this step wrote something else there."""
        block, offset = table[position // self._block_size], position % self._block_size
        self._block(self._gpu, block)[offset] = digest
        return self._written.setdefault((block, offset), digest) == digest

    def read(self, table: Sequence[int], position: int) -> int | None:
        block = table[position // self._block_size]
        return self._block(self._gpu, block)[position % self._block_size]

    def _block(self, pool: dict[int, list[int | None]], block: int) -> list[int | None]:
        return pool.setdefault(block, [None] * self._block_size)
