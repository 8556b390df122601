"""I13: what the caches of a simulated engine hold, on the device and in the host's swap space."""

from typing import Any

import numpy as np

from jax_engine import LLMEngine
from tests.simulation.stub_worker import StubWorker, contents
from tests.support.integrity import cached_contents


def check_stub_contents(engine: LLMEngine, worker: StubWorker, *, cached: bool) -> int:
    """Each sequence's computed tokens lie where its table says, and nothing else.

    Args:
        cached: Whether to look at the blocks of the prefix cache as well.

    Returns:
        How many blocks were looked at in the host's memory.
    """
    blocks, cache, in_host = engine.scheduler.block_manager, worker.kv_cache, 0
    for group in [*engine.scheduler.running, *engine.scheduler.swapped]:
        for seq in group.unfinished():
            table = blocks.block_table(seq.seq_id)
            tokens = seq.token_ids[: seq.num_computed_tokens]
            if not table or not tokens:
                continue
            if blocks.device(seq.seq_id) == "cpu":
                found: Any = cache.host.read(table)
                in_host += len(table)
            else:
                found = cache.array[table]
            _same(found.reshape(-1)[: len(tokens)], tokens, group.request_id)
    if cached:
        for block, (tokens, _) in cached_contents(blocks).items():
            first = len(tokens) - blocks.block_size
            wanted = contents(list(tokens))[first:]
            assert (cache.array[block] == wanted).all(), f"I13: cached block {block}"
    return in_host


def _same(found: np.ndarray, tokens: list[int], request_id: str) -> None:
    wanted = contents(tokens)
    assert (found == wanted).all(), f"I13: {request_id} has {found} for {wanted}"
