"""`python -m benchmarks.gpu.torch_decode MODEL`: one stream decoded by PyTorch with CUDA graphs.

A plain Llama of the same shapes in bfloat16, with a static KV cache, compiled by
`torch.compile(mode="reduce-overhead")`: a stand-in for engines that are made of these parts, such
as vLLM, which cannot be carried to a machine without a network. Needs torch, and nothing else.
`--compile-only` compiles into PyTorch's cache and measures nothing.
"""

import argparse
import json
import time
from collections.abc import Callable
from statistics import median
from typing import Any

# (layers, width, FFN, heads, KV heads, head dim, vocabulary, head tied to the embedding)
SHAPES = {
    "Llama-3.2-1B": (16, 2048, 8192, 32, 8, 64, 128256, True),
    "Llama-3.1-8B": (32, 4096, 14336, 32, 8, 128, 128256, False),
}
SMOKE_SHAPE = (2, 64, 128, 4, 2, 16, 128, True)
CONTEXT, STEPS, ROUNDS = 512, 128, 5
METHOD = "torch.compile, decode of 1, tokens/s"


def make_step(torch: Any, shape: tuple[Any, ...], device: str) -> tuple[Callable[..., Any], Any]:
    """A function (token, position) -> next token, and its first token.

    Keys and values of all positions up to the given one are attended to, from a cache of CONTEXT.
    """
    layers, width, ffn, heads, kv_heads, dim, vocabulary, tied = shape
    functional = torch.nn.functional

    def random(*size: int) -> Any:
        return torch.randn(size, device=device, dtype=torch.bfloat16) * 0.02

    qkv = [random((heads + 2 * kv_heads) * dim, width) for _ in range(layers)]
    out = [random(width, heads * dim) for _ in range(layers)]
    gate_up = [random(2 * ffn, width) for _ in range(layers)]
    down = [random(width, ffn) for _ in range(layers)]
    norm = torch.ones(width, device=device, dtype=torch.bfloat16)
    embedding = random(vocabulary, width)
    head = embedding if tied else random(vocabulary, width)
    cache = torch.zeros((layers, 2, 1, kv_heads, CONTEXT, dim), device=device, dtype=torch.bfloat16)
    places = torch.arange(CONTEXT, device=device)
    inverse = 500000.0 ** (-torch.arange(0, dim, 2, device=device) / dim)

    def rotated(x: Any, position: Any) -> Any:
        angles = position * inverse
        cos, sin = torch.cos(angles).to(x.dtype), torch.sin(angles).to(x.dtype)
        first, second = x.chunk(2, -1)
        return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)

    def step(token: Any, position: Any) -> Any:
        x = embedding[token]  # [1, width]
        mask = (places <= position)[None, None, None]
        for i in range(layers):
            normed = functional.rms_norm(x, (width,), norm, 1e-5)
            parts = functional.linear(normed, qkv[i]).view(1, -1, 1, dim)
            q, k, v = parts.split([heads, kv_heads, kv_heads], 1)
            cache[i, 0].index_copy_(2, position, rotated(k, position))
            cache[i, 1].index_copy_(2, position, v)
            attended = functional.scaled_dot_product_attention(
                rotated(q, position), cache[i, 0], cache[i, 1], attn_mask=mask, enable_gqa=True
            )
            x = x + functional.linear(attended.reshape(1, -1), out[i])
            normed = functional.rms_norm(x, (width,), norm, 1e-5)
            gate, up = functional.linear(normed, gate_up[i]).chunk(2, -1)
            x = x + functional.linear(functional.silu(gate) * up, down[i])
        logits = functional.linear(functional.rms_norm(x, (width,), norm, 1e-5), head)
        return logits.argmax(-1)

    return step, torch.zeros(1, device=device, dtype=torch.long)


def tokens_per_s(torch: Any, shape: tuple[Any, ...], device: str, compile_only: bool) -> float:
    """Of the median round; 0.0 if it was only compiled."""
    plain, token = make_step(torch, shape, device)
    step = torch.compile(plain, mode="reduce-overhead", fullgraph=True)
    position = torch.full((1,), CONTEXT // 4, device=device, dtype=torch.long)

    def run(count: int) -> float:
        nonlocal token
        started = time.perf_counter()
        for i in range(count):
            position.fill_(CONTEXT // 4 + i)
            token = step(token, position).clone()  # the graph writes its result in place
        token.cpu()
        return time.perf_counter() - started

    with torch.no_grad():
        run(1 if compile_only else 4)
        if compile_only:
            return 0.0
        return STEPS / median(run(STEPS) for _ in range(ROUNDS))


def main() -> None:
    """Compile, then measure the model named on the command line."""
    parser = argparse.ArgumentParser("python -m benchmarks.gpu.torch_decode")
    parser.add_argument("model", choices=SHAPES)
    parser.add_argument("--compile-only", action="store_true")
    parser.add_argument("--smoke", action="store_true", help="a tiny model, on any device")
    parser.add_argument("--limit", type=float, default=1e9, help="not read: the caller ends it")
    parser.add_argument("--card", default="", help="not read")
    args = parser.parse_args()
    try:
        import torch
    except ImportError:
        why = "a smoke run without torch" if args.smoke else "no torch here"
        print(json.dumps({"skip": f"torch.compile, {args.model}", "why": why}), flush=True)
        return
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    shape = SMOKE_SHAPE if args.smoke else SHAPES[args.model]
    speed = tokens_per_s(torch, shape, device, args.compile_only)
    if not args.compile_only:
        path = ["peers", METHOD, args.model]
        print(json.dumps({"put": path, "value": round(speed, 1)}), flush=True)


if __name__ == "__main__":
    main()
