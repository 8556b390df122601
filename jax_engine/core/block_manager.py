"""§4.3-4.5, the KV cache manager: block tables of all sequences over the two block pools.

`BlockManager` allocates on demand, shares blocks by fork, copies them on write, swaps, and caches
prefixes. Only `clear` takes time in the size of a pool; a decoded token that fits its block costs
two comparisons. `BlockView` is its read side, for workers, schedulers and gauges: what lies where.
"""

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from jaxtyping import Int32

from jax_engine.core.block_store import BlockStore, Contents
from jax_engine.core.blocks import (
    BlockError,
    BlockPool,
    BlockTable,
    can_move,
    distinct_blocks,
    move_tables,
)
from jax_engine.core.kv_events import KVEvents
from jax_engine.core.prefix_cache import (
    ALL_PROMPT,
    MIXED,
    HashFunction,
    Node,
    PrefixCache,
    PromptSalt,
)


class BlockView:
    """Two pools, the block tables over them, and the content of the full blocks.

    Attributes:
        gpu, cpu: The pools.
        tables: Block table of each sequence id that has one.
    """

    def __init__(self, gpu: BlockPool, cpu: BlockPool, cache: PrefixCache) -> None:
        self.gpu = gpu
        self.cpu = cpu
        self.tables: dict[int, BlockTable] = {}
        self._cache = cache

    @property
    def num_gpu_blocks(self) -> int:
        return self.gpu.num_blocks

    @property
    def num_cpu_blocks(self) -> int:
        return self.cpu.num_blocks

    @property
    def num_free_gpu_blocks(self) -> int:
        return self.gpu.num_free

    @property
    def num_free_cpu_blocks(self) -> int:
        return self.cpu.num_free

    @property
    def num_used_gpu_blocks(self) -> int:
        return self.gpu.num_blocks - self.gpu.num_free

    @property
    def num_shared_blocks(self) -> int:
        """GPU blocks in use by more than one table."""
        return self.gpu.num_shared

    @property
    def num_logical_blocks(self) -> int:
        """The lengths of all tables on the GPU together: the blocks in use if none were shared."""
        return self.gpu.num_refs

    @property
    def num_cached_blocks(self) -> int:
        """GPU blocks that a prompt could hit, in use or not."""
        return len(self._cache)

    def cached_contents(self) -> list[Node]:
        """The contents of the GPU blocks that a prompt could hit."""
        return self._cache.contents()

    def cached_blocks_now(self) -> list[int]:
        """The GPU blocks that a prompt could hit, in use or not."""
        return self._cache.blocks()

    def block_table(self, seq_id: int) -> list[int]:
        """Physical blocks of a sequence, a copy; [] without a table."""
        table = self.tables.get(seq_id)
        return list(table.ids) if table else []

    def block_table_rows(self, seq_ids: list[int]) -> Int32[np.ndarray, "S W"]:
        """The sequences' tables as a step carries them: zero-padded, a copy.

        Raises:
            BlockError: A sequence has no table.
        """
        tables = self.tables
        if not seq_ids:
            return np.zeros((0, 0), np.int32)
        try:
            rows = [tables[seq_id].row for seq_id in seq_ids]
        except KeyError as error:
            raise BlockError(f"seq_id {error} has no block table: allocate_slots first") from error
        return np.concatenate(rows).reshape(len(rows), -1)

    def device(self, seq_id: int) -> str | None:
        """Where the sequence's blocks lie: "gpu", "cpu", or None without a table."""
        table = self.tables.get(seq_id)
        return table.device if table else None

    def ref_count(self, block: int, device: str = "gpu") -> int:
        """References to a physical block."""
        return (self.gpu if device == "gpu" else self.cpu).refs[block]

    def num_free_among(self, blocks: Iterable[int]) -> int:
        """How many of these GPU blocks are free now, as cached blocks may be."""
        refs = self.gpu.refs
        return sum(refs[block] == 0 for block in blocks)

    def _is_shared(self, table: BlockTable, index: int) -> bool:
        return index < len(table.ids) and self._pool_of(table).refs[table.ids[index]] > 1

    def _pool_of(self, table: BlockTable) -> BlockPool:
        return self.gpu if table.device == "gpu" else self.cpu

    def _tables_of(self, seq_ids: Iterable[int]) -> list[BlockTable]:
        return [self.tables[seq_id] for seq_id in seq_ids if seq_id in self.tables]


