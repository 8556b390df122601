"""SGLang's radix cache as a target, from its wheel, without a GPU.

Put the folder of an unpacked wheel on the path, as `PYTHONPATH`; PyTorch is installed. The cache's
own files are used as they are, the rest of the package stands in (`stand_ins`). The allocator here
remembers what the cache frees.
"""

import sys
from array import array
from importlib import import_module
from typing import Any

from paged_conformance.adapters import stand_ins

_PLACE = "sglang.srt.mem_cache."
_REAL = tuple(
    _PLACE + name
    for name in ("radix_cache", "base_prefix_cache", "cache_init_params", "evict_policy", "utils")
)


def _modules() -> tuple[Any, Any]:
    if _REAL[0] not in sys.modules:
        import_module("torch")  # before there are stand-ins
        stand_ins.install(["sglang"], _REAL)
    return import_module(_REAL[0]), import_module(_REAL[1])


class Allocator:
    """What the cache frees."""

    device = "cpu"

    def __init__(self) -> None:
        self.freed: list[int] = []

    def free_segment(self, slots: Any, start_pos: int) -> None:
        self.freed += [int(slot) for slot in slots.tolist()]


class Radix:
    """A `RadixCache`; a handle is the last node of a match."""

    def __init__(self, page_size: int) -> None:
        self.module, self.base = _modules()
        self.torch: Any = import_module("torch")
        self.allocator = Allocator()
        self.cache = self.module.RadixCache.create_simulated(
            mock_allocator=self.allocator, page_size=page_size
        )
        self.nodes: list[Any] = []

    def _key(self, tokens: list[int], salt: str | None) -> Any:
        return self.module.RadixKey(array("q", tokens), extra_key=salt)

    def match(self, *, tokens: list[int], salt: str | None) -> dict[str, Any]:
        params = self.base.MatchPrefixParams(key=self._key(tokens, salt))
        found = self.cache.match_prefix(params)
        self.nodes.append(found.last_device_node)
        slots = self.cache.path_device_indices(found.last_device_node).tolist()
        if len(slots) != found.device_prefix_len:
            raise AssertionError(f"{found.device_prefix_len} tokens have the slots {slots}")
        return {"handle": len(self.nodes) - 1, "slots": [int(slot) for slot in slots]}

    def insert(self, *, tokens: list[int], slots: list[int], salt: str | None) -> dict[str, int]:
        value = self.torch.tensor(slots, dtype=self.torch.int64)
        params = self.base.InsertParams(key=self._key(tokens, salt), value=value)
        return {"cached": int(self.cache.insert(params).prefix_len)}

    def lock(self, *, handle: int) -> None:
        self.cache.inc_lock_ref(self.nodes[handle])

    def unlock(self, *, handle: int) -> None:
        self.cache.dec_lock_ref(self.nodes[handle])

    def evict(self, *, num_tokens: int) -> list[int]:
        self.allocator.freed = []
        told = self.cache.evict(self.base.EvictParams(num_tokens=num_tokens)).num_tokens_evicted
        if told != len(self.allocator.freed):
            raise AssertionError(f"{told} tokens are evicted, and {self.allocator.freed} freed")
        return self.allocator.freed

    def sizes(self) -> dict[str, int]:
        evictable, protected = self.cache.evictable_size(), self.cache.protected_size()
        if evictable + protected != self.cache.total_size():
            raise AssertionError(f"{evictable} + {protected} of {self.cache.total_size()} tokens")
        return {"evictable": evictable, "protected": protected}

    def reset(self) -> None:
        self.cache.reset()


class Make:
    """SGLang's radix cache.

    Args:
        words: Capabilities.
    """

    def __init__(self, *words: str) -> None:
        self._words = words

    @property
    def capabilities(self) -> list[str]:
        _modules()  # here, so that no example waits for imports
        return list(self._words)

    def __call__(self, *, page_size: int) -> Radix:
        return Radix(page_size)


make = Make("exact_sizes", "salts", "reset")
make_lru = Make("exact_sizes", "salts", "reset", "lru")
