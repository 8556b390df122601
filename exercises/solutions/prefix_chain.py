"""Each hash stands for a whole prefix, so the look-up stops at the first one that is not known."""

from collections.abc import Collection, Sequence

from exercises.prefix_chain import Answer, hash_of


def chain(tokens: Sequence[int], block_size: int) -> list[int]:
    hashes: list[int] = []
    for end in range(block_size, len(tokens) + 1, block_size):
        before = hashes[-1] if hashes else None
        hashes.append(hash_of(before, tokens[end - block_size : end]))
    return hashes


def num_known(tokens: Sequence[int], block_size: int, known: Collection[int]) -> int:
    count = 0
    for one in chain(tokens[:-1], block_size):
        if one not in known:
            break
        count += block_size
    return count


ANSWER: Answer = (chain, num_known)