class BlockManager(BlockView):
    """All operations on block tables; the read side is `BlockView`.

    Args:
        block_size: B, tokens a block.
        num_gpu_blocks: Size of the device's pool.
        num_cpu_blocks: Size of the host's pool, for swapping; 0 for none.
        watermark: Share of the GPU pool that admission and swap-in leave free, as head-room for
            running sequences.
        enable_prefix_caching: Index full blocks by content, freed ones too (LRU).
        table_width: W, the most blocks of one table: ceil(max_model_len / B). None: the pool size.
        hash_fn: Hash of (parent hash, tokens, salt). Collisions cost time, never a wrong hit.
        host_room: Allocates memory for CPU blocks before they are written; False if it cannot.

    Attributes:
        watermark_blocks: int(watermark * num_gpu_blocks).
        store: Has blocks beside those of the prefix cache; None: nothing has.
    """

    def __init__(
        self,
        block_size: int,
        num_gpu_blocks: int,
        num_cpu_blocks: int = 0,
        *,
        watermark: float = 0.01,
        enable_prefix_caching: bool = False,
        table_width: int | None = None,
        hash_fn: HashFunction = hash,
        host_room: Callable[[list[int]], bool] = lambda blocks: True,
    ) -> None:
        gpu = BlockPool("gpu", num_gpu_blocks, lru=enable_prefix_caching)
        super().__init__(gpu, BlockPool("cpu", num_cpu_blocks), PrefixCache(block_size, hash_fn))
        self.block_size = block_size
        self.watermark_blocks = int(watermark * num_gpu_blocks)
        self.enable_prefix_caching = enable_prefix_caching
        self._host_room = host_room
        self.table_width = num_gpu_blocks if table_width is None else table_width
        self.store: BlockStore | None = None

    @property
    def hash_fn(self) -> HashFunction:
        """The hash of its nodes."""
        return self._cache.hash_fn

    def record_events(self) -> KVEvents:
        """From now on, what comes into the prefix cache and goes from it."""
        events = self._cache.events = KVEvents()
        return events

    def keep_in(self, store: BlockStore) -> None:
        """From now on, prompts are looked for in this store, too, and `take_prompts` has theirs."""
        self.store, self._cache.prompts = store, []

    def take_prompts(self) -> list[tuple[Node, int]]:
        """Blocks of prompts that were entered since the last call, which no store had.

        They are computed by the steps that were planned since then.
        """
        taken, self._cache.prompts = self._cache.prompts or [], []
        return taken

    def enter(self, nodes: Sequence[tuple[Node, int]]) -> list[tuple[int, int]]:
        """Enters contents into the prefix cache that a store has, in blocks that stay free.

        Args:
            nodes: Each with its place in its text. The first is evicted last.

        Returns:
            For each that was entered, which of `nodes` it is, and its block, which is to be
            filled; as many as there are free blocks.
        """
        entered = []
        for place, (node, index) in enumerate(nodes[: self.gpu.num_free]):
            block = self._take_block()
            if self._cache.enter(node, block, index):
                entered.append((place, block))
            else:
                self.gpu.return_all([block])
        self.gpu.free_all([block for _, block in entered])
        return entered

    def clear(self) -> None:
        """Drops all tables and all cached content, even if they are inconsistent."""
        self.tables.clear()
        self._cache.clear()
        self.gpu.clear()
        self.cpu.clear()

    def cached_blocks(
        self,
        token_ids: Sequence[int],
        cache_salt: PromptSalt = None,
        chain: list[Node] | None = None,
        prompt_len: int | None = None,
    ) -> list[int]:
        """Blocks that hold the longest cached prefix of full blocks; takes no reference.

        At most (len(token_ids) - 1) // B: one token must be left to compute, or there would be no
        logits to sample from. `chain`, if given, holds this token sequence's nodes from earlier
        calls: it is extended in place, so that no block is hashed twice. With `prompt_len`, only
        blocks that a sequence with a prompt of that length would compute to the same bits.
        """
        if not self.enable_prefix_caching:
            return []
        chain = [] if chain is None else chain
        limit = (len(token_ids) - 1) // self.block_size
        self._cache.extend_chain(chain, token_ids, limit, cache_salt)
        return self._cache.match(chain, limit, prompt_len)

    def stored_blocks(
        self, chain: Sequence[Node], num_cached: int, prompt_len: int, *, waits: bool
    ) -> Contents | None:
        """What the store has of a prompt behind its `num_cached` cached blocks.

        Args:
            chain: As `cached_blocks` has extended it: one token is left to compute.
            prompt_len: Tokens of the prompt: only its own full blocks are in a store.
            waits: As `BlockStore.find`.

        Returns:
            None: ask again later.
        """
        if self.store is None:
            return []
        return self.store.find(chain[num_cached : prompt_len // self.block_size], waits=waits)

    def blocks_needed(self, seq_id: int, start: int, num_tokens: int) -> int:
        """How many free blocks are needed to write positions start .. num_tokens - 1.

        Conservative: siblings that share the block each count their own copy.
        """
        table = self.tables.get(seq_id)
        if table is None:
            return -(-num_tokens // self.block_size)
        if num_tokens <= table.room:
            return 0
        new = max(0, -(-num_tokens // self.block_size) - len(table.ids))
        return new + self._is_shared(table, start // self.block_size)

    def allocate_slots(
        self,
        seq_id: int,
        token_ids: Sequence[int],
        start: int,
        num_tokens: int,
        *,
        cached: Sequence[int] = (),
        num_loaded: int = 0,
        cache_salt: PromptSalt = None,
        chain: list[Node] | None = None,
        prompt_len: int | None = None,
    ) -> list[tuple[int, int]] | None:
        """Makes positions start .. num_tokens - 1 of a sequence writable; `start` never goes back.

        Args:
            seq_id: Gets a table if it has none.
            token_ids: All its known tokens; read for the prefix cache. While the last of the
                `num_tokens` is still being sampled it is missing here: a later call, or
                `register`, enters the block that it fills.
            start: First position written; those before are in the cache.
            num_tokens: One past the last position written.
            cached: Hits of `cached_blocks`, for a sequence without a table.
            num_loaded: So many blocks behind those are filled from the store.
            cache_salt: As given to `cached_blocks`.
            chain: As given to `cached_blocks`; the table goes on to extend it.
            prompt_len: Tokens of its prompt, read when it gets its table; None: all that are known.

        Returns:
            (source, destination) blocks to copy before the write; None, with nothing changed, when
            too few blocks are free.

        Raises:
            BlockError: The sequence is swapped out, or outgrows its table, or `cached` was given
                for a sequence that has a table.
        """
        table = self.tables.get(seq_id)
        if table is None:
            need = -(-num_tokens // self.block_size) - len(cached) + self.num_free_among(cached)
        elif num_tokens <= table.room:
            return []
        else:
            table.check_writable(seq_id, cached)
            need = self.blocks_needed(seq_id, start, num_tokens)
        if need > self.gpu.num_free:
            return None
        self._check_width(seq_id, num_tokens)
        if table is None:
            known = len(token_ids) if prompt_len is None else prompt_len
            table = self.tables[seq_id] = self._open_table(cached, chain, known)
        copies: list[tuple[int, int]] = []
        if self._is_shared(table, start // self.block_size):
            copies.append(self._copy_on_write(table, start // self.block_size))
        for _ in range(-(-num_tokens // self.block_size) - len(table.ids)):
            table.append(self._take_block())
        if num_loaded:
            first, last = len(cached), len(cached) + num_loaded
            self._cache.register(table.chain, table.ids, first, last, ALL_PROMPT, is_loaded=True)
            table.num_tried = last
        self._register(table, token_ids, num_tokens, cache_salt)
        self._set_room(table, num_tokens)
        return copies

    def register(
        self, seq_id: int, token_ids: Sequence[int], num_tokens: int, cache_salt: PromptSalt
    ) -> None:
        """Enters the full blocks of the first `num_tokens` tokens into the prefix cache."""
        table = self.tables.get(seq_id)
        if table is not None:
            self._register(table, token_ids, num_tokens, cache_salt)

    def trim(self, seq_id: int, num_tokens: int) -> None:
        """Gives the blocks behind the first `num_tokens` positions back, which drafts had filled.

        They are the next to be allocated. A no-op without a table.

        Raises:
            BlockError: The sequence is swapped out, or these positions are in the prefix cache.
        """
        table = self.tables.get(seq_id)
        if table is None:
            return
        table.check_writable(seq_id, ())
        if num_tokens < table.num_tried * self.block_size:
            raise BlockError(
                f"seq_id {seq_id} has {table.num_tried} blocks of {self.block_size} tokens in the "
                f"prefix cache, {num_tokens} tokens would be left: only drafts are trimmed"
            )
        self.gpu.return_all(table.cut(-(-num_tokens // self.block_size)))
        table.room = 0  # the next write registers what the accepted drafts have filled
        if not table.ids:
            del self.tables[seq_id]

    def fork(self, parent_id: int, child_id: int, num_blocks: int | None = None) -> None:
        """Gives the child the parent's first `num_blocks` blocks (all by default) to share.

        Needs no free block. If there is nothing to share, the child gets no table.

        Raises:
            BlockError: The child has a table already, or the parent has fewer blocks.
        """
        if child_id in self.tables:
            raise BlockError(f"seq_id {child_id} has a block table already: fork into a new id")
        parent = self.tables.get(parent_id)
        if parent is None or num_blocks == 0:
            return
        count = len(parent.ids) if num_blocks is None else num_blocks
        if count > len(parent.ids):
            raise BlockError(
                f"num_blocks {count} exceeds the {len(parent.ids)} blocks of seq_id {parent_id}: "
                "fork when the parent has been computed that far"
            )
        pool = self._pool_of(parent)
        child = self.tables[child_id] = parent.prefix(count)
        for block in child.ids:
            pool.share(block)
        parent.room = 0  # its last block may be shared now

    def free(self, seq_id: int) -> None:
        """Drops the sequence's references, last block first; a no-op without a table."""
        table = self.tables.pop(seq_id, None)
        if table is not None:
            self._pool_of(table).free_all(table.ids)

    def can_swap_out(self, seq_ids: Iterable[int]) -> bool:
        """Whether all these sequences' blocks are on the GPU and fit into the CPU pool.

        If so, their host memory is allocated too.
        """
        tables = self._tables_of(seq_ids)
        if not can_move(tables, self.gpu, self.cpu, 0):
            return False
        return self._host_room(self.cpu.next_blocks(distinct_blocks(tables)))

    def swap_out(self, seq_ids: Iterable[int]) -> list[tuple[int, int]]:
        """Moves the sequences to the CPU, sharing kept; returns (gpu, cpu) pairs to copy.

        Raises:
            OutOfBlocksError: `can_swap_out` is false; nothing changed.
        """
        tables = self._tables_of(seq_ids)
        return move_tables(tables, self.gpu, self.cpu, reserve=0, allocate=self.cpu.allocate)

    def can_swap_in(self, seq_ids: Iterable[int], extra: int) -> bool:
        """Whether the GPU holds all these sequences and `extra` blocks above the watermark."""
        return can_move(self._tables_of(seq_ids), self.cpu, self.gpu, self.watermark_blocks + extra)

    def swap_in(self, seq_ids: Iterable[int]) -> list[tuple[int, int]]:
        """Moves the sequences back to the GPU, sharing kept; returns (cpu, gpu) pairs to copy.

        Raises:
            OutOfBlocksError: `can_swap_in(seq_ids, 0)` is false; nothing changed.
        """
        tables, reserve = self._tables_of(seq_ids), self.watermark_blocks
        return move_tables(tables, self.cpu, self.gpu, reserve=reserve, allocate=self._take_block)

    def reset_prefix_cache(self) -> bool:
        """Forgets all cached contents, if no GPU block is in use; returns whether it did."""
        if self.num_used_gpu_blocks:
            return False
        self._cache.clear()
        return True

    def _take_block(self) -> int:
        block = self.gpu.allocate()
        self._cache.evict(block)
        return block

    def _open_table(
        self, cached: Sequence[int], chain: list[Node] | None, prompt_len: int
    ) -> BlockTable:
        for index, block in enumerate(cached):
            if not self._cache.is_same(block, index, prompt_len):
                prompt_len = MIXED
                break
        table = BlockTable(self.table_width, [] if chain is None else chain, prompt_len)
        for block in cached:
            self.gpu.share(block)
        table.fill(list(cached))
        table.num_tried = len(cached)
        return table

    def _copy_on_write(self, table: BlockTable, index: int) -> tuple[int, int]:
        # Only the block of the first position written can be shared; later ones are its own.
        old, new = table.ids[index], self._take_block()
        table.replace(index, new)
        self.gpu.free(old)
        return old, new

    def _register(
        self, table: BlockTable, token_ids: Sequence[int], num_tokens: int, salt: PromptSalt
    ) -> None:
        full = min(num_tokens, len(token_ids)) // self.block_size
        if self.enable_prefix_caching and table.registers and full > table.num_tried:
            self._cache.extend_chain(table.chain, token_ids, full, salt)
            first, last = table.num_tried, full
            self._cache.register(table.chain, table.ids, first, last, table.prompt_len)
            table.num_tried = full

    def _set_room(self, table: BlockTable, num_tokens: int) -> None:
        room = -(-num_tokens // self.block_size) * self.block_size
        if self.enable_prefix_caching and table.registers:
            room -= 1  # the write that fills the block has to register it
        table.room = room if room > num_tokens else 0

    def _check_width(self, seq_id: int, num_tokens: int) -> None:
        num_blocks = -(-num_tokens // self.block_size)
        if num_blocks > self.table_width:
            raise BlockError(
                f"seq_id {seq_id} needs {num_blocks} blocks for {num_tokens} tokens, table_width "
                f"is {self.table_width}: raise max_model_len, or end the sequence there"
            )
