"""Which of several engines takes a request: the one that has its tokens computed first.

What stands before a request's first token on an engine is counted in tokens of prompts:

    the request's own tokens, less those that the engine should have in its prefix cache,
    and those of requests there that have no output yet,
    and as many as `RUNNING_TOKENS` for each request there, which slows every step a little.

So requests that share a prompt gather on one engine until its queue costs more than computing the
prompt once more on another one. The router asks no engine: it knows what it has sent where.
"""

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

RUNNING_TOKENS = 64


class KnownBlocks:
    """The blocks of prompts that an engine should have in its prefix cache, as their sender knows.

    Blocks that are unused for longest come first. A block's name stands for its content and all
    before it. So a block counts only behind those that precede it in its prompt.

    Args:
        most: How many blocks are kept.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._names: OrderedDict[Hashable, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: Hashable) -> bool:
        return name in self._names

    def first(self, blocks: Sequence[Hashable]) -> int:
        """How many of a prompt's first blocks are here."""
        for count, one in enumerate(blocks):
            if one not in self._names:
                return count
        return len(blocks)

    def add(self, blocks: Sequence[Hashable]) -> None:
        """The engine will have these blocks of a prompt, and no longer those that are too many.

        Blocks at a prompt's end are given up before those in front of them, without which they
        could not be found.
        """
        for one in reversed(blocks):
            self._names[one] = None
            self._names.move_to_end(one)
        while len(self._names) > self._most:
            self._names.popitem(last=False)

    def clear(self) -> None:
        """The engine has emptied its prefix cache."""
        self._names.clear()


@dataclass(slots=True)
class _Load:
    """What one engine has been sent.

    Attributes:
        pending: For each open request without an output, the tokens to compute for it.
        num_open: Requests that have not ended.
        blocks: The hashes of prompts' blocks that it should have cached.
    """

    blocks: KnownBlocks
    pending: dict[str, int] = field(default_factory=dict)
    num_open: int = 0

    @property
    def tokens(self) -> int:
        return sum(self.pending.values()) + RUNNING_TOKENS * self.num_open


class RequestRouter:
    """Chooses among engines that are alike.

    Args:
        num_engines: At least 1; they are numbered from 0.
        block_size: Tokens of a block of their prefix caches.
        num_blocks: Blocks that each of them has; 0: they have no prefix cache.
    """

    def __init__(self, num_engines: int, block_size: int, num_blocks: int) -> None:
        self._block_size, self._num_blocks = block_size, num_blocks
        self._loads = [_Load(KnownBlocks(num_blocks)) for _ in range(num_engines)]
        self._engine_of: dict[str, int] = {}

    def choose(self, name: str, token_ids: Sequence[int], salt: Hashable) -> int:
        """The number of the engine that takes a request; of equal ones, the first.

        Args:
            name: No open request has it.
            salt: Prompts of another salt share no block with this one.
        """
        blocks = self._hashes(token_ids, salt)
        left = [len(token_ids) - self._block_size * one.blocks.first(blocks) for one in self._loads]
        costs = [load.tokens + own for load, own in zip(self._loads, left, strict=True)]
        engine = costs.index(min(costs))
        load = self._loads[engine]
        load.pending[name] = left[engine]
        load.num_open += 1
        self._engine_of[name] = engine
        load.blocks.add(blocks)
        return engine

    def has_output(self, name: str) -> None:
        """A request's prompt is computed. Calls after the first change nothing."""
        self._loads[self._engine_of[name]].pending.pop(name, None)

    def end(self, name: str) -> None:
        """A request has ended; no-op if that was said before."""
        engine = self._engine_of.pop(name, None)
        if engine is None:
            return
        load = self._loads[engine]
        load.pending.pop(name, None)
        load.num_open -= 1

    def forget_prefixes(self) -> None:
        """The engines have emptied their prefix caches."""
        for load in self._loads:
            load.blocks.clear()

    def _hashes(self, token_ids: Sequence[int], salt: Hashable) -> list[int]:
        """One for each full block: its tokens and all before it count, as in a prefix cache."""
        size, found, before = self._block_size, list[int](), hash(salt)
        for start in range(0, len(token_ids) - size + 1 if self._num_blocks else 0, size):
            before = hash((before, *token_ids[start : start + size]))
            found.append(before)
        return found
