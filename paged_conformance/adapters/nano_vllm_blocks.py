"""nano-vllm's block manager as a target, from its first versions to those with chunked prefills.

`PYTHONPATH` has the folder of the package `nanovllm`. Its scheduler's part is done here: how many
tokens a step computes, and what a sequence remembers of it.
"""

import inspect
from typing import Any

from paged_conformance.adapters.foreign import Digest, bare_package, stand_in
from paged_conformance.properties import Refused


class NanoBlocks:
    """A `BlockManager` of nano-vllm, and its `Sequence` of each sequence."""

    def __init__(self, block_size: int, num_blocks: int) -> None:
        modules = _modules()
        self.new_sequence = modules[1].Sequence
        if hasattr(self.new_sequence, "set_block_size"):
            self.new_sequence.set_block_size(block_size)
        else:
            self.new_sequence.block_size = block_size
        self.manager = modules[0].BlockManager(num_blocks, block_size)
        self.seqs: dict[int, Any] = {}
        self.num_blocks = num_blocks
        self.block_size = block_size

    def capacity(self) -> int:
        return self.num_blocks

    def num_free(self) -> int:
        return len(self.manager.free_block_ids)

    def table(self, *, seq: int) -> list[int]:
        return list(self.seqs[seq].block_table) if seq in self.seqs else []

    def open(
        self, *, seq: int, tokens: list[int], chunk: int, salt: str | None, adapter: str | None
    ) -> dict[str, int]:
        new = self.new_sequence(list(tokens))
        found = self.manager.can_allocate(new)
        if found is False or (found is not True and found < 0):
            raise Refused("it cannot be allocated")
        if "num_cached_blocks" in inspect.signature(self.manager.allocate).parameters:
            self.manager.allocate(new, found)
        else:
            self.manager.allocate(new)
        self.seqs[seq] = new
        hit = int(new.num_cached_tokens)
        new.num_scheduled_tokens = max(1, min(chunk, len(tokens) - hit))
        return {"hit": hit}

    def extend(
        self, *, seq: int, tokens: list[int], chunk: int, guesses: list[int]
    ) -> list[list[int]]:
        old = self.seqs[seq]
        if not tokens:  # its prompt has all of its blocks
            old.num_scheduled_tokens = chunk
            return []
        old.append_token(tokens[0])
        if not self.manager.can_append(old):
            old.token_ids.pop()
            old.num_tokens -= 1
            old.last_token = old.token_ids[-1]
            raise Refused("no block can be appended")
        old.num_scheduled_tokens = 1
        if hasattr(old, "is_prefill"):
            old.is_prefill = False
        self.manager.may_append(old)
        return []

    def computed(self, *, seqs: list[int], accepted: list[int]) -> None:
        if not _has_chunks():
            return
        for seq in seqs:
            old = self.seqs[seq]
            if hasattr(self.manager, "hash_blocks"):
                self.manager.hash_blocks(old)
            end = old.num_cached_tokens + old.num_scheduled_tokens
            old.num_cached_tokens = min(end, old.num_tokens)
            old.num_scheduled_tokens = 0

    def free(self, *, seq: int) -> None:
        if seq not in self.seqs:
            raise Refused(f"there is no sequence {seq}")
        self.manager.deallocate(self.seqs[seq])


def _modules() -> Any:
    bare_package("nanovllm")
    stand_in("xxhash", xxh64=Digest)
    from nanovllm.engine import block_manager, sequence  # type: ignore[import-not-found]

    return block_manager, sequence


def _has_chunks() -> bool:
    return "num_scheduled_tokens" in inspect.getsource(_modules()[1])


class Make:
    """nano-vllm's block manager; blocks of one token are none of its sizes."""

    sizes = {"min_block_size": 2}  # noqa: RUF012

    @property
    def capabilities(self) -> list[str]:
        words = ["prefix_cache", "lru"]
        deallocate = inspect.getsource(_modules()[0].BlockManager.deallocate)
        if "hash_to_block_id" not in deallocate:  # else it forgets what is freed
            words.append("keeps")
        return [*words, "chunks"] if _has_chunks() else words

    def __call__(self, *, block_size: int, num_blocks: int, num_swap_blocks: int) -> NanoBlocks:
        return NanoBlocks(block_size, num_blocks)


make = Make()
