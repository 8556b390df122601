"""Wrong targets: each is right but for the mistake in its name, and names who must notice it."""

from typing import Any

from paged_conformance.block_manager.right import ALL, Late, Plain, Stack
from paged_conformance.properties import Refused


class ForgetsOneFreedBlock(Plain):
    """The last block of a table is not given back if it is partial."""

    caught_by = "counts"

    def free(self, *, seq: int) -> None:
        table = self.tables.get(seq, [])
        if len(table) > 1 and self.end[seq] % self.size and seq not in self.swapped:
            table.pop()
        super().free(seq=seq)


class FindsFreeBlocksWithoutTakingThem(Stack):
    """A block that is found stays in the list of free ones."""

    caught_by = "blocks-have-one-owner"

    def num_free(self) -> int:
        return self.num_blocks - sum(count > 0 for count in self.refs.values())

    def touch(self, block: int) -> None:
        self.refs[block] += 1


class FreesSharedBlocks(Plain):
    """A block of a fork is free as soon as one of them ends."""

    caught_by = "counts"

    def free(self, *, seq: int) -> None:
        if seq in self.tables and seq not in self.swapped:
            for block in self.tables[seq]:
                self.refs[block] = 1
        super().free(seq=seq)


class TakesNoBlockAtABorder(Plain):
    """A token right behind a full block gets none."""

    caught_by = "tables-are-long-enough"

    def extend(
        self, *, seq: int, tokens: list[int], chunk: int, guesses: list[int]
    ) -> list[list[int]]:
        start, table = self.end[seq], self.tables[seq]
        got = super().extend(seq=seq, tokens=tokens, chunk=chunk, guesses=guesses)
        if start and start % self.size == 0 and chunk == 1 and len(table) > 1:
            self.release(table.pop())
        return got


class MovesTablesWhenOthersEnd(Plain):
    """After a sequence has ended, another's last block is a different one."""

    caught_by = "tables-stay"

    def free(self, *, seq: int) -> None:
        super().free(seq=seq)
        for other, table in self.tables.items():
            if other not in self.swapped and table and self.free_blocks:
                block = table[-1]
                if self.refs[block] == 1:
                    table[-1] = self.take()
                    self.release(block)
                    break


class RefusesWithSomeBlocksTaken(Plain):
    """What does not fit gets the blocks that it has found, and then it is refused."""

    caught_by = "refusals-leave-no-trace"

    def open(
        self, *, seq: int, tokens: list[int], chunk: int, salt: str | None, adapter: str | None
    ) -> dict[str, int]:
        try:
            return super().open(seq=seq, tokens=tokens, chunk=chunk, salt=salt, adapter=adapter)
        except Refused:
            if self.free_blocks:
                self.take()
            raise


class EvictsBeforeItRefuses(Plain):
    """A refused call has forgotten the cached content of the block that would have been next."""

    caught_by = "refusals-leave-no-trace"

    def open(
        self, *, seq: int, tokens: list[int], chunk: int, salt: str | None, adapter: str | None
    ) -> dict[str, int]:
        try:
            return super().open(seq=seq, tokens=tokens, chunk=chunk, salt=salt, adapter=adapter)
        except Refused:
            for block in self.free_blocks:
                self.forget(block)
            raise


class NeedsOneBlockTooMany(Plain):
    """The last free block is never handed out to a new sequence."""

    caught_by = "what-fits-is-taken"

    def reserve(self) -> int:
        return 1


class ForksNeedAFreeBlock(Plain):
    """A fork is refused when no block is free, though all of its blocks are shared."""

    caught_by = "what-fits-is-taken"

    def fork(self, *, parent: int, child: int) -> list[list[int]]:
        if not self.free_blocks:
            raise Refused("no block is free")
        return super().fork(parent=parent, child=child)


class CountsFoundFreeBlocksTwice(Plain):
    """A block that is found and free counts as found and as free: too much is accepted."""

    caught_by = "what-fits-is-taken"

    def need(self, count: int, found: list[int]) -> int:
        return count - len(found)


