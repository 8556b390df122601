"""The block manager under random operations, its contents shadowed (I1 to I14, I25 to I28)."""

import copy
from collections import Counter, OrderedDict
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from reference.allocator import BlockError, OutOfBlocksError
from reference.blocks import BlockManager
from reference.prefix_cache import hash_block
from tests.support.invariants import check_blocks, check_quiescence
from tests.support.shadow import ShadowCache
from tests.support.strategies import token_ids


def snapshot(manager: BlockManager) -> Any:
    """All state of a block manager, to compare with later."""
    return copy.deepcopy(
        [vars(manager.gpu), vars(manager.cpu), manager._tables, manager.prefix_cache.entries]
    )


@dataclass(eq=False)
class Row:
    """A sequence as the machine knows it: its tokens, the first `computed` of which are cached."""

    seq_id: int
    tokens: list[int]
    salt: str | None
    computed: int = 0


class BlockMachine(RuleBasedStateMachine):
    """Start, grow, fork, free, swap; each operation is carried out on the shadow at once."""

    @initialize(
        block_size=st.sampled_from([1, 2, 3, 4]),
        num_gpu_blocks=st.integers(2, 20),
        num_cpu_blocks=st.sampled_from([0, 2, 5, 20]),
        caching=st.booleans(),
        hash_fn=st.sampled_from([hash_block, lambda *_: 7]),
    )
    def build(
        self, block_size: int, num_gpu_blocks: int, num_cpu_blocks: int, caching: bool, hash_fn: Any
    ) -> None:
        self.manager = BlockManager(
            block_size,
            num_gpu_blocks,
            num_cpu_blocks,
            watermark=0.1,
            enable_prefix_caching=caching,
            hash_fn=hash_fn,
        )
        self.shadow = ShadowCache(block_size, num_gpu_blocks, num_cpu_blocks)
        self.free_list: OrderedDict[int, None] = OrderedDict.fromkeys(range(num_gpu_blocks))
        self.rows: list[Row] = []
        self.num_rows = 0

    # ---- what a plain model of the free list expects (I27) -----------------------------------

    def take(self) -> int:
        return self.free_list.popitem(last=not self.manager.enable_prefix_caching)[0]

    def expect_freed(
        self, tables: list[list[int]], refs: Counter[int], *, are_next: bool = False
    ) -> None:
        """Blocks join the free list as their last reference goes, each table from its end."""
        for table in tables:
            for block in reversed(table):
                refs[block] -= 1
                if refs[block] == 0:
                    self.free_list[block] = None
                    if are_next and self.manager.gpu.fifo:
                        self.free_list.move_to_end(block, last=False)

    def refs(self) -> Counter[int]:
        return Counter({b: self.manager.ref_count(b) for b in range(self.manager.num_gpu_blocks)})

    def new_row(self, tokens: list[int], salt: str | None, computed: int) -> Row:
        self.num_rows += 1
        return Row(self.num_rows - 1, tokens, salt, computed)

    def on(self, device: str) -> list[Row]:
        return [row for row in self.rows if self.manager.device(row.seq_id) == device]

    def write(self, row: Row, end: int, hits: list[int], drafts: tuple[int, ...] = ()) -> bool:
        """Take the slots for row.computed .. end-1 and write them; False if blocks are lacking.

        `drafts` stand behind its tokens."""
        manager, start = self.manager, row.computed
        table, before = manager.block_table(row.seq_id), snapshot(manager)
        revived = [block for block in hits if manager.ref_count(block) == 0]
        needed = manager.blocks_needed(row.seq_id, start, end) - len(hits)
        copies = manager.allocate_slots(
            row.seq_id, row.tokens, start, end, cached=hits, cache_salt=row.salt
        )
        if copies is None:
            assert needed + len(revived) > manager.num_free_gpu_blocks
            assert snapshot(manager) == before, "I28: None, yet something changed"
            return False
        assert [src for src, _ in copies] == [b for b in table if b not in self.now(row)], "I11"
        assert [dst for _, dst in copies] == [self.take() for _ in copies], "I27"
        for block in revived:
            del self.free_list[block]
        assert self.now(row)[: len(hits)] == hits or not hits
        new = self.now(row)[len(table) + len(hits) :]
        assert new == [self.take() for _ in new], "I27: not the least recently used blocks"
        assert len(new) + len(copies) == needed
        self.shadow.move(self.shadow.gpu, self.shadow.gpu, copies)
        for position in range(start, end):
            block = self.now(row)[position // manager.block_size]
            assert manager.ref_count(block) == 1, "I10: a shared block is written"
        self.shadow.write([*row.tokens, *drafts], self.now(row), start, end)
        row.computed = end
        return True

    def now(self, row: Row) -> list[int]:
        return self.manager.block_table(row.seq_id)

    # ---- rules -------------------------------------------------------------------------------

    @rule(tokens=token_ids(1, 14), salt=st.sampled_from([None, None, "a"]), data=st.data())
    def start(self, tokens: tuple[int, ...], salt: str | None, data: st.DataObject) -> None:
        before = snapshot(self.manager)
        hits = self.manager.cached_blocks(tokens, salt)
        assert snapshot(self.manager) == before
        self.check_hits(tokens, salt, hits)
        row = self.new_row(list(tokens), salt, len(hits) * self.manager.block_size)
        if self.write(row, data.draw(st.integers(row.computed + 1, len(tokens))), hits):
            self.rows.append(row)

    @precondition(lambda self: self.on("gpu"))
    @rule(data=st.data(), tokens=token_ids(0, 5))
    def grow(self, data: st.DataObject, tokens: tuple[int, ...]) -> None:
        row = data.draw(st.sampled_from(self.on("gpu")))
        row.tokens += [*tokens] or [0]
        self.write(row, data.draw(st.integers(row.computed + 1, len(row.tokens))), [])

    @precondition(lambda self: self.on("gpu"))
    @rule(data=st.data(), drafts=token_ids(1, 9), num_right=st.integers(0, 9))
    def speculate(self, data: st.DataObject, drafts: tuple[int, ...], num_right: int) -> None:
        """Write guesses behind all that is known, and keep only those that were right."""
        row = data.draw(st.sampled_from(self.on("gpu")))
        if row.computed < len(row.tokens) and not self.write(row, len(row.tokens), []):
            return
        known = len(row.tokens)
        if not self.write(row, known + len(drafts), [], drafts):
            return
        row.tokens += drafts[:num_right]
        row.computed = len(row.tokens)
        self.trim(row, row.computed)
        self.manager.offer(row.seq_id, row.tokens, row.salt)

    @precondition(lambda self: self.rows)
    @rule(data=st.data())
    def cut(self, data: st.DataObject) -> None:
        """Let a sequence be shorter. Not one on the CPU, nor by a block that may be cached."""
        row = data.draw(st.sampled_from(self.rows))
        num_tokens = data.draw(st.integers(0, row.computed))
        offered = self.manager._tables[row.seq_id].num_offered * self.manager.block_size
        if self.manager.device(row.seq_id) == "cpu" or num_tokens < offered:
            before = snapshot(self.manager)
            with pytest.raises(BlockError, match="trimmed"):
                self.manager.trim(row.seq_id, num_tokens)
            assert snapshot(self.manager) == before
            return
        self.trim(row, num_tokens)
        row.tokens, row.computed = row.tokens[:num_tokens], num_tokens
        if num_tokens == 0:
            self.rows.remove(row)

    def trim(self, row: Row, num_tokens: int) -> None:
        kept = self.manager.num_blocks_for(num_tokens)
        table = self.now(row)
        self.expect_freed([table[kept:]], self.refs(), are_next=True)
        self.manager.trim(row.seq_id, num_tokens)
        assert self.now(row) == table[:kept]

    @precondition(lambda self: self.rows)
    @rule(data=st.data(), whole=st.booleans())
    def fork(self, data: st.DataObject, whole: bool) -> None:
        """I12: only references change, and the tables agree on what is shared."""
        parent = data.draw(st.sampled_from(self.rows))
        full_blocks = parent.computed // self.manager.block_size
        num_blocks = None if whole else data.draw(st.integers(0, full_blocks))
        table, free = self.now(parent), list(self.manager.gpu.free_blocks)
        computed = parent.computed if whole else (num_blocks or 0) * self.manager.block_size
        child = self.new_row(list(parent.tokens), parent.salt, computed)
        self.manager.fork(parent.seq_id, child.seq_id, num_blocks)
        assert self.now(parent) == table and self.manager.gpu.free_blocks == free
        assert self.now(child) == table[:num_blocks]
        if self.now(child):
            self.rows.append(child)

    @precondition(lambda self: self.rows)
    @rule(data=st.data())
    def free(self, data: st.DataObject) -> None:
        row = data.draw(st.sampled_from(self.rows))
        if self.manager.device(row.seq_id) == "gpu":
            self.expect_freed([self.now(row)], self.refs())
        self.rows.remove(row)
        for _ in range(2):  # the second time it has no table, and nothing happens
            self.manager.free(row.seq_id)

    @precondition(lambda self: self.on("gpu"))
    @rule(data=st.data())
    def swap_out(self, data: st.DataObject) -> None:
        """I8, and I14: the mapping is injective and keeps who shares what."""
        rows = data.draw(st.lists(st.sampled_from(self.on("gpu")), min_size=1, unique=True))
        seq_ids, tables = [row.seq_id for row in rows], [self.now(row) for row in rows]
        before, refs = snapshot(self.manager), self.refs()
        if not self.manager.can_swap_out(seq_ids):
            with pytest.raises(OutOfBlocksError, match="cannot swap out"):
                self.manager.swap_out(seq_ids)
            assert snapshot(self.manager) == before, "I8"
            return
        pairs = self.manager.swap_out(seq_ids)
        self.expect_freed(tables, refs)
        self.check_moved(rows, tables, dict(pairs))
        self.shadow.move(self.shadow.gpu, self.shadow.cpu, pairs)

    @precondition(lambda self: self.on("cpu"))
    @rule(data=st.data(), extra=st.integers(0, 3))
    def swap_in(self, data: st.DataObject, extra: int) -> None:
        """I8 and I14, the other way."""
        rows = data.draw(st.lists(st.sampled_from(self.on("cpu")), min_size=1, unique=True))
        seq_ids, tables = [row.seq_id for row in rows], [self.now(row) for row in rows]
        before, num_free = snapshot(self.manager), self.manager.num_free_gpu_blocks
        distinct = {block for table in tables for block in table}
        fits = num_free - len(distinct) - extra >= self.manager.watermark_blocks
        assert self.manager.can_swap_in(seq_ids, extra) == fits
        if not self.manager.can_swap_in(seq_ids):
            with pytest.raises(OutOfBlocksError, match="cannot swap in"):
                self.manager.swap_in(seq_ids)
            assert snapshot(self.manager) == before, "I8"
            return
        pairs = self.manager.swap_in(seq_ids)
        assert [dst for _, dst in pairs] == [self.take() for _ in pairs], "I27"
        self.check_moved(rows, tables, dict(pairs))
        self.shadow.move(self.shadow.cpu, self.shadow.gpu, pairs)

    def check_moved(self, rows: list[Row], tables: list[list[int]], moved: dict[int, int]) -> None:
        assert len(set(moved.values())) == len(moved), "I14: two blocks moved into one"
        for row, table in zip(rows, tables, strict=True):
            assert self.now(row) == [moved[block] for block in table], "I14"

    @rule()
    def reset_prefix_cache(self) -> None:
        in_use = self.manager.num_free_gpu_blocks < self.manager.num_gpu_blocks
        before = snapshot(self.manager)
        assert self.manager.reset_prefix_cache() != in_use
        assert self.manager.num_cached_blocks == 0 or snapshot(self.manager) == before

    # ---- what always holds -------------------------------------------------------------------

    def check_hits(self, tokens: tuple[int, ...], salt: str | None, hits: list[int]) -> None:
        """I26: whole blocks, a token left to compute, as long as brute force finds; I29: salts."""
        cache, size = self.manager.prefix_cache, self.manager.block_size
        known = {(entry.prefix, entry.salt): entry.block for entry in cache.entries}
        expected = []
        for end in range(size, len(tokens), size):
            if (tokens[:end], salt) not in known:
                break
            expected.append(known[tokens[:end], salt])
        assert hits == expected

    @invariant()
    def books_balance(self) -> None:
        """I1 to I6."""
        manager = self.manager
        ids = range(self.num_rows)
        check_blocks(manager, ids, manager.num_gpu_blocks, manager.cpu.num_blocks)
        assert manager.gpu.free_blocks == list(self.free_list), "I2, I27"
        for pool in (manager.gpu, manager.cpu):
            used = {block for block, refs in enumerate(pool.ref_counts) if refs > 0}
            assert len(set(pool.free_blocks)) == len(pool.free_blocks), "I2"
            assert not used & set(pool.free_blocks), "I2"
        for row in self.rows:
            assert len(self.now(row)) == manager.num_blocks_for(row.computed), "I6"

    @invariant()
    def contents_are_right(self) -> None:
        """I13 for every sequence, on the GPU and on the CPU; I25 and I29 for every cached block."""
        for row in self.rows:
            device = self.manager.device(row.seq_id)
            self.shadow.check(row.tokens[: row.computed], self.now(row), device)
        for entry in self.manager.prefix_cache.entries:
            assert len(entry.prefix) % self.manager.block_size == 0, "I29"
            assert self.shadow.gpu[entry.block][-1] == entry.prefix, "I25"

    def teardown(self) -> None:
        """I9."""
        if hasattr(self, "rows"):
            for row in self.rows:
                self.manager.free(row.seq_id)
            manager = self.manager
            check_quiescence(manager, manager.num_gpu_blocks, manager.cpu.num_blocks)
            assert manager._tables == {}


TestBlockMachine = BlockMachine.TestCase
