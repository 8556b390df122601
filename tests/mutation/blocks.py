"""Bugs in the block manager, the pools, the tables and the prefix cache."""

from tests.mutation.planting import Mutant, plant

TESTS = (
    "tests/core",
    "tests/properties/test_block_manager_pair.py",
    "tests/properties/test_scheduler_pair.py",
)
FOLDER = "jax_engine/core"

# Of the windowed pool: its window of 5 tokens lies in two blocks of 8 at most.
WINDOW: list[Mutant] = plant(
    f"{FOLDER}/block_manager.py",
    ("tests/properties/test_engine_against_reference.py", "-kwindow"),
    (
        "            table.append(self._take_block())\n",
        "            table.append(self._take_block())\n"
        "            if len(table.ids) > 2:\n                self.gpu.free(table.ids[-3])\n",
        "a block that has left the window is freed, but not forgotten",
    ),
    (
        "            table.append(self._take_block())\n",
        "            table.append(self._take_block())\n"
        "            if len(table.ids) > 1:\n                self.gpu.free(table.ids[-2])\n",
        "a block is freed that is still within the window",
    ),
    (
        "            table.append(self._take_block())\n",
        "            more = len(table.ids) < 2\n"
        "            table.append(self._take_block() if more else table.ids[-2])\n",
        "a table is a ring of two blocks, as published, but not for what reads the cache",
    ),
)

MANAGER: list[Mutant] = plant(
    f"{FOLDER}/block_manager.py",
    TESTS,
    (
        "self.watermark_blocks = int(watermark * num_gpu_blocks)",
        "self.watermark_blocks = int(watermark * num_gpu_blocks) + 1",
        "the watermark is one block too high",
    ),
    (
        "limit = (len(token_ids) - 1) // self.block_size",
        "limit = len(token_ids) // self.block_size",
        "a full hit leaves no token to compute",
    ),
    (
        "return new + self._is_shared(table, start // self.block_size)",
        "return new",
        "the copy of a shared block is not counted",
    ),
    (
        "- len(cached) + self.num_free_among(cached)",
        "- len(cached)",
        "hits that lie in the free queue are not counted as taken",
    ),
    (
        "if need > self.gpu.num_free:",
        "if need >= self.gpu.num_free:",
        "the last free block is never handed out",
    ),
    ("self.gpu.free(old)", "pass", "copy-on-write keeps its reference to the old block"),
    ("return old, new", "return new, old", "source and destination of a copy swapped"),
    ("table.replace(index, new)", "pass", "copy-on-write goes on writing into the shared block"),
    ("pool.share(block)", "pass", "a fork takes no reference"),
    ("parent.room = 0  #", "pass  #", "a parent writes into its last block after a fork, uncopied"),
    (
        "self._pool_of(table).free_all(table.ids)",
        "self._pool_of(table).free_all(table.ids[1:])",
        "free leaks the first block",
    ),
    ("self.tables.pop(seq_id, None)", "self.tables.get(seq_id)", "a freed table stays"),
    ("self.watermark_blocks + extra)", "self.watermark_blocks)", "swap-in without head-room"),
    ("self.watermark_blocks + extra)", "extra)", "swap-in ignores the watermark"),
    (
        "allocate=self._take_block)",
        "allocate=self.gpu.allocate)",
        "swap-in takes blocks that the prefix cache still knows",
    ),
    ("self._cache.evict(block)", "pass", "a block handed out keeps its stale hash"),
    (
        "full = min(num_tokens, len(token_ids)) // self.block_size",
        "full = -(-min(num_tokens, len(token_ids)) // self.block_size)",
        "a partial block is cached",
    ),
    (
        "room -= 1",
        "room -= 0",
        "a block that decoding fills is not cached",
    ),
    ("if self.num_used_gpu_blocks:", "if False:", "the cache is reset while blocks are in use"),
    (
        "if self.enable_prefix_caching and table.registers and full",
        "if self.enable_prefix_caching and full",
        "blocks that were swapped in are cached again",
    ),
    (
        "in range(-(-num_tokens // self.block_size) - len(table.ids))",
        "in range(-(-(num_tokens - 1) // self.block_size) - len(table.ids))",
        "a table grows one token too late",
    ),
    ("self.gpu.share(block)", "pass", "a hit takes no reference"),
)

