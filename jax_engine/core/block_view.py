"""§4.3, what lies where: the read side of the block manager, for workers, schedulers and gauges."""

from collections.abc import Iterable

import numpy as np
from jaxtyping import Int32

from jax_engine.core.block_pool import BlockError, BlockPool
from jax_engine.core.block_table import BlockTable
from jax_engine.core.prefix_cache import PrefixCache


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
