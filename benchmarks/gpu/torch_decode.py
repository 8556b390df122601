"""`python -m benchmarks.gpu.torch_decode MODEL`: one stream decoded by PyTorch in one CUDA graph.

A plain Llama of the same shapes in bfloat16, with a static KV cache. `torch.compile` compiles a
layer, and one graph holds the whole step: a stand-in for engines that are made of these parts, such
as vLLM, which cannot be carried to a machine without a network. Needs torch, and nothing else.
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
PROMPT, STEPS, ROUNDS = 128, 128, 5
METHOD = "torch.compile, decode of 1, tokens/s"


def make_step(
    torch: Any, shape: tuple[Any, ...], device: str
) -> tuple[Callable[[], None], Callable[[], None]]:
    """A function that decodes one token in place, and one that goes back to the prompt's end.

    A step attends to all of the cache, which ends where the last step writes: a flash kernel takes
    no mask, and this stand-in shall have the fastest one.
    """
    layers, width, ffn, heads, kv_heads, dim, vocabulary, tied = shape
    functional = torch.nn.functional

    def random(*size: int) -> Any:
        return torch.randn(size, device=device, dtype=torch.bfloat16) * 0.02

    def weights() -> tuple[Any, ...]:
        cache = (random(1, kv_heads, PROMPT + STEPS, dim) for _ in range(2))
        qkv, out = random((heads + 2 * kv_heads) * dim, width), random(width, heads * dim)
        return qkv, out, random(2 * ffn, width), random(width, ffn), *cache

    every = [weights() for _ in range(layers)]
    norm = torch.ones(width, device=device, dtype=torch.bfloat16)
    embedding = random(vocabulary, width)
    output = embedding if tied else random(vocabulary, width)
    token = torch.zeros(1, device=device, dtype=torch.long)
    position = torch.zeros(1, device=device, dtype=torch.long)
    inverse = 500000.0 ** (-torch.arange(0, dim, 2, device=device) / dim)

    def rotated(x: Any, position: Any) -> Any:
        angles = position * inverse
        cos, sin = torch.cos(angles).to(x.dtype), torch.sin(angles).to(x.dtype)
        first, second = x.chunk(2, -1)
        return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)

    @torch.compile(fullgraph=True, dynamic=False)  # type: ignore[untyped-decorator]
    def layer(
        x: Any, position: Any, qkv: Any, out: Any, gate_up: Any, down: Any, keys: Any, values: Any
    ) -> Any:
        normed = functional.rms_norm(x, (width,), norm, 1e-5)
        parts = functional.linear(normed, qkv).view(1, -1, 1, dim)
        q, k, v = parts.split([heads, kv_heads, kv_heads], 1)
        keys[:, :, position] = rotated(k, position)
        values[:, :, position] = v
        attended = functional.scaled_dot_product_attention(
            rotated(q, position), keys, values, enable_gqa=True
        )
        x = x + functional.linear(attended.reshape(1, -1), out)
        normed = functional.rms_norm(x, (width,), norm, 1e-5)
        gate, up = functional.linear(normed, gate_up).chunk(2, -1)
        return x + functional.linear(functional.silu(gate) * up, down)

    @torch.compile(fullgraph=True, dynamic=False)  # type: ignore[untyped-decorator]
    def next_token(x: Any) -> Any:
        normed = functional.rms_norm(x, (width,), norm, 1e-5)
        return functional.linear(normed, output).argmax(-1)

    def step() -> None:
        x = embedding[token]  # [1, width]
        for held in every:
            x = layer(x, position, *held)
        token.copy_(next_token(x))
        position.add_(1)

    return step, lambda: position.fill_(PROMPT)


def tokens_per_s(torch: Any, shape: tuple[Any, ...], device: str) -> float:
    """The tokens a second of the median round."""
    step, restart = make_step(torch, shape, device)

    def run(decode: Callable[[], None]) -> float:
        restart()
        _wait(torch, device)
        started = time.perf_counter()
        for _ in range(STEPS):
            decode()
        _wait(torch, device)
        return time.perf_counter() - started

    with torch.no_grad():
        decode = step if device == "cpu" else _graph(torch, step, restart)
        run(decode)
        return STEPS / median(run(decode) for _ in range(ROUNDS))


def _graph(torch: Any, step: Callable[[], None], restart: Callable[[], None]) -> Any:
    """What replays the step as one CUDA graph."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        restart()
        for _ in range(3):  # compiled, and cuBLAS has its workspace
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def _wait(torch: Any, device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize()


def main() -> None:
    """Compile, then measure the model named on the command line."""
    parser = argparse.ArgumentParser("python -m benchmarks.gpu.torch_decode")
    parser.add_argument("model", choices=SHAPES)
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
    speed = tokens_per_s(torch, shape, device)
    print(json.dumps({"put": ["peers", METHOD, args.model], "value": round(speed, 1)}), flush=True)


if __name__ == "__main__":
    main()
