"""mini-sglang 20fcd7f: a request that goes on keeps freed pages in its row of the page table.

I1: the references of a page are its occurrences in tables. A page that is free is in no table.

Two requests have the same prompt and are computed in the same step, so neither finds the other's
pages. `cache_req(.., finished=False)` then keeps the first one's pages, and frees the second's: but
the second goes on with a row of the page table that still has them. The next request gets such a
page, and writes over keys and values that the second reads. Pull request 142 is about this.

    PYTHONPATH=mini-sglang/python python mini_sglang_page_table.py

It needs PyTorch and no GPU: modules that would need one are left out.
"""

import importlib
import sys
from importlib.machinery import PathFinder
from types import ModuleType, SimpleNamespace

import torch


def package(name, **names):
    """A package whose first file is not run."""
    parent, _, last = name.rpartition(".")
    module = sys.modules[name] = ModuleType(name)
    path = sys.modules[parent].__path__ if parent else None
    module.__path__ = list(PathFinder.find_spec(name, path).submodule_search_locations)
    vars(module).update(names)
    if parent:
        setattr(sys.modules[parent], last, module)
    return module


def equal_beginning(left, right):
    length = min(len(left), len(right))
    same = (left[:length] == right[:length]).int()
    return int(same.cumprod(0).sum())


package("minisgl")
package("minisgl.scheduler")
utils = package("minisgl.utils")
for part in ("misc", "registry"):
    vars(utils).update(vars(importlib.import_module(f"minisgl.utils.{part}")))
utils.init_logger = lambda *_, **__: None
package("minisgl.kernel", fast_compare_key=equal_beginning)
core = importlib.import_module("minisgl.core")
cache = importlib.import_module("minisgl.scheduler.cache")

if not torch.cuda.is_available():  # memory cannot be pinned
    empty = torch.empty
    cache.torch.empty = lambda *size, pin_memory=False, **options: empty(*size, **options)

core._GLOBAL_CTX = SimpleNamespace(page_size=1)
table = torch.zeros((4, 16), dtype=torch.int32)
manager = cache.CacheManager(num_pages=12, page_size=1, page_table=table, type="radix")


def opened(row, tokens):
    request = SimpleNamespace(input_ids=torch.tensor(tokens, dtype=torch.int32), table_idx=row)
    request.input_len = request.device_len = len(tokens)
    request.cache_handle = manager.match_req(request).cuda_handle
    request.cached_len = request.cache_handle.cached_len
    manager.lock(request.cache_handle)
    return request


prompt = [1, 2, 3, 4]
first, second = opened(0, prompt), opened(1, prompt)
manager.allocate_paged([first, second])
for request in (first, second):  # the step is computed
    request.cached_len = request.device_len
    manager.cache_req(request, finished=False)

free = set(manager.free_slots.tolist())
reads = table[second.table_idx, : second.cached_len].tolist()
print("the second request reads the pages", reads)
print("free are", sorted(free))
other = opened(2, [7, 8, 9, 5, 6, 7, 8])
manager.allocate_paged([other])
writes = table[other.table_idx, : other.device_len].tolist()
print("the next request writes the pages", writes)
assert not free & set(reads), f"free and read: {sorted(free & set(reads))}"
print("as it should be")
