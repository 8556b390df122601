"""A block manager with words lying in its blocks, where an engine would have keys and values."""

from reference.blocks import BlockManager, BlockPair


class WordPool:
    """Feeds words to sequences, keeps them where the block tables say, and shows what lies where.

    `memory[block][offset]` is the word in that slot; a freed block keeps its words, as memory does.
    """

    def __init__(self, manager: BlockManager) -> None:
        self.manager = manager
        self.memory = [[""] * manager.block_size for _ in range(manager.num_gpu_blocks)]
        self.texts: dict[str, list[str]] = {}
        self.ids: dict[str, int] = {}
        self.vocabulary: dict[str, int] = {}

    def feed(self, name: str, text: str) -> list[BlockPair]:
        """Take slots for new words, make the copies that are asked for, write; the copies."""
        words = self.texts.setdefault(name, [])
        start = len(words)
        words += text.split()
        tokens = [self.vocabulary.setdefault(word, len(self.vocabulary)) for word in words]
        copies = self.manager.allocate_slots(self._id(name), tokens, start, len(words))
        assert copies is not None, "the pool is full"
        for source, target in copies:
            self.memory[target] = list(self.memory[source])
        for position in range(start, len(words)):
            block, offset = self.place(name, position)
            self.memory[block][offset] = words[position]
        return copies

    def fork(self, parent: str, child: str) -> None:
        self.manager.fork(self._id(parent), self._id(child))
        self.texts[child] = list(self.texts[parent])

    def free(self, name: str) -> None:
        self.manager.free(self._id(name))
        del self.texts[name]

    def table(self, name: str) -> list[int]:
        return self.manager.block_table(self._id(name))

    def place(self, name: str, position: int) -> tuple[int, int]:
        """Block and offset of a position: the only arithmetic there is."""
        logical, offset = divmod(position, self.manager.block_size)
        return self.table(name)[logical], offset

    def read(self, name: str) -> str:
        """What a sequence finds if it follows its table."""
        places = [self.place(name, position) for position in range(len(self.texts[name]))]
        return " ".join(self.memory[block][offset] for block, offset in places)

    def holders(self, block: int) -> list[str]:
        return [name for name in self.texts if block in self.table(name)]

    def show(self) -> None:
        """Print the tables, then the blocks in use: number, references, words, holders."""
        for name in self.texts:
            print(f"{name:3}table", *self.table(name))
        for block, words in enumerate(self.memory):
            if holders := self.holders(block):
                count = f"x{self.manager.ref_count(block)}"
                print(f"  block {block} {count}  {self.filled(block, words):22}", *holders)

    def filled(self, block: int, words: list[str]) -> str:
        """The words of a block that belong to someone, and a dot for each other slot."""
        used = {self.place(name, p) for name in self.texts for p in range(len(self.texts[name]))}
        return " ".join(w if (block, i) in used else "." for i, w in enumerate(words))

    def _id(self, name: str) -> int:
        return self.ids.setdefault(name, len(self.ids))