POOL: list[Mutant] = plant(
    f"{FOLDER}/blocks.py",
    TESTS,
    ("self.refs[block] = 1", "self.refs[block] = 0", "a new block has no reference"),
    (
        "            del self._free[block]",
        "            pass",
        "a block that is hit stays in the free list",
    ),
    ("elif refs == 1:\n", "elif refs == 2:\n", "the gauge of shared blocks counts from three on"),
    (
        "if refs == 1:\n            self._free",
        "if refs <= 2:\n            self._free",
        "a block becomes free while someone refers to it",
    ),
    (
        'after its successors."""\n        for block in reversed(blocks):',
        'after its successors."""\n        for block in blocks:',
        "tables are freed front first",
    ),
    (
        "popitem(last=self._newest_first)",
        "popitem(last=not self._newest_first)",
        "blocks are taken from the wrong end of the free list",
    ),
    ("self._newest_first = not lru", "self._newest_first = True", "most recently used dies first"),
    ("if refs == 0:\n            raise", "if False:\n            raise", "a double free passes"),
    (
        "if not 0 <= block < self.num_blocks",
        "if not block < self.num_blocks",
        "a negative id frees another block",
    ),
)

CACHE: list[Mutant] = plant(
    f"{FOLDER}/prefix_cache.py",
    TESTS,
    (
        "if left.tokens != right.tokens or left.salt != right.salt:",
        "if left.tokens != right.tokens:",
        "different salts match where hashes collide",
    ),
    (
        "if left.tokens != right.tokens or left.salt != right.salt:",
        "if left.salt != right.salt:",
        "different tokens match where hashes collide",
    ),
    (
        "left, right = left.parent, right.parent",
        "return True",
        "different prefixes match where hashes collide",
    ),
    ("self.salt = salt if parent is None else None", "self.salt = None", "salts are ignored"),
    (
        "break\n            _adopt",
        "continue\n            _adopt",
        "the lookup goes on past a miss",
    ),
    ("if present is None:", "if True:", "a duplicate takes over the cached content"),
    (
        "del self._blocks[node], self._prompt_ends[block]",
        "pass",
        "evicted content is still found",
    ),
    (
        "min(prompt_len, (index + 1) * self.block_size)",
        "prompt_len",
        "blocks within two prompts differ, since one prompt was longer",
    ),
    (
        "min(prompt_len, (index + 1) * self.block_size)",
        "min(max(prompt_len - index * self.block_size, 0), self.block_size)",
        "all blocks that were generated are alike, wherever the prompt ended",
    ),
    (
        "tuple(token_ids[start : start + size])",
        "tuple(token_ids[start : start + size - 1])",
        "the last token of a block is not part of its content",
    ),
    ("self._blocks.clear()", "pass", "a reset cache still finds"),
)

SWAPPING: list[Mutant] = plant(
    f"{FOLDER}/blocks.py",
    TESTS,
    (
        "target.share(mapping[block])",
        "mapping[block] = allocate()",
        "a shared block is swapped once for each sharer",
    ),
    ("source.free_all(old)", "pass", "swapping leaks the old blocks"),
    (
        "return len({block for table in tables for block in table.ids})",
        "return sum(len(table.ids) for table in tables)",
        "shared blocks count once for each sharer",
    ),
    (
        "target.num_free - distinct_blocks(tables) >= reserve",
        "target.num_free - distinct_blocks(tables) > reserve",
        "an exact fit counts as too little",
    ),
    (
        "return list(mapping.items())",
        "return [(new, old) for old, new in mapping.items()]",
        "source and destination of a swap swapped",
    ),
)

TABLE: list[Mutant] = plant(
    f"{FOLDER}/blocks.py",
    TESTS,
    (
        "self.num_tried = 0\n        self.registers = False",
        "self.num_tried = 0",
        "swapped tables register",
    ),
    (
        "self.num_tried = 0\n        self.registers = False",
        "self.registers = False",
        "swapped tables count what they offered before",
    ),
    ("self.row[index] = block", "pass", "the worker's row keeps the block before the copy"),
    (
        "child.chain = self.chain[: child.num_tried]",
        "child.chain = self.chain[:num_blocks]",
        "a fork that leaves the prompt is cached as the prompt",
    ),
    (
        "child.num_tried = min(self.num_tried, num_blocks)",
        "child.num_tried = self.num_tried",
        "a shorter fork believes that it has registered later blocks",
    ),
    ("child.registers = self.registers", "pass", "a fork of a swapped table registers"),
    ("child.device = self.device", "pass", "a fork of a swapped-out table is thought on the GPU"),
)

MUTANTS = [*MANAGER, *WINDOW, *POOL, *CACHE, *SWAPPING, *TABLE]
