"""Right targets of several kinds. The wrong ones change them in one place each."""

from typing import Any

from paged_conformance.properties import Refused

ALL = [
    "prefix_cache",
    "keeps",
    "chunks",
    "several",
    "guesses",
    "fork",
    "swap",
    "salts",
    "adapters",
    "match",
    "reset",
    "exact_hits",
    "lru",
    "strict",
]


class Plain:
    """A block manager that is easily seen to be right: whole texts are the keys of its cache."""

    words: list[str] = ALL
    sizes: dict[str, int] = {"max_block_size": 8}  # noqa: RUF012

    def __init__(self, block_size: int, num_blocks: int, num_swap_blocks: int) -> None:
        self.size = block_size
        self.num_blocks = num_blocks
        self.free_blocks = list(range(num_blocks))
        self.free_swap = list(range(num_swap_blocks))
        self.refs = {block: 0 for block in range(num_blocks)}
        self.swap_refs = {block: 0 for block in range(num_swap_blocks)}
        self.tables: dict[int, list[int]] = {}
        self.tokens: dict[int, list[int]] = {}
        self.keys: dict[int, Any] = {}
        self.end: dict[int, int] = {}
        self.guesses: dict[int, list[int]] = {}
        self.swapped: set[int] = set()
        self.moved: set[int] = set()
        self.index: dict[Any, int] = {}  # the block of each text
        self.holds: dict[int, Any] = {}  # the text of each block in the index

    # Blocks

    def capacity(self) -> int:
        return self.num_blocks

    def num_free(self) -> int:
        return len(self.free_blocks)

    def num_free_swap(self) -> int:
        return len(self.free_swap)

    def blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.size)

    def take(self) -> int:
        """A free block, whose content is forgotten."""
        block = self.free_blocks.pop(0)
        self.forget(block)
        self.refs[block] = 1
        return block

    def forget(self, block: int) -> None:
        text = self.holds.pop(block, None)
        if text is not None:
            del self.index[text]

    def touch(self, block: int) -> None:
        if self.refs[block] == 0:
            self.free_blocks.remove(block)
        self.refs[block] += 1

    def release(self, block: int) -> None:
        self.refs[block] -= 1
        if self.refs[block] == 0:
            self.free_blocks.append(block)

    # The cache

    def text(self, tokens: list[int], end: int, key: Any) -> Any:
        return (key, tuple(tokens[:end]))

    def find(self, tokens: list[int], key: Any) -> list[int]:
        """The blocks of the longest cached prefix that leaves a token to compute."""
        blocks = []
        for end in range(self.size, len(tokens), self.size):
            block = self.index.get(self.text(tokens, end, key))
            if block is None:
                break
            blocks.append(block)
        return blocks

    def register(self, seq: int) -> None:
        """Enters the full blocks that this step computes."""
        if seq in self.moved:
            return
        tokens = self.tokens[seq]
        for end in range(self.size, self.end[seq] + 1, self.size):
            text, block = (
                self.text(tokens, end, self.keys[seq]),
                self.tables[seq][end // self.size - 1],
            )
            if text not in self.index and block not in self.holds:
                self.index[text] = block
                self.holds[block] = text

    def match(self, *, tokens: list[int], salt: str | None, adapter: str | None) -> int:
        return len(self.find(tokens, (salt, adapter))) * self.size

    def reset(self) -> bool:
        if any(self.refs.values()):
            return False
        self.index.clear()
        self.holds.clear()
        return True

    # Sequences

    def table(self, *, seq: int) -> list[int]:
        return list(self.tables.get(seq, []))

    def reserve(self) -> int:
        """Free blocks that `open` leaves."""
        return 0

    def room_for(self, tokens: list[int], end: int) -> int:
        """Blocks that a sequence gets when it is opened."""
        return self.blocks_for(end)

    def open(
        self, *, seq: int, tokens: list[int], chunk: int, salt: str | None, adapter: str | None
    ) -> dict[str, int]:
        found = self.find(tokens, (salt, adapter))
        hit = len(found) * self.size
        end = min(len(tokens), hit + chunk)
        count = self.room_for(tokens, end)
        if self.need(count, found) + self.reserve() > len(self.free_blocks):
            raise Refused("too few blocks")
        for block in found:
            self.touch(block)
        self.tables[seq] = found + [self.take() for _ in range(count - len(found))]
        self.tokens[seq], self.keys[seq], self.end[seq] = list(tokens), (salt, adapter), end
        self.scheduled(seq)
        return {"hit": hit}

    def need(self, count: int, found: list[int]) -> int:
        """Free blocks that a table of so many needs; those found may be free themselves."""
        return count - sum(self.refs[block] > 0 for block in found)

    def scheduled(self, seq: int) -> None:
        self.register(seq)

    def extend(
        self, *, seq: int, tokens: list[int], chunk: int, guesses: list[int]
    ) -> list[list[int]]:
        if seq in self.swapped:
            raise Refused("it is swapped out")
        table, start = self.tables[seq], self.end[seq]
        end = start + chunk + len(guesses)
        copies = self.shared(seq, start, end)
        if max(0, self.blocks_for(end) - len(table)) + len(copies) > len(self.free_blocks):
            raise Refused("too few blocks")
        pairs = [self.copy(seq, index) for index in copies]
        while len(table) < self.blocks_for(end):
            table.append(self.take())
        self.tokens[seq] += tokens
        self.end[seq], self.guesses[seq] = start + chunk, list(guesses)
        self.scheduled(seq)
        return pairs

    def shared(self, seq: int, start: int, end: int) -> list[int]:
        """Places in the table that are written, and whose blocks others hold too."""
        table = self.tables[seq]
        places = range(start // self.size, min(len(table), self.blocks_for(end)))
        return [index for index in places if self.refs[table[index]] > 1]

    def copy(self, seq: int, index: int) -> list[int]:
        old, new = self.tables[seq][index], self.take()
        self.tables[seq][index] = new
        self.release(old)
        return [old, new]

    def computed(self, *, seqs: list[int], accepted: list[int]) -> None:
        for seq, count in zip(seqs, accepted, strict=True):
            guesses = self.guesses.pop(seq, [])
            self.tokens[seq] += guesses[:count]
            self.end[seq] += count
            if guesses:
                self.trim(seq)

    def trim(self, seq: int) -> None:
        while len(self.tables[seq]) > self.blocks_for(len(self.tokens[seq])):
            self.release(self.tables[seq].pop())

    def free(self, *, seq: int) -> None:
        for block in reversed(self.tables.pop(seq, [])):
            if seq in self.swapped:
                self.release_swap(block)
            else:
                self.release(block)
        self.swapped.discard(seq)
        self.moved.discard(seq)
        self.guesses.pop(seq, None)

    def release_swap(self, block: int) -> None:
        self.swap_refs[block] -= 1
        if self.swap_refs[block] == 0:
            self.free_swap.append(block)

    def fork(self, *, parent: int, child: int) -> list[list[int]]:
        if child in self.tables:
            raise Refused("there is such a sequence")
        self.tables[child] = list(self.tables[parent])
        for block in self.tables[child]:
            self.touch(block)
        self.tokens[child] = list(self.tokens[parent])
        self.keys[child], self.end[child] = self.keys[parent], self.end[parent]
        if parent in self.moved:
            self.moved.add(child)
        return []

    def swap_out(self, *, seqs: list[int]) -> list[list[int]]:
        blocks = dict.fromkeys(block for seq in seqs for block in self.tables[seq])
        if len(blocks) > len(self.free_swap):
            raise Refused("too few swap blocks")
        new = {block: self.free_swap.pop(0) for block in blocks}
        for seq in seqs:
            old, self.tables[seq] = self.tables[seq], [new[b] for b in self.tables[seq]]
            for block in reversed(old):
                self.release(block)
            for block in self.tables[seq]:
                self.swap_refs[block] += 1
            self.swapped.add(seq)
        return [[old, to] for old, to in new.items()]

    def swap_in(self, *, seqs: list[int]) -> list[list[int]]:
        blocks = dict.fromkeys(block for seq in seqs for block in self.tables[seq])
        if len(blocks) + self.reserve() > len(self.free_blocks):
            raise Refused("too few blocks")
        new = {block: self.take() for block in blocks}
        for seq in seqs:
            old, self.tables[seq] = self.tables[seq], [new[b] for b in self.tables[seq]]
            for block in old:
                self.release_swap(block)
            self.swapped.discard(seq)
            self.moved.add(seq)
        for block in new.values():
            self.refs[block] = sum(self.tables[seq].count(block) for seq in seqs)
        return [[old, to] for old, to in new.items()]


class Late(Plain):
    """Enters blocks into its cache when they are computed."""

    words = [*ALL, "unschedule"]  # noqa: RUF012

    def scheduled(self, seq: int) -> None:
        pass

    def computed(self, *, seqs: list[int], accepted: list[int]) -> None:
        super().computed(seqs=seqs, accepted=accepted)
        for seq in seqs:
            self.register(seq)


class Stack(Plain):
    """Hands out what was freed last, and keeps two blocks as head-room."""

    words = [word for word in ALL if word != "lru"]  # noqa: RUF012
    sizes = {"max_block_size": 8, "watermark_blocks": 2}  # noqa: RUF012

    def reserve(self) -> int:
        return 2

    def release(self, block: int) -> None:
        super().release(block)
        if self.refs[block] == 0:
            self.free_blocks.insert(0, self.free_blocks.pop())


class Keeps(Stack):
    """Promises what the ended computed only while nobody takes a block."""

    words = [word for word in Stack.words if word != "exact_hits"]  # noqa: RUF012


class Lazy(Plain):
    """Counts freed blocks as free only after the next step."""

    words = ["prefix_cache", "chunks", "several", "lazy", "salts"]  # noqa: RUF012

    def __init__(self, block_size: int, num_blocks: int, num_swap_blocks: int) -> None:
        super().__init__(block_size, num_blocks, num_swap_blocks)
        self.later: list[int] = []

    def touch(self, block: int) -> None:
        if block in self.later:
            self.later.remove(block)
            self.free_blocks.append(block)
        super().touch(block)

    def release(self, block: int) -> None:
        self.refs[block] -= 1
        if self.refs[block] == 0:
            self.later.append(block)

    def computed(self, *, seqs: list[int], accepted: list[int]) -> None:
        super().computed(seqs=seqs, accepted=accepted)
        self.free_blocks += self.later
        self.later = []


class WholePrompts(Plain):
    """Takes the blocks of a whole prompt at once, and has blocks of 3 to 7."""

    words = [word for word in ALL if word not in ("guesses", "swap")]  # noqa: RUF012
    sizes = {"min_block_size": 3, "max_block_size": 7}  # noqa: RUF012

    def room_for(self, tokens: list[int], end: int) -> int:
        return self.blocks_for(len(tokens))


class ForksByCopying(WholePrompts):
    """A fork has copies of all blocks that are not full, also of those that hold nothing yet."""

    def fork(self, *, parent: int, child: int) -> list[list[int]]:
        if child in self.tables:
            raise Refused("there is such a sequence")
        first = self.end[parent] // self.size
        count = len(self.tables[parent]) - first
        if count > len(self.free_blocks):
            raise Refused("too few blocks for the copies")
        super().fork(parent=parent, child=child)
        return [self.copy(child, first + i) for i in range(count)]


class NoCache(Plain):
    """Finds nothing; its free blocks are in no order."""

    words = ["chunks", "several", "fork", "swap"]  # noqa: RUF012

    def find(self, tokens: list[int], key: Any) -> list[int]:
        return []

    def release(self, block: int) -> None:
        super().release(block)
        self.free_blocks.sort(key=lambda free: free * 7 % 5)


RIGHT: tuple[type[Plain], ...] = (
    Plain, Late, Stack, Keeps, Lazy, WholePrompts, ForksByCopying, NoCache,
)  # fmt: skip


def maker(kind: type[Plain]) -> Any:
    """The factory of targets of this kind."""

    def make(*, block_size: int, num_blocks: int, num_swap_blocks: int) -> Plain:
        return kind(block_size, num_blocks, num_swap_blocks)

    make.capabilities = kind.words  # type: ignore[attr-defined]
    make.sizes = kind.sizes  # type: ignore[attr-defined]
    return make