class KeepsTablesOfTheEnded(Plain):
    """A sequence that has ended still has its table, and is freed once more."""

    caught_by = "ends-are-clean"

    def table(self, *, seq: int) -> list[int]:
        return list(self.tables.get(seq, self.old.get(seq, [])))

    @property
    def old(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = self.__dict__.setdefault("_old", {})
        return found

    def free(self, *, seq: int) -> None:
        self.old[seq] = self.table(seq=seq)
        super().free(seq=seq)


class LosesTheLastFreeBlock(Plain):
    """A block is lost when all become free, and the count does not say so."""

    caught_by = "nothing-leaks"

    def num_free(self) -> int:
        return self.num_blocks - sum(count > 0 for count in self.refs.values())

    def release(self, block: int) -> None:
        super().release(block)
        if self.refs[block] == 0 and len(self.free_blocks) == self.num_blocks:
            self.free_blocks.pop(0)


class ForksIntoIdsInUse(Plain):
    """A fork overwrites the table of a sequence that is there."""

    caught_by = "misuse-is-refused"

    def fork(self, *, parent: int, child: int) -> list[list[int]]:
        if child in self.tables and child != parent and child not in self.swapped:
            self.free(seq=child)
        elif child in self.tables:
            return []
        return super().fork(parent=parent, child=child)


class WritesSharedBlocks(Plain):
    """A fork writes into the block that its parent reads."""

    caught_by = "writes-are-to-own-blocks"

    def shared(self, seq: int, start: int, end: int) -> list[int]:
        return []


class CopiesTheWrongBlock(Plain):
    """The copy of a write is made from the table's first block."""

    caught_by = "copies-are-what-changed"

    def copy(self, seq: int, index: int) -> list[int]:
        first = self.tables[seq][0]
        return [first, super().copy(seq, index)[1]]


class TellsNoCopy(Plain):
    """A shared block is replaced, and nobody copies what it held."""

    caught_by = "copies-are-what-changed"

    def extend(
        self, *, seq: int, tokens: list[int], chunk: int, guesses: list[int]
    ) -> list[list[int]]:
        super().extend(seq=seq, tokens=tokens, chunk=chunk, guesses=guesses)
        return []


class FindsWholePrompts(Plain):
    """A prompt that is cached to its end leaves nothing to compute."""

    caught_by = "hits-are-whole-blocks"

    def find(self, tokens: list[int], key: Any) -> list[int]:
        return super().find([*tokens, 0], key)


class IgnoresWhatComesBefore(Plain):
    """A block is known by its own tokens alone."""

    caught_by = "hits-are-equal-texts"

    def text(self, tokens: list[int], end: int, key: Any) -> Any:
        return (key, tuple(tokens[end - self.size : end]))


class IgnoresSalts(Plain):
    """Sequences of different salts share blocks."""

    caught_by = "hits-are-equal-texts"

    def text(self, tokens: list[int], end: int, key: Any) -> Any:
        return (key[1], tuple(tokens[:end]))


class IgnoresAdapters(Plain):
    """Sequences of different adapters share blocks."""

    caught_by = "hits-are-equal-texts"

    def text(self, tokens: list[int], end: int, key: Any) -> Any:
        return (key[0], tuple(tokens[:end]))


class FindsWhatWasHandedOut(Plain):
    """A block that is handed out is still found for what it held."""

    caught_by = "hits-are-equal-texts"

    def forget(self, block: int) -> None:
        if block % 2:
            super().forget(block)


class EntersWholePromptsAtOnce(Plain):
    """A prompt's blocks are found before their chunk is computed."""

    caught_by = "hits-are-computed"

    def room_for(self, tokens: list[int], end: int) -> int:
        return self.blocks_for(len(tokens))

    def scheduled(self, seq: int) -> None:
        end, self.end[seq] = (
            self.end[seq],
            min(len(self.tokens[seq]), len(self.tables[seq]) * self.size),
        )
        self.register(seq)
        self.end[seq] = end


class FreesRejectedGuessesTooFar(Plain):
    """Where guesses were wrong, a block with known tokens is replaced too."""

    caught_by = "tables-stay"

    def trim(self, seq: int) -> None:
        super().trim(seq)
        if self.free_blocks and self.tables[seq] and self.refs[self.tables[seq][-1]] == 1:
            self.copy(seq, len(self.tables[seq]) - 1)


class RemapsToOtherTexts(Late):
    """After a step a table names the cached blocks of another adapter's equal tokens."""

    caught_by = "contents"

    words = [*ALL, "remaps"]  # noqa: RUF012

    def text(self, tokens: list[int], end: int, key: Any) -> Any:
        return (key[0], tuple(tokens[:end]))

    def find(self, tokens: list[int], key: Any) -> list[int]:
        blocks = super().find(tokens, key)
        return blocks if key == (None, None) and all(self.of[b] == key for b in blocks) else []

    @property
    def of(self) -> dict[int, Any]:
        found: dict[int, Any] = self.__dict__.setdefault("_of", {})
        return found

    def take(self) -> int:
        block = super().take()
        self.of.pop(block, None)
        return block

    def register(self, seq: int) -> None:
        for end in range(self.size, self.end[seq] + 1, self.size):
            block = self.tables[seq][end // self.size - 1]
            other = self.index.get(self.text(self.tokens[seq], end, self.keys[seq]), block)
            if other != block and seq not in self.moved:
                self.touch(other)
                self.tables[seq][end // self.size - 1] = other
                self.release(block)
            self.of.setdefault(other, self.keys[seq])
        super().register(seq)


class EntersTooEarlyForPreemption(Late):
    """A sequence that leaves a step has its blocks in the cache, and never computes them."""

    caught_by = "hits-are-computed"

    def scheduled(self, seq: int) -> None:
        self.register(seq)


class ForgetsFreedBlocksItFinds(Plain):
    """A free block that is found is not found a second time."""

    caught_by = "what-is-there-is-found"

    def touch(self, block: int) -> None:
        if self.refs[block] == 0:
            self.forget(block)
            nobodys = object()  # its text is not entered anew when the sequence is scheduled
            self.index[nobodys], self.holds[block] = block, nobodys
        super().touch(block)


class ForgetsBehindEntering(Stack):
    """What a block held is forgotten once its new text is entered: where both are equal, both."""

    caught_by = "what-is-there-is-found"
    words = ["prefix_cache", "keeps", "chunks", "several"]  # noqa: RUF012

    def take(self) -> int:
        block = self.free_blocks.pop(0)
        self.refs[block] = 1
        held = self.__dict__.setdefault("_held", [])
        held += [self.holds.pop(block)] if block in self.holds else []
        return block

    def scheduled(self, seq: int) -> None:
        super().scheduled(seq)
        for text in self.__dict__.pop("_held", []):
            del self.index[text]


class EvictsTheNewest(Plain):
    """The block that was freed last is handed out first."""

    caught_by = "the-oldest-goes-first"

    def take(self) -> int:
        self.free_blocks.insert(0, self.free_blocks.pop())
        return super().take()


class FreesFrontFirst(Plain):
    """A sequence's first block is evicted before the ones that need it."""

    caught_by = "the-oldest-goes-first"

    def free(self, *, seq: int) -> None:
        if seq in self.tables and seq not in self.swapped:
            self.tables[seq].reverse()
        super().free(seq=seq)


class LooksChangeTheCache(Plain):
    """A look at what would be found forgets it."""

    caught_by = "match-says-what-open-finds"

    def match(self, *, tokens: list[int], salt: str | None, adapter: str | None) -> int:
        found = self.find(tokens, (salt, adapter))
        for block in found[1:]:
            self.forget(block)
        return len(found) * self.size


class ResetsWhileInUse(Plain):
    """A reset that says no has forgotten everything all the same."""

    caught_by = "refusals-leave-no-trace"

    def reset(self) -> bool:
        done = super().reset()
        self.index.clear()
        self.holds.clear()
        return done


class ResetsNothing(Plain):
    """A reset says yes and forgets nothing."""

    caught_by = "a-reset-forgets"

    def reset(self) -> bool:
        return not any(self.refs.values())


class ForksOneBlockLess(Plain):
    """A fork gets a block of its own for the parent's first one, without a copy."""

    caught_by = "forks-share"

    def fork(self, *, parent: int, child: int) -> list[list[int]]:
        pairs = super().fork(parent=parent, child=child)
        if self.end[child] >= self.size and self.free_blocks and child not in self.swapped:
            self.copy(child, 0)
        return pairs


class SwapsInTheWrongOrder(Plain):
    """Swapping in hands out a table's blocks the other way round."""

    caught_by = "swaps-only-rename"

    def swap_in(self, *, seqs: list[int]) -> list[list[int]]:
        pairs = super().swap_in(seqs=seqs)
        self.tables[seqs[0]].reverse()
        return pairs


class SwapsWithoutForgetting(Plain):
    """What a swap overwrites is still found."""

    caught_by = "hits-are-equal-texts"

    def swap_in(self, *, seqs: list[int]) -> list[list[int]]:
        index, holds = dict(self.index), dict(self.holds)
        pairs = super().swap_in(seqs=seqs)
        self.index, self.holds = index, holds
        return pairs


WRONG: tuple[type[Plain], ...] = tuple(
    kind
    for kind in vars().copy().values()
    if isinstance(kind, type) and issubclass(kind, Plain) and "caught_by" in vars(kind)
)
