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
    ("            table.append(self._take_block())\n",
     "            table.append(self._take_block())\n            if len(table.ids) > 2:\n"
     "                self.gpu.free(table.ids[-3])\n",
     "a block that has left the window is freed, but not forgotten"),
    ("            table.append(self._take_block())\n",
     "            table.append(self._take_block())\n            if len(table.ids) > 1:\n"
     "                self.gpu.free(table.ids[-2])\n",
     "a block is freed that is still within the window"),
    ("            table.append(self._take_block())\n",
     "            more = len(table.ids) < 2\n"
     "            table.append(self._take_block() if more else table.ids[-2])\n",
     "a table is a ring of two blocks, as published, but not for what reads the cache"),
)  # fmt: skip

# The tutorial plants the first twelve (docs/tutorial/the-oracle.md).
MANAGER: list[Mutant] = plant(f"{FOLDER}/block_manager.py", TESTS,
    ("self.watermark_blocks = int(watermark * num_gpu_blocks)",
     "self.watermark_blocks = int(watermark * num_gpu_blocks) + 1",
     "the watermark is one block too high"),
    ("limit = (len(token_ids) - 1) // self.block_size",
     "limit = len(token_ids) // self.block_size", "a full hit leaves no token to compute"),
    ("return new + self._is_shared(table, start // self.block_size)", "return new",
     "the copy of a shared block is not counted"),
    ("- len(cached) + self.num_free_among(cached)", "- len(cached)",
     "hits that lie in the free queue are not counted as taken"),
    ("if need > self.gpu.num_free:", "if need >= self.gpu.num_free:",
     "the last free block is never handed out"),
    ("self.gpu.free(old)", "pass", "copy-on-write keeps its reference to the old block"),
    ("return old, new", "return new, old", "source and destination of a copy swapped"),
    ("table.replace(index, new)", "pass", "copy-on-write goes on writing into the shared block"),
    ("pool.share(block)", "pass", "a fork takes no reference"),
    ("parent.room = 0  #", "pass  #", "a parent writes into its last block after a fork, uncopied"),
    ("self._pool_of(table).free_all(table.ids)", "self._pool_of(table).free_all(table.ids[1:])",
     "free leaks the first block"),
    ("self.tables.pop(seq_id, None)", "self.tables.get(seq_id)", "a freed table stays"),
    ("allocate=self._take_block)", "allocate=self.gpu.allocate)",
     "swap-in takes blocks that the prefix cache still knows"),
    ("full = min(num_tokens, len(token_ids)) // self.block_size",
     "full = -(-min(num_tokens, len(token_ids)) // self.block_size)", "a partial block is cached"),
    ("in range(-(-num_tokens // self.block_size) - len(table.ids))",
     "in range(-(-(num_tokens - 1) // self.block_size) - len(table.ids))",
     "a table grows one token too late"),
)  # fmt: skip

POOL: list[Mutant] = plant(f"{FOLDER}/blocks.py", TESTS,
    ("if refs == 1:\n            self._free", "if refs <= 2:\n            self._free",
     "a block becomes free while someone refers to it"),
    ("popitem(last=self._newest_first)", "popitem(last=not self._newest_first)",
     "blocks are taken from the wrong end of the free list"),
)  # fmt: skip

CACHE: list[Mutant] = plant(f"{FOLDER}/prefix_cache.py", TESTS,
    ("left, right = left.parent, right.parent", "return True",
     "different prefixes match where hashes collide"),
    ("break\n            _adopt", "continue\n            _adopt", "the lookup goes on past a miss"),
    ("min(prompt_len, (index + 1) * self.block_size)",
     "min(max(prompt_len - index * self.block_size, 0), self.block_size)",
     "all blocks that were generated are alike, wherever the prompt ended"),
)  # fmt: skip

SWAPPING: list[Mutant] = plant(f"{FOLDER}/blocks.py", TESTS,
    ("target.share(mapping[block])", "mapping[block] = allocate()",
     "a shared block is swapped once for each sharer"),
    ("return len({block for table in tables for block in table.ids})",
     "return sum(len(table.ids) for table in tables)", "shared blocks count once for each sharer"),
    ("return list(mapping.items())", "return [(new, old) for old, new in mapping.items()]",
     "source and destination of a swap swapped"),
)  # fmt: skip

TABLE: list[Mutant] = plant(f"{FOLDER}/blocks.py", TESTS,
    ("child.chain = self.chain[: child.num_tried]", "child.chain = self.chain[:num_blocks]",
     "a fork that leaves the prompt is cached as the prompt"),
)  # fmt: skip

# A rule makes these two as well; its few examples miss them, more examples of a property do not.
RARE: list[Mutant] = [
    *plant(f"{FOLDER}/adapter_slots.py", ("tests/core/test_adapter_slots.py",),
        ("        self._idle.pop(digest, None)\n", "", "a slot in use is taken"),
    ),
    *plant(f"{FOLDER}/blocks.py", ("tests/properties/test_block_manager_pair.py",),
        ("                self._free.move_to_end(block, last=self._newest_first)\n",
         "                pass\n", "wrong drafts push cached blocks out"),
    ),
]  # fmt: skip

MUTANTS = [*RARE, *MANAGER, *WINDOW, *POOL, *CACHE, *SWAPPING, *TABLE]
