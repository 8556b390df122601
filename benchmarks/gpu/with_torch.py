"""`python -m benchmarks.gpu.with_torch`: PyTorch's SDPA on contiguous keys and values.

The shapes are those that the kernels are timed on beside others' (`shapes.BESIDE`). Needs torch.
"""

import argparse
import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.gpu.card import rates
from benchmarks.gpu.said import attempt, row, skip
from benchmarks.gpu.shapes import BESIDE, Shape

METHOD = "torch SDPA"


def main() -> None:
    """Time each shape by `scaled_dot_product_attention`."""
    parser = argparse.ArgumentParser("python -m benchmarks.gpu.with_torch")
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--limit", type=float, default=1e9)
    parser.add_argument("--card", default="", help="rates of this card, as JSON")
    args = parser.parse_args()
    try:
        import torch
    except ImportError:
        skip("PyTorch's attention", "a smoke run without torch" if args.smoke else "no torch here")
        return
    if not torch.cuda.is_available():
        skip("PyTorch's attention", "torch sees no GPU")
        return
    card = rates(args.card, args.smoke)
    for shape in BESIDE:
        limit = shape.predicted_s(card["copy_bytes_per_s"], card["matrix_flops_per_s"])
        attempt(f"{METHOD}, {shape.name}", partial(_measure, torch, shape, limit), args.limit)
        torch.cuda.empty_cache()


def _measure(torch: Any, shape: Shape, limit: float) -> None:
    row(shape, METHOD, limit, {"us": _time(torch, _sdpa(torch, shape))})


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
