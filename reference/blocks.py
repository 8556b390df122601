"""Block tables: where a sequence's keys and values lie (paper 4.2 to 4.5).

A sequence sees its KV cache as *logical* blocks 0, 1, 2, .. of B tokens. Its *block table* maps
each to a *physical* block anywhere in the pool. Blocks are taken only when tokens are about to be
written, so a sequence wastes at most the unfilled rest of its last block.

Figure 6, "Four score and seven years ago our", 7 tokens, B = 4 (the free list is given, so that
the physical numbers are the paper's):

>>> manager = BlockManager(4, 9, free_order=[0, 4, 6, 8, 2, 5, 3, 1, 7])
>>> prompt = [1, 2, 3, 4, 5, 6, 7]
>>> manager.allocate_slots(0, prompt, start=0, num_tokens=7), manager.block_table(0)
([], [7, 1])
>>> manager.allocate_slots(0, [*prompt, 8], 7, 8), manager.block_table(0)     # "fathers"
([], [7, 1])
>>> manager.allocate_slots(0, [*prompt, 8, 9], 8, 9), manager.block_table(0)  # "brought"
([], [7, 1, 3])

Figure 7, a second request, "It was the best of times", lives in the same pool:

>>> manager.allocate_slots(1, [11, 12, 13, 14, 15, 16], 0, 6), manager.block_table(1)
([], [5, 2])

Figure 8, parallel sampling: two samples share the blocks of their prompt. The first to write into
the shared last block gets a copy of it (*copy on write*); the other is alone then, and writes in
place:

>>> manager = BlockManager(4, 9, free_order=[0, 4, 6, 8, 2, 5, 3, 1, 7])
>>> manager.allocate_slots(1, prompt, 0, 7), manager.fork(1, 2), manager.block_table(2)
([], None, [7, 1])
>>> manager.ref_count(7), manager.ref_count(1)
(2, 2)
>>> manager.allocate_slots(1, [*prompt, 8], 7, 8), manager.ref_count(1)       # A1: "fathers"
([(1, 3)], 1)
>>> manager.allocate_slots(2, [*prompt, 9], 7, 8)                             # A2: "mothers"
[]
>>> manager.block_table(1), manager.block_table(2)
([7, 3], [7, 1])
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from reference.allocator import BlockAllocator, BlockError, Device, OutOfBlocksError
from reference.prefix_cache import Content, HashFunction, PrefixCache, Salt, hash_block

BlockPair = tuple[int, int]


@dataclass
class BlockTable:
    """The physical blocks of one sequence, logical block i at `blocks[i]`, all on one device."""

    blocks: list[int]
    device: Device = "gpu"
    num_offered: int = 0
    """The first so many blocks have been offered to the prefix cache, each of them once."""
    caching: bool = True
    """False since the sequence was swapped in: none of its blocks is offered any more."""
    prompt_len: int | None = None
    """Tokens of the sequence's prompt; None: all of its tokens."""
    is_mixed: bool = False
    """Does it begin with cached blocks that the sequence would have computed to other bits?"""


