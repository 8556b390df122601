"""PyTorch's attention on contiguous keys and values, in a process of its own.

`python -m benchmarks.gpu.with_torch NAME ...` prints one JSON line a shape of `shapes.SHAPES` and
method: {"shape", "method", "us"} or {.., "error"}. Needs torch; nothing else here does.
"""

import json
import statistics
import sys
from collections.abc import Callable
from typing import Any

from benchmarks.gpu.shapes import SHAPES, Shape


def main() -> None:
    """Time the shapes named on the command line."""
    import torch

    for shape in SHAPES:
        if shape.name not in sys.argv[1:]:
            continue
        for method, make in (("torch SDPA", _sdpa), ("torch FlexAttention", _flex)):
            line: dict[str, Any] = {"shape": shape.name, "method": method}
            try:
                line["us"] = _time(torch, make(torch, shape))
            except Exception as error:
                line["error"] = f"{type(error).__name__}: {str(error)[:200]}"
            print(json.dumps(line), flush=True)
            torch.cuda.empty_cache()


def _tensors(torch: Any, shape: Shape) -> tuple[Any, list[tuple[Any, Any]]]:
    """Queries, and the keys and values of enough layers that they do not stay in L2."""
    if len(set(shape.sequences)) > 1 or shape.cache_dtype != shape.dtype:
        raise NotImplementedError("sequences of one length and an unquantised cache only")
    new, old = shape.sequences[0]
    if new > 1 and old:
        raise NotImplementedError("a prefill from position 0 only")
    batch = len(shape.sequences)

    def random(heads: int, tokens: int) -> Any:
        size = (batch, heads, tokens, shape.dim)
        return torch.randn(size, device="cuda", dtype=getattr(torch, shape.dtype))

    layers = max(2, min(32, 2**28 // shape.layer_bytes))
    kv = [
        (random(shape.kv_heads, new + old), random(shape.kv_heads, new + old))
        for _ in range(layers)
    ]
    return random(shape.heads, new), kv


def _sdpa(torch: Any, shape: Shape) -> Callable[[int], None]:
    q, kv = _tensors(torch, shape)
    attention = torch.nn.functional.scaled_dot_product_attention
    causal = shape.sequences[0][0] > 1

    def run(i: int) -> None:
        attention(q, *kv[i % len(kv)], is_causal=causal, enable_gqa=True)

    return run


def _flex(torch: Any, shape: Shape) -> Callable[[int], None]:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    q, kv = _tensors(torch, shape)
    compiled = torch.compile(flex_attention)
    new = shape.sequences[0][0]
    mask = None
    if new > 1:
        mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, new, new, device="cuda")

    def run(i: int) -> None:
        compiled(q, *kv[i % len(kv)], block_mask=mask, enable_gqa=True)

    return run


def _time(torch: Any, run: Callable[[int], None]) -> float:
    """Microseconds of one call on the device: calls captured in a CUDA graph, then replayed."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for i in range(3):
            run(i)
    torch.cuda.synchronize()
    graph, count = torch.cuda.CUDAGraph(), 16
    with torch.cuda.graph(graph):
        for i in range(count):
            run(i)
    times = []
    for _ in range(7):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) * 1e3 / count)
    return statistics.median(times)


if __name__ == "__main__":
    main()
