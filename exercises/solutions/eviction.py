"""Each block knows its key, so handing it out for another forgets the old one."""

from collections.abc import Sequence

from exercises import eviction as exercise


class Cache(exercise.Cache):
    def __init__(self, num_blocks: int) -> None:
        self.queue = list(range(num_blocks))
        self.holders = [0] * num_blocks
        self.key_of: list[str | None] = [None] * num_blocks

    def take(self, key: str | None) -> int:
        if not self.queue:
            raise exercise.NoBlockError
        block = self.queue.pop(0)
        self.holders[block] = 1
        self.key_of[block] = key
        return block

    def find(self, key: str) -> int | None:
        if key not in self.key_of:
            return None
        block = self.key_of.index(key)
        if self.holders[block] == 0:
            self.queue.remove(block)
        self.holders[block] += 1
        return block

    def free(self, table: Sequence[int]) -> None:
        for block in reversed(table):
            self.holders[block] -= 1
            if self.holders[block] == 0:
                self.queue.append(block)

    @property
    def num_free(self) -> int:
        return len(self.queue)


ANSWER = Cache
