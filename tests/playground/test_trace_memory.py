"""Words move through a traced run's memory as keys do through the KV cache."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from playground.trace_memory import WordMemory
from reference.kv_cache import KVCache

Pairs = list[tuple[int, int]]
BLOCKS, SIZE, HOST = 4, 2, 3
gpu, cpu = st.integers(0, BLOCKS - 1), st.integers(0, HOST - 1)


def pairs(
    source: st.SearchStrategy[int], target: st.SearchStrategy[int]
) -> st.SearchStrategy[Pairs]:
    return st.lists(st.tuples(source, target), max_size=3)


def same(memory: WordMemory, cache: KVCache) -> None:
    for words, keys in ((memory.gpu, cache.gpu), (memory.cpu, cache.cpu)):
        held = [[None if np.isnan(k) else str(int(k)) for k in b] for b in keys[0, 0, :, 0, :, 0]]
        assert words == held


@given(st.lists(st.tuples(pairs(cpu, gpu), pairs(gpu, cpu), pairs(gpu, gpu), gpu), max_size=8))
def test_the_same_writes_and_moves_leave_the_same_tokens(
    steps: list[tuple[Pairs, Pairs, Pairs, int]],
) -> None:
    memory = WordMemory(num_blocks=BLOCKS, block_size=SIZE, num_cpu_blocks=HOST)
    cache = KVCache(
        num_layers=1, num_blocks=BLOCKS, num_kv_heads=1, block_size=SIZE, head_dim=1,
        num_cpu_blocks=HOST,
    )  # fmt: skip
    for token, (swap_in, swap_out, copies, block) in enumerate(steps):
        memory.begin_step(swap_in, swap_out, copies)
        cache.begin_step(swap_in, swap_out, copies)
        memory.write(block, token % SIZE, str(token))
        key = np.full((1, 1, 1), float(token), dtype=np.float32)
        cache.write(0, key, key, np.array([block * SIZE + token % SIZE]))
        same(memory, cache)
