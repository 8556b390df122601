"""mini-sglang's cache manager as a block manager: a radix cache and the allocation on top of it.

What its scheduler does between the calls is done here: a row of the page table for each request,
locks, and the requests' lengths.
"""

import inspect
from importlib import import_module
from typing import Any

from paged_conformance.adapters import mini_sglang
from paged_conformance.properties import Refused

MAX_TOKENS = 1024


class Request:
    """What the manager reads of a request."""

    def __init__(self, torch: Any, tokens: list[int], row: int, handle: Any) -> None:
        self.all_tokens = list(tokens)
        self.table_idx = row
        self.cache_handle = handle
        self.cached_len = self.device_len = int(handle.cached_len)
        self.torch = torch

    @property
    def input_ids(self) -> Any:
        return self.torch.tensor(self.all_tokens[: self.device_len], dtype=self.torch.int32)

    @property
    def input_len(self) -> int:
        return len(self.all_tokens)


class Pending:
    """What the manager reads of a request that waits."""

    def __init__(self, torch: Any, tokens: list[int]) -> None:
        self.input_ids = torch.tensor(tokens, dtype=torch.int32)
        self.input_len = len(tokens)


class MiniBlocks:
    """A `CacheManager` of any version, its page table, and the requests."""

    def __init__(self, page_size: int, num_pages: int) -> None:
        torch: Any = import_module("torch")

        self.torch, self.size, self.num_pages = torch, page_size, num_pages
        mini_sglang.set_page_size(page_size)
        module = mini_sglang.load("minisgl.scheduler.cache")
        module.torch = mini_sglang.HostTorch(torch)
        self.page_table = torch.zeros((64, MAX_TOKENS), dtype=torch.int32)
        given = {
            "device": torch.device("cpu"),
            "num_pages": num_pages,
            "page_size": page_size,
            "page_table": self.page_table,
            "type": "radix",
        }
        names = inspect.signature(module.CacheManager).parameters
        self.manager = module.CacheManager(**{name: given[name] for name in names})
        self.requests: dict[int, Request] = {}
        self.prompts: set[int] = set()
        self.rows = list(range(64))

    def capacity(self) -> int:
        return self.num_pages

    def num_free(self) -> int:
        tokens = int(self.manager.available_size)
        if tokens % self.size:
            raise AssertionError(f"{tokens} tokens are available, no whole pages of {self.size}")
        return tokens // self.size

    def table(self, *, seq: int) -> list[int]:
        if seq not in self.requests:
            return []
        request = self.requests[seq]
        slots = self.page_table[request.table_idx].tolist()
        pages = []
        for start in range(0, request.device_len, self.size):
            part = slots[start : min(start + self.size, request.device_len)]
            if [slot - part[0] for slot in part] != list(range(len(part))) or part[0] % self.size:
                raise AssertionError(f"the slots {part} are not in a row in one page")
            pages.append(part[0] // self.size)
        return pages

    def match(self, *, tokens: list[int], salt: str | None, adapter: str | None) -> int:
        return int(self._match(tokens)[0].cached_len)

    def _match(self, tokens: list[int]) -> tuple[Any, Any]:
        found = self.manager.match_req(Pending(self.torch, tokens))
        if not hasattr(found, "cuda_handle"):
            return found[0], found[1]
        handle = found.cuda_handle
        return handle, handle.get_matched_indices() if handle.cached_len else None

    def open(
        self, *, seq: int, tokens: list[int], chunk: int, salt: str | None, adapter: str | None
    ) -> dict[str, int]:
        handle, slots = self._match(tokens)
        hit = int(handle.cached_len)
        need = self._pages(len(tokens)) - self._pages(hit)
        if need > self.num_free():
            raise Refused("it does not fit")
        self.manager.lock(handle)
        if need > self.num_free():
            self.manager.unlock(handle)
            raise Refused("it does not fit beside what it has found")
        request = Request(self.torch, tokens, self.rows.pop(0), handle)
        if hit:
            self.page_table[request.table_idx, :hit].copy_(slots)
        self.requests[seq] = request
        self._grow(request, min(len(tokens), hit + chunk))
        self.prompts.add(seq)
        return {"hit": hit}

    def _pages(self, num_tokens: int) -> int:
        return -(-num_tokens // self.size)

    def _grow(self, request: Request, end: int) -> None:
        request.cached_len, request.device_len = request.device_len, end
        if hasattr(self.manager, "allocate_paged"):
            if len(inspect.signature(self.manager.allocate_paged).parameters) == 2:
                self.manager.allocate_paged([request], self.page_table)
            else:
                self.manager.allocate_paged([request])
        else:
            slots = self.manager.allocate(end - request.cached_len)
            self.page_table[request.table_idx, request.cached_len : end] = slots

    def extend(
        self, *, seq: int, tokens: list[int], chunk: int, guesses: list[int]
    ) -> list[list[int]]:
        request = self.requests[seq]
        end = request.device_len + chunk
        if self._pages(end) - self._pages(request.device_len) > self.num_free():
            raise Refused("no page is free or can be evicted")
        request.all_tokens += tokens
        self._grow(request, end)
        if not tokens:
            self.prompts.add(seq)
        return []

    def computed(self, *, seqs: list[int], accepted: list[int]) -> None:
        for seq in seqs:
            request = self.requests[seq]
            request.cached_len = request.device_len
            done = request.device_len == request.input_len
            if done and seq in self.prompts and hasattr(self.manager, "cache_req"):
                self.manager.cache_req(request, finished=False)
            self.prompts.discard(seq)

    def free(self, *, seq: int) -> None:
        if seq not in self.requests:
            raise Refused(f"there is no sequence {seq}")
        request = self.requests.pop(seq)
        self.prompts.discard(seq)
        self.rows.insert(0, request.table_idx)
        # What is in flight was allocated and is freed: it is not cached
        tail = self._tail(request)
        if hasattr(self.manager, "cache_req"):
            self.manager.cache_req(request, finished=True)
        elif "req" in inspect.signature(self.manager.free_and_cache_finished_req).parameters:
            self.manager.free_and_cache_finished_req(request, self.page_table)
        else:
            end = request.cached_len
            self.manager.free_and_cache_finished_req(
                request.cache_handle,
                request.input_ids[:end],
                self.page_table[request.table_idx, :end],
            )
        if len(tail):
            self.manager._free(tail)

    def _tail(self, request: Request) -> Any:
        """The slots of pages that only the step in flight writes."""
        first = self._pages(request.cached_len) * self.size
        last = self._pages(request.device_len) * self.size
        return self.page_table[request.table_idx, first:last].clone()


class Make:
    """mini-sglang's cache manager."""

    @property
    def sizes(self) -> dict[str, int]:
        return {"max_block_size": 4 if mini_sglang.has_page_sizes() else 1, "max_blocks": 14}

    @property
    def capabilities(self) -> list[str]:
        return ["prefix_cache", "keeps", "chunks", "match", "remaps"]

    def __call__(self, *, block_size: int, num_blocks: int, num_swap_blocks: int) -> MiniBlocks:
        return MiniBlocks(block_size, num_blocks)


make = Make()