class BlockManager:
    """The tables of all sequences over a GPU pool and a CPU pool.

    A sequence is an integer here. `watermark` is the share of GPU blocks that admission leaves
    free. With `enable_prefix_caching` the GPU pool is a queue and remembers content, else a stack.
    """

    def __init__(
        self,
        block_size: int,
        num_gpu_blocks: int,
        num_cpu_blocks: int = 0,
        *,
        watermark: float = 0.01,
        enable_prefix_caching: bool = False,
        hash_fn: HashFunction = hash_block,
        free_order: Sequence[int] | None = None,
    ) -> None:
        self.block_size = block_size
        self.num_gpu_blocks = num_gpu_blocks
        self.watermark_blocks = int(watermark * num_gpu_blocks)
        self.gpu = BlockAllocator(
            "gpu", num_gpu_blocks, fifo=enable_prefix_caching, free_order=free_order
        )
        self.cpu = BlockAllocator("cpu", num_cpu_blocks)
        self.enable_prefix_caching = enable_prefix_caching
        self.prefix_cache = PrefixCache(block_size, hash_fn)
        self._tables: dict[int, BlockTable] = {}

    @property
    def num_free_gpu_blocks(self) -> int:
        return self.gpu.num_free

    @property
    def num_free_cpu_blocks(self) -> int:
        return self.cpu.num_free

    @property
    def num_cached_blocks(self) -> int:
        return len(self.prefix_cache)

    def block_table(self, seq_id: int) -> list[int]:
        """A copy of the table; [] for a sequence that has none."""
        return list(self._tables[seq_id].blocks) if seq_id in self._tables else []

    def device(self, seq_id: int) -> Device | None:
        return self._tables[seq_id].device if seq_id in self._tables else None

    def ref_count(self, block: int, device: Device = "gpu") -> int:
        return self._pool(device).ref_counts[block]

    def num_blocks_for(self, num_tokens: int) -> int:
        """ceil(num_tokens / B)"""
        return -(-num_tokens // self.block_size)

    def cached_blocks(
        self, token_ids: Sequence[Content], cache_salt: Salt = None, prompt_len: int | None = None
    ) -> list[int]:
        """The blocks of the longest cached prefix, at most (len - 1) // B of them.

        With `prompt_len`: of blocks that a sequence with such a prompt computes to the same bits.
        """
        if not self.enable_prefix_caching:
            return []
        return self.prefix_cache.lookup(token_ids, cache_salt, prompt_len)

    def blocks_needed(self, seq_id: int, start: int, num_tokens: int) -> int:
        """Blocks to take for writing positions start .. num_tokens-1, a copy on write included.

        An upper bound for siblings together: each counts a copy, though the last one to write
        finds itself alone and needs none.
        """
        table = self._tables.get(seq_id, BlockTable([]))
        new_blocks = max(0, self.num_blocks_for(num_tokens) - len(table.blocks))
        return new_blocks + int(self._is_shared(table, start))

    def allocate_slots(
        self,
        seq_id: int,
        token_ids: Sequence[Content],
        start: int,
        num_tokens: int,
        *,
        cached: Sequence[int] = (),
        cache_salt: Salt = None,
        prompt_len: int | None = None,
    ) -> list[BlockPair] | None:
        """Make room to write positions start .. num_tokens-1 of a sequence in this step.

        Positions behind `token_ids` may be among them, for guesses; no block with one is cached.
        `cached` are the blocks found for a sequence without a table; they become its first ones.
        A new table notes how many of the tokens are the prompt's: `prompt_len`, or all known ones.
        Returns the copies (source, destination) to be made before anything is written, or None,
        with nothing changed, when there are not enough free blocks. Raises BlockError when the
        sequence is swapped out, or has a table already and is given `cached` blocks.
        """
        if self.device(seq_id) == "cpu":
            raise BlockError(f"sequence {seq_id} is swapped out; swap it in before it is written")
        if cached and seq_id in self._tables:
            raise BlockError(f"sequence {seq_id} has a table; cached blocks can only begin one")
        revived = sum(1 for block in cached if self.ref_count(block) == 0)
        lacking = self.blocks_needed(seq_id, start, num_tokens) - len(cached) + revived
        if lacking > self.num_free_gpu_blocks:
            return None

        table = self._tables.get(seq_id)
        if table is None:
            table = self._new_table(cached, len(token_ids) if prompt_len is None else prompt_len)
        copies = self._copy_on_write(table, start)
        for block in cached:
            self.gpu.touch(block)
            table.blocks.append(block)
        table.num_offered += len(cached)
        while len(table.blocks) < self.num_blocks_for(num_tokens):
            table.blocks.append(self._take_gpu_block())
        self._offer_full_blocks(table, token_ids[:num_tokens], cache_salt)
        self._keep(seq_id, table)
        return copies

    def fork(self, parent_id: int, child_id: int, num_blocks: int | None = None) -> None:
        """Let a new sequence share its parent's first `num_blocks` blocks (all when None)."""
        if child_id in self._tables:
            raise BlockError(f"sequence {child_id} has a table; only a new sequence can be a fork")
        parent = self._tables.get(parent_id, BlockTable([]))
        blocks = parent.blocks[:num_blocks]
        for block in blocks:
            self._pool(parent.device).touch(block)
        num_offered = min(parent.num_offered, len(blocks))
        child = replace(parent, blocks=blocks, num_offered=num_offered)
        self._keep(child_id, child)

    def free(self, seq_id: int) -> None:
        """Give all blocks of a sequence back, the last one first; no-op without a table."""
        table = self._tables.pop(seq_id, BlockTable([]))
        for block in reversed(table.blocks):
            self._pool(table.device).free(block)

    def trim(self, seq_id: int, num_tokens: int) -> None:
        """Give the blocks behind the first num_tokens positions back, the last one first.

        They hold nothing that anybody will look for, so they are the next to be handed out: before
        any block whose content is cached. No-op without a table. Raises BlockError, with nothing
        changed, for a sequence that is swapped out, or that has offered some of these positions to
        the prefix cache.

        >>> manager = BlockManager(4, 9)
        >>> manager.allocate_slots(0, [1, 2, 3], 0, 9), manager.block_table(0)      # 6 guesses
        ([], [8, 7, 6])
        >>> manager.trim(0, 4), manager.block_table(0), manager.gpu.free_blocks[-2:]
        (None, [8], [6, 7])
        """
        if self.device(seq_id) == "cpu":
            raise BlockError(f"sequence {seq_id} is swapped out; swap it in before it is trimmed")
        table = self._tables.get(seq_id, BlockTable([]))
        if num_tokens < table.num_offered * self.block_size:
            raise BlockError(
                f"sequence {seq_id} cannot be trimmed to {num_tokens} tokens: it has offered "
                f"{table.num_offered} blocks of {self.block_size} to the prefix cache"
            )
        while len(table.blocks) > self.num_blocks_for(num_tokens):
            self.gpu.free(table.blocks.pop(), is_next=True)
        if not table.blocks:
            self._tables.pop(seq_id, None)

    def offer(self, seq_id: int, token_ids: Sequence[Content], cache_salt: Salt = None) -> None:
        """Offer the blocks that these tokens fill to the prefix cache; no-op without a table.

        `allocate_slots` does so for the tokens that are known to it. This is for tokens that turned
        out right after they had been computed.
        """
        if seq_id in self._tables:
            self._offer_full_blocks(self._tables[seq_id], token_ids, cache_salt)

    def reset_prefix_cache(self) -> bool:
        """Forget all cached content; False, and nothing done, if a GPU block is in use."""
        if self.num_free_gpu_blocks < self.num_gpu_blocks:
            return False
        self.prefix_cache.clear()
        return True

    def can_swap_out(self, seq_ids: Sequence[int]) -> bool:
        """Do the distinct blocks of these sequences fit into the free CPU blocks?"""
        blocks = self._distinct_blocks(seq_ids, "gpu")
        return blocks is not None and len(blocks) <= self.num_free_cpu_blocks

    def swap_out(self, seq_ids: Sequence[int]) -> list[BlockPair]:
        """Move these sequences to the CPU; the pairs (gpu block, cpu block) are to be copied.

        A block they share moves once and is shared there. Raises OutOfBlocksError, with nothing
        changed, when `can_swap_out` says no.
        """
        if not self.can_swap_out(seq_ids):
            raise OutOfBlocksError(
                f"cannot swap out sequences {list(seq_ids)}: they are not on the GPU, or have more "
                f"blocks than the {self.num_free_cpu_blocks} free CPU blocks; recompute them"
            )
        return self._move(seq_ids, "cpu", self.cpu.allocate)

    def can_swap_in(self, seq_ids: Sequence[int], extra: int = 0) -> bool:
        """Would these sequences, and `extra` blocks for their next tokens, leave the watermark?"""
        blocks = self._distinct_blocks(seq_ids, "cpu")
        if blocks is None:
            return False
        return self.num_free_gpu_blocks - (len(blocks) + extra) >= self.watermark_blocks

    def swap_in(self, seq_ids: Sequence[int]) -> list[BlockPair]:
        """Move these sequences back to the GPU: pairs (cpu block, gpu block) to be copied.

        Raises OutOfBlocksError, with nothing changed, when `can_swap_in` says no.
        """
        if not self.can_swap_in(seq_ids):
            raise OutOfBlocksError(
                f"cannot swap in sequences {list(seq_ids)}: they are not on the CPU, or have more "
                f"blocks than the {self.num_free_gpu_blocks} free GPU blocks less the watermark of "
                f"{self.watermark_blocks}; wait for others to finish"
            )
        return self._move(seq_ids, "gpu", self._take_gpu_block)

    def _move(
        self, seq_ids: Sequence[int], target: Device, take: Callable[[], int]
    ) -> list[BlockPair]:
        moved: dict[int, int] = {}
        for seq_id in seq_ids:
            for block in self.block_table(seq_id):
                if block in moved:
                    self._pool(target).touch(moved[block])
                else:
                    moved[block] = take()
        for seq_id in seq_ids:
            blocks = [moved[block] for block in self.block_table(seq_id)]
            self.free(seq_id)
            self._keep(seq_id, BlockTable(blocks, target, caching=False))
        return list(moved.items())

    def _pool(self, device: Device) -> BlockAllocator:
        return self.gpu if device == "gpu" else self.cpu

    def _new_table(self, cached: Sequence[int], prompt_len: int) -> BlockTable:
        is_own = [self.prefix_cache.is_own(block, i, prompt_len) for i, block in enumerate(cached)]
        return BlockTable([], prompt_len=prompt_len, is_mixed=not all(is_own))

    def _keep(self, seq_id: int, table: BlockTable) -> None:
        """An empty table is no table."""
        if table.blocks:
            self._tables[seq_id] = table

    def _is_shared(self, table: BlockTable, position: int) -> bool:
        """Does the position lie in a block that others hold too?"""
        logical = position // self.block_size
        if logical >= len(table.blocks):
            return False
        return self.ref_count(table.blocks[logical], table.device) > 1

    def _copy_on_write(self, table: BlockTable, start: int) -> list[BlockPair]:
        if not self._is_shared(table, start):
            return []
        logical = start // self.block_size
        old, new = table.blocks[logical], self._take_gpu_block()
        table.blocks[logical] = new
        self.gpu.free(old)
        return [(old, new)]

    def _take_gpu_block(self) -> int:
        """A free block, about to be overwritten: whatever it was cached for is gone."""
        block = self.gpu.allocate()
        self.prefix_cache.evict(block)
        return block

    def _offer_full_blocks(
        self, table: BlockTable, token_ids: Sequence[Content], salt: Salt
    ) -> None:
        """Cache the blocks that these tokens fill, even before they are computed.

        Early is safe: whoever finds such a block in this very step reads it only after the step
        has written it, for in each layer all keys and values are written before any is read.
        """
        if not self.enable_prefix_caching or not table.caching:
            return
        while (table.num_offered + 1) * self.block_size <= len(token_ids):
            end = (table.num_offered + 1) * self.block_size
            self.prefix_cache.offer(
                table.blocks[table.num_offered],
                token_ids[:end],
                salt,
                table.prompt_len,
                is_mixed=table.is_mixed,
            )
            table.num_offered += 1

    def _distinct_blocks(self, seq_ids: Sequence[int], device: Device) -> set[int] | None:
        """The blocks of sequences that are all on this device (or have none), else None."""
        if any(self.device(seq_id) not in (device, None) for seq_id in seq_ids):
            return None
        return {block for seq_id in seq_ids for block in self.block_table(seq_id)}
