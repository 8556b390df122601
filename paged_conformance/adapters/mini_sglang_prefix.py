"""mini-sglang's radix cache as a target."""

from importlib import import_module
from typing import Any

from paged_conformance.adapters import mini_sglang
from paged_conformance.properties import Refused


class MiniRadix:
    """The radix cache of any version; it takes tensors, and gives a handle for each match."""

    def __init__(self, page_size: int) -> None:
        torch: Any = import_module("torch")

        self.torch = torch
        mini_sglang.set_page_size(page_size)
        kvcache = mini_sglang.load("minisgl.kvcache")
        create = getattr(kvcache, "create_prefix_cache", None) or kvcache.create_cache_manager
        self.cache = create(device=torch.device("cpu"), type="radix")
        self.handles: list[Any] = []

    def _tensor(self, numbers: list[int]) -> Any:
        return self.torch.tensor(numbers, dtype=self.torch.int32)

    def match(self, *, tokens: list[int], salt: str | None) -> dict[str, Any]:
        found = self.cache.match_prefix(self._tensor(tokens))
        if hasattr(found, "cuda_handle"):
            handle = found.cuda_handle
            slots = handle.get_matched_indices().tolist() if handle.cached_len else []
        else:
            handle, indices = found
            slots = indices.tolist()
        self.handles.append(handle)
        return {"handle": len(self.handles) - 1, "slots": slots[: handle.cached_len]}

    def insert(self, *, tokens: list[int], slots: list[int], salt: str | None) -> dict[str, int]:
        got = self.cache.insert_prefix(self._tensor(tokens), self._tensor(slots))
        return {"cached": int(got if isinstance(got, int) else got[0])}

    def lock(self, *, handle: int) -> None:
        self.cache.lock_handle(self.handles[handle], unlock=False)

    def unlock(self, *, handle: int) -> None:
        self.cache.lock_handle(self.handles[handle], unlock=True)

    def evict(self, *, num_tokens: int) -> list[int]:
        if num_tokens > self.cache.size_info.evictable_size:
            raise Refused("more than is evictable")
        return [int(slot) for slot in self.cache.evict(num_tokens).tolist()]

    def sizes(self) -> dict[str, int]:
        sizes = self.cache.size_info
        return {"evictable": int(sizes.evictable_size), "protected": int(sizes.protected_size)}


class Make:
    """mini-sglang's radix cache.

    Args:
        words: Capabilities.
    """

    def __init__(self, *words: str) -> None:
        self.capabilities = list(words)

    @property
    def sizes(self) -> dict[str, int]:
        return {"max_page_size": 4 if mini_sglang.has_page_sizes() else 1}

    def __call__(self, *, page_size: int) -> MiniRadix:
        return MiniRadix(page_size)


make = Make("exact_sizes")
make_lru = Make("exact_sizes", "lru")
