"""Moves blocks of prompts between the device and the folder `kv_cache_dir`, between two steps.

A block is handed over when the step that fills it was launched, and before the next one is: so it
is read before another may overwrite it, even one that was evicted meanwhile. The device reads it
behind the step, and a thread of the store waits for that.

Blocks that the scheduler has found in the store are filled before the step that goes on behind
them. At the start the ones used last are filled, while there is time: the first prompt then finds
them in the prefix cache, as if the engine had never ended.
"""

import logging
import os
import tempfile
import time
from itertools import batched

from jax_engine.checks import shown
from jax_engine.config.engine_config import EngineConfig
from jax_engine.core.block_manager import BlockManager
from jax_engine.core.prefix_cache import Node
from jax_engine.core.scheduler_output import SchedulerOutput
from jax_engine.errors import ConfigError
from jax_engine.kv_store.block_file import BlockForm
from jax_engine.kv_store.folder_store import BLOCKS_AT_ONCE, FolderStore
from jax_engine.step import BlockMover

logger = logging.getLogger("jax_engine")
START_BYTES = 512 << 20  # of blocks that are filled at the start: half a second or so


class StoredBlocks:
    """What an engine's pipeline does for a store.

    Attributes:
        store: Where blocks are kept.
    """

    def __init__(self, store: FolderStore, blocks: BlockManager, mover: BlockMover) -> None:
        self.store, self._blocks, self._mover = store, blocks, mover
        self._computed: list[tuple[Node, int]] = []
        blocks.keep_in(store)
        self._fill()

    def before_step(self, plan: SchedulerOutput) -> None:
        """Call before a step is launched."""
        self.flush()
        for blocks, contents in plan.blocks_to_load:
            self._mover.write_blocks(blocks, contents)

    def after_step(self) -> None:
        """Call when a step was launched, before the next one is planned."""
        self._computed = self._blocks.take_prompts()

    def flush(self) -> None:
        """Hands over what the steps that were launched have computed."""
        if self._computed:
            nodes = [node for node, _ in self._computed]
            parts = self._mover.read_blocks([block for _, block in self._computed])
            self._computed = []
            self.store.store(nodes, parts)

    def clear(self) -> None:
        """Forgets all blocks that were not handed over: a step has failed."""
        self._computed = []
        self._blocks.take_prompts()
        self.store.forget_read()

    def _fill(self) -> None:
        """Fills free blocks with what was used last."""
        started, blocks = time.perf_counter(), self._blocks
        most = min(START_BYTES // self._mover.block_bytes, blocks.num_free_gpu_blocks)
        count = 0
        for group in batched(self.store.recent(most, blocks.hash_fn), BLOCKS_AT_ONCE):
            contents = self.store.read([node for node, _ in group])
            found = sum(len(part) for part in contents)
            entered = blocks.enter(group[:found])
            if not entered:
                continue
            rows = contents[0][[place for place, _ in entered]]
            self._mover.write_blocks([block for _, block in entered], [rows])
            count += len(entered)
        if count:
            seconds = time.perf_counter() - started
            logger.info("%d KV blocks were read from kv_cache_dir in %.2f s", count, seconds)


def stored_blocks(
    store: FolderStore | None, mover: BlockMover | None, blocks: BlockManager
) -> StoredBlocks | None:
    """What moves an engine's blocks, if it has a store."""
    return None if store is None or mover is None else StoredBlocks(store, blocks, mover)


def check_folder(path: str) -> None:
    """Makes the folder if need be, and writes into it.

    Raises:
        ConfigError: It is none, or cannot be written.
    """
    try:
        os.makedirs(path, exist_ok=True)
        tempfile.TemporaryFile(dir=path).close()
    except (OSError, ValueError) as error:  # ValueError: a null character
        raise ConfigError(
            f"kv_cache_dir must be a folder that can be written, got {shown(path)}: {error}"
        ) from None


def open_store(config: EngineConfig, mover: BlockMover) -> FolderStore:
    """The store of an engine whose weights are loaded."""
    assert config.kv_cache_dir is not None
    form = BlockForm(mover.fingerprint(), config.block_size, mover.block_bytes)
    return FolderStore(os.path.abspath(config.kv_cache_dir), config.kv_cache_dir_bytes, form)
