"""The NumPy oracle's block manager and prefix cache as targets."""

from importlib import import_module
from typing import Any

from paged_conformance.properties import Refused


class Blocks:
    """A block manager of this project: the oracle's, or the engine's, whose calls are alike."""

    def __init__(self, manager: Any, errors: tuple[type[Exception], ...]) -> None:
        self.manager = manager
        self.errors = errors
        self.tokens: dict[int, list[int]] = {}
        self.end: dict[int, int] = {}
        self.salts: dict[int, Any] = {}
        self.guesses: dict[int, list[int]] = {}

    def capacity(self) -> int:
        return int(self.manager.num_gpu_blocks)

    def num_free(self) -> int:
        return int(self.manager.num_free_gpu_blocks)

    def num_free_swap(self) -> int:
        return int(self.manager.num_free_cpu_blocks)

    def table(self, *, seq: int) -> list[int]:
        return list(self.manager.block_table(seq))

    def match(self, *, tokens: list[int], salt: str | None, adapter: str | None) -> int:
        found = self.manager.cached_blocks(tokens, (salt, adapter))
        return len(found) * int(self.manager.block_size)

    def open(
        self, *, seq: int, tokens: list[int], chunk: int, salt: str | None, adapter: str | None
    ) -> dict[str, int]:
        key = (salt, adapter)
        cached = self.manager.cached_blocks(tokens, key)
        hit = len(cached) * self.manager.block_size
        end = min(len(tokens), hit + chunk)
        need = (
            self.manager.num_blocks_for(end)
            if hasattr(self.manager, "num_blocks_for")
            else -(-end // self.manager.block_size)
        )
        lacking = need + self.manager.watermark_blocks - self.num_free()
        if lacking > 0 and lacking > sum(self.manager.ref_count(block) > 0 for block in cached):
            raise Refused("fewer blocks than it needs above the watermark")
        if self._allocate(seq, tokens, hit, end, key, cached=cached) is None:
            raise Refused("too few blocks")
        self.tokens[seq], self.end[seq], self.salts[seq] = list(tokens), end, key
        return {"hit": hit}

    def extend(
        self, *, seq: int, tokens: list[int], chunk: int, guesses: list[int]
    ) -> list[list[int]]:
        known = self.tokens[seq] + tokens
        end = self.end[seq] + chunk + len(guesses)
        copies = self._allocate(seq, known, self.end[seq], end, self.salts[seq])
        if copies is None:
            raise Refused("too few blocks")
        self.tokens[seq], self.guesses[seq] = known, list(guesses)
        self.end[seq] += chunk
        return [list(pair) for pair in copies]

    def _allocate(
        self, seq: int, tokens: list[int], start: int, end: int, key: Any, **more: Any
    ) -> list[tuple[int, int]] | None:
        try:
            copies: list[tuple[int, int]] | None = self.manager.allocate_slots(
                seq, tokens, start, end, cache_salt=key, **more
            )
        except self.errors as error:
            raise Refused(str(error)) from error
        return copies

    def computed(self, *, seqs: list[int], accepted: list[int]) -> None:
        for seq, count in zip(seqs, accepted, strict=True):
            guesses = self.guesses.pop(seq, [])
            if guesses:
                self.tokens[seq] += guesses[:count]
                self.end[seq] += count
                self.manager.trim(seq, self.end[seq])

    def free(self, *, seq: int) -> None:
        if seq in self.tokens:
            self._enter(seq)
        self.manager.free(seq)

    def _enter(self, seq: int) -> None:
        """Enters blocks that accepted guesses have filled, as the schedulers do when one ends."""
        tokens, end, key = self.tokens[seq], self.end[seq], self.salts[seq]
        if hasattr(self.manager, "register"):
            self.manager.register(seq, tokens, end, key)
        else:
            self.manager.offer(seq, tokens[:end], key)

    def fork(self, *, parent: int, child: int) -> list[list[int]]:
        try:
            self.manager.fork(parent, child)
        except self.errors as error:
            raise Refused(str(error)) from error
        for kept in (self.tokens, self.end, self.salts):
            kept[child] = list(kept[parent]) if kept is self.tokens else kept[parent]  # type: ignore
        return []

    def swap_out(self, *, seqs: list[int]) -> list[list[int]]:
        return self._swap(self.manager.swap_out, seqs)

    def swap_in(self, *, seqs: list[int]) -> list[list[int]]:
        return self._swap(self.manager.swap_in, seqs)

    def _swap(self, move: Any, seqs: list[int]) -> list[list[int]]:
        try:
            return [list(pair) for pair in move(seqs)]
        except self.errors as error:
            raise Refused(str(error)) from error

    def reset(self) -> bool:
        return bool(self.manager.reset_prefix_cache())


WITHOUT_CACHE = ["chunks", "several", "guesses", "fork", "swap", "strict"]
CACHE = ["prefix_cache", "keeps", "salts", "adapters", "match", "reset", "exact_hits", "lru"]


class Make:
    """Makes managers of a class of this project.

    Args:
        module: Has `BlockManager` and `BlockError`. It is imported by the first call.
        cache: Whether they have a prefix cache. Without one free blocks are a stack, and there is a
            watermark of a block.
    """

    def __init__(self, module: str, *, cache: bool = True) -> None:
        self.module, self.cache = module, cache
        self.capabilities = [*WITHOUT_CACHE, *(CACHE if cache else [])]
        self.sizes = {} if cache else {"watermark_blocks": 1}

    def __call__(self, *, block_size: int, num_blocks: int, num_swap_blocks: int) -> Blocks:
        found = import_module(self.module)
        watermark = 0.0 if self.cache else 1 / num_blocks
        manager = found.BlockManager(
            block_size,
            num_blocks,
            num_swap_blocks,
            watermark=watermark,
            enable_prefix_caching=self.cache,
        )
        return Blocks(manager, (found.BlockError,))


make = Make("reference.blocks")
make_without_cache = Make("reference.blocks", cache=False)
