"""Prefix caching: which block already holds the keys and values of these tokens?

(Paper 4.4, "Shared prefix", made automatic: vLLM's V1 design of block hashes.)

The key and value of a token depend on that token and on everything before it, and on nothing else.
So a *full* block is determined by the whole token prefix up to its end, and a later request that
begins with the same tokens may simply use the block. Keeping the prefixes as keys would do; to make
the look-up cheap, each block is known by a hash of (hash of the block before it, its own tokens),
a chain that stands for the whole prefix:

    [A gentle breeze stirred] [the leaves as children] [laughed in the distance]
     H0 = hash(None, tokens)   H1 = hash(H0, tokens)    H2 = hash(H1, tokens)

Two prefixes may have one hash. Here a hash only says where to look: the tokens themselves are kept
and compared, so that even a hash function that maps everything to 7 gives no wrong hit. A `salt`
at the root of the chain keeps tenants apart who must not learn of each other's prompts, and
requests that are computed with different adapters. A prompt may be given as vectors in place of
tokens. The bytes of each then stand where its token would, and no token equals them.

"And on nothing else" is true of the numbers, not of their last bits: a prompt's positions and
generated ones may be added up in different orders. A new request does not mind. A sequence that
lost its blocks does: it wants back what it had. So each block remembers which of the positions up
to its end were a *prompt's* when it was computed. A caller that gives its prompt's length gets only
blocks that would come out of its own computation.

A block that nobody holds keeps its content, and stays in the cache, until the allocator hands it
out again. Freed blocks join the queue's tail, the last block of a sequence first (a longer prefix
is less likely to be wanted again), so that eviction takes the least recently used one.

>>> cache = PrefixCache(block_size=4)
>>> cache.offer(5, list(b"ABCD"))
True
>>> cache.offer(9, list(b"ABCDEFGH"))
True
>>> cache.offer(3, list(b"ABCD"))                    # block 5 holds that already
False
>>> cache.lookup(list(b"ABCDEFGHIJ"))
[5, 9]
>>> cache.lookup(list(b"ABCDEFGH"))                  # one token must be left to compute
[5]
>>> cache.lookup(list(b"ABXDEFGHIJ")), cache.lookup(list(b"ABCDEFGHIJ"), salt="tenant 2")
([], [])
>>> cache.lookup(list(b"ABCDEFGHIJ"), prompt_len=8)   # as computed: all of it a prompt
[5, 9]
>>> cache.lookup(list(b"ABCDEFGHIJ"), prompt_len=7)   # its H was generated, not read
[5]
>>> cache.evict(5)
>>> cache.lookup(list(b"ABCDEFGHIJ")), len(cache)    # 9 is there, but no chain leads to it
([], 1)
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

Salt = Hashable | None
Content = int | bytes
"""What a position holds: a token, or the bytes of a vector that a prompt has in its place."""
HashFunction = Callable[[int | None, tuple[Content, ...], Salt], int]


def hash_block(parent: int | None, tokens: tuple[Content, ...], salt: Salt) -> int:
    """The hash of a full block, given the hash of the block before it (None: the first block)."""
    return hash((parent, tokens, salt))


@dataclass(frozen=True)
class CachedBlock:
    """What a cached block holds: keys and values of the tail of `prefix`, block_size tokens."""

    block: int
    hash: int
    prefix: tuple[Content, ...]
    salt: Salt
    num_prompt_tokens: int | None
    """How many tokens of `prefix` were in the prompt of the sequence that computed it; None if that
    had begun with blocks that are not what it would have computed itself."""


class PrefixCache:
    """From content to physical block, for full blocks only; at most one block per content."""

    def __init__(self, block_size: int, hash_fn: HashFunction = hash_block) -> None:
        self.block_size = block_size
        self.hash_fn = hash_fn
        self._buckets: dict[int, list[CachedBlock]] = {}
        self._by_block: dict[int, CachedBlock] = {}

    def __len__(self) -> int:
        return len(self._by_block)

    @property
    def entries(self) -> list[CachedBlock]:
        return list(self._by_block.values())

    def lookup(
        self, token_ids: Sequence[Content], salt: Salt = None, prompt_len: int | None = None
    ) -> list[int]:
        """The blocks of the longest cached prefix of `token_ids`, front to back.

        At most (len - 1) // B blocks: the last token has to be computed, or there would be no
        logits to sample from, and a block is computed whole. With `prompt_len`, the prefix ends
        before the first block of a sequence whose prompt had ended elsewhere. Changes nothing.
        """
        blocks: list[int] = []
        parent = None
        for i in range((len(token_ids) - 1) // self.block_size):
            end = (i + 1) * self.block_size
            parent = self._hash_next(parent, token_ids, end, salt)
            found = self._find(parent, tuple(token_ids[:end]), salt)
            if found is None:
                break
            if prompt_len is not None and not self.is_own(found.block, i, prompt_len):
                break
            blocks.append(found.block)
        return blocks

    def is_own(self, block: int, index: int, prompt_len: int) -> bool:
        """Is a cached block what a prompt of that length would have as its logical block `index`?

        The blocks before it are taken to be its own.
        """
        end = (index + 1) * self.block_size
        return self._by_block[block].num_prompt_tokens == min(prompt_len, end)

    def offer(
        self,
        block: int,
        prefix: Sequence[Content],
        salt: Salt = None,
        prompt_len: int | None = None,
        *,
        is_mixed: bool = False,
    ) -> bool:
        """Cache `block` as the holder of the last B tokens of `prefix` (a multiple of B tokens).

        `prompt_len` is the sequence's (None: all of `prefix`); `is_mixed` says that it began with
        blocks which are not its own.
        False, and nothing changed, when another block holds that content: tables are append-only,
        so the duplicate stays with its sequence, unknown to the cache.
        """
        chain = None
        for end in range(self.block_size, len(prefix) + 1, self.block_size):
            chain = self._hash_next(chain, prefix, end, salt)
        assert chain is not None, "a prefix of no full block"
        if self._find(chain, tuple(prefix), salt) is not None:
            return False
        in_prompt = None
        if not is_mixed:
            in_prompt = len(prefix if prompt_len is None else prefix[:prompt_len])
        entry = CachedBlock(block, chain, tuple(prefix), salt, in_prompt)
        self._buckets.setdefault(chain, []).append(entry)
        self._by_block[block] = entry
        return True

    def evict(self, block: int) -> None:
        """Forget what `block` holds, because it is about to be overwritten; no-op if unknown."""
        entry = self._by_block.pop(block, None)
        if entry is not None:
            self._buckets[entry.hash].remove(entry)

    def clear(self) -> None:
        """Forget everything."""
        self._buckets.clear()
        self._by_block.clear()

    def _hash_next(
        self, parent: int | None, token_ids: Sequence[Content], end: int, salt: Salt
    ) -> int:
        tokens = tuple(token_ids[end - self.block_size : end])
        return self.hash_fn(parent, tokens, salt if parent is None else None)

    def _find(self, chain: int, prefix: tuple[Content, ...], salt: Salt) -> CachedBlock | None:
        """Equal hashes are only candidates: compare the tokens themselves."""
        for entry in self._buckets.get(chain, []):
            if entry.prefix == prefix and entry.salt == salt:
                return entry
        return None
