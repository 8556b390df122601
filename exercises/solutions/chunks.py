"""Blocks are counted up to a chunk's end, less those that were begun before its start."""

from collections.abc import Sequence

from exercises.chunks import Answer, Chunk


def cut(
    length: int, cached: int, budgets: Sequence[int], block_size: int, most: int = 0
) -> list[Chunk]:
    chunks: list[Chunk] = []
    start = cached
    for budget in budgets:
        end = start + min(length - start, budget, most or length)
        if end > start:
            new_blocks = -(-end // block_size) - -(-start // block_size)
            chunks.append(Chunk(start, end, new_blocks, draws=end == length))
        start = end
    return chunks


def slots(chunk: Chunk, table: Sequence[int], block_size: int) -> list[int]:
    positions = range(chunk.start, chunk.end)
    return [table[p // block_size] * block_size + p % block_size for p in positions]


ANSWER: Answer = (cut, slots)
