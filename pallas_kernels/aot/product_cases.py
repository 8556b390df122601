"""Cases of products: with quantised weights, with experts' weights, and with adapters."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax.numpy as jnp
from jax import lax

import pallas_kernels as pk
from pallas_kernels.aot.compiling import Program, array
from pallas_kernels.aot.hlo import watch
from pallas_kernels.aot.targets import Target
from pallas_kernels.low_rank import add_low_rank, make_tiles

LAYERS = 4


def quantized_products(target: Target) -> dict[str, Callable[[], Program]]:
    """Products of a layer of Llama-3.1-8B, by kind, group of columns (0: all) and tokens.

    "int4+" has minimums.
    """
    kinds = (
        *((name, "bfloat16", group) for name in ("int8", "int4") for group in (0, 32, 64, 128)),
        ("int8", "bfloat16", 16),
        *(("int4+", "bfloat16", group) for group in (32, 64, 128)),
        *(("int8+", "bfloat16", group) for group in (16, 128)),
        *(("fp8", "bfloat16", group) for group in (0, 128)),
        *(("fp8", "float8_e4m3fn", group) for group in (0, 128)),
    )
    return {
        f"quantized_matmul/{backend}/{name}{'-fp8' * ('8_' in dtype)}-g{group}-{tokens}": partial(
            _quantized_matmul, backend, name, dtype, group, tokens
        )
        for backend in target.backends
        if backend != "triton"
        for name, dtype, group in kinds
        for tokens in (1, 16, 1536)
    }


def _quantized_matmul(backend: str, name: str, dtype: str, group: int, tokens: int) -> Program:
    """Over the layers of a stack, as in a model: no layer may be copied out of it, nor widened.

    XLA widens a layer for more than a few rows, which is no failure of its twin.
    """
    size = 4096
    name, plus, _ = name.partition("+")
    kind = {"int8": "int8", "int4": "uint8", "fp8": "float8_e4m3fn"}[name]
    codes = array((LAYERS, size, size // 2 if name == "int4" else size), kind)
    scales = array((LAYERS, size // (group or size), size), jnp.float32)
    minimums = scales if plus else None
    narrow = dtype == "float8_e4m3fn"

    def multiply(x: Any, codes: Any, scales: Any, minimums: Any) -> Any:
        def layer(x: Any, number: Any) -> tuple[Any, None]:
            more = {}
            if narrow:
                more["x_scales"] = jnp.abs(x).max(1).astype(jnp.float32) / 448
                x = (x / more["x_scales"][:, None]).astype(dtype)
            out = pk.quantized_matmul(
                x, codes, scales, minimums, layer=number, group=group or size,
                dtype=jnp.dtype(jnp.bfloat16), backend=backend, **more,
            )  # fmt: skip
            return out, None

        return lax.scan(layer, x, jnp.arange(LAYERS, dtype=jnp.int32))[0]

    arguments = (array((tokens, size), jnp.bfloat16), codes, scales, minimums)
    widens = backend == "xla" and tokens > 8
    watched = watch(None, [] if widens else [codes.shape, (size, size)])
    return Program(multiply, arguments, watched=watched)


def grouped_products(target: Target) -> dict[str, Callable[[], Program]]:
    """Those of a layer of OLMoE 1B-7B, by rows: an odd number, 8 tokens of 8 experts, 512."""
    backends = [name for name in target.backends if name != "triton"]
    return {
        f"grouped_product/{backend}/{rows}": partial(_grouped_product, backend, rows)
        for backend in backends
        for rows in (11, 64, 4096)
    }


def _grouped_product(backend: str, rows: int) -> Program:
    """Over the layers of a stack, as in a model: no layer may be copied out of it."""
    stack = array((LAYERS, 64, 2048, 2048), jnp.bfloat16)

    def multiply(x: Any, stack: Any, starts: Any) -> Any:
        def layer(x: Any, weights: Any) -> tuple[Any, None]:
            return pk.grouped_product(x, weights, starts, dtype=x.dtype, backend=backend), None

        return lax.scan(layer, x, stack)[0]

    arguments = (array((rows, 2048), jnp.bfloat16), stack, array((65,)))
    return Program(multiply, arguments, watched=watch(None, [stack.shape]))


def low_rank_products(target: Target) -> dict[str, Callable[[], Program]]:
    """Products of eight adapters, by product, ranks and tokens.

    The products are those of a layer of Llama-3.1-8B, and of the 128 experts of Qwen3-30B-A3B, of
    which a token has eight.
    """
    return {
        f"low_rank/mosaic/{product}-r{rank}-{tokens}": partial(_low_rank, product, rank, tokens)
        for product, ranks in {
            "qkv": (16, 64, 128),
            "down": (16, 64, 256),
            "gate_up": (16, 64, 256),
            "experts_gate_up": (16,),
            "experts_down": (16,),
        }.items()
        for rank in ranks
        for tokens in (1, 32, 512)
        if "mosaic" in target.backends
    }


def _low_rank(product: str, rank: int, tokens: int) -> Program:
    """Over the layers of a stack, as in a model: no layer's slots may be copied out of it."""
    in_size, sizes = {
        "qkv": (4096, (4096, 1024, 1024)),
        "down": (14336, (4096,)),
        "gate_up": (4096, (14336, 14336)),
        "experts_gate_up": (2048, (768, 768)),
        "experts_down": (768, (2048,)),
    }[product]
    experts, chosen = (128, 8) if "experts" in product else (1, 1)
    slots, rows = 8 * experts, tokens * chosen
    halves = [
        (sum(sizes[:part]) + start, 16, part)
        for part, size in enumerate(sizes)
        for start in range(0, size, 16)
    ]
    if "gate_up" in product:
        both = zip(halves[: len(halves) // 2], halves[len(halves) // 2 :], strict=True)
        halves = [half for pair in both for half in pair]
    a = array((LAYERS, slots, len(sizes) * rank // 16, in_size // 2, 32), jnp.bfloat16)
    b = array((LAYERS, slots, len(halves) // 2, rank + 8, 32), jnp.bfloat16)

    def add(out: Any, x: Any, a: Any, b: Any, slot: Any) -> Any:
        tiles = make_tiles(slot, slots)

        def layer(out: Any, number: Any) -> tuple[Any, None]:
            found = add_low_rank(
                out, x, a, b, slot, layer=number, halves=tuple(halves), tiles=tiles,
                backend="mosaic",
            )  # fmt: skip
            return found, None

        return lax.scan(layer, out, jnp.arange(LAYERS, dtype=jnp.int32))[0]

    arguments = (
        array((rows, sum(sizes)), jnp.bfloat16),
        array((rows, in_size), jnp.bfloat16),
        *(a, b, array((rows,))),
    )
    return Program(add, arguments, watched=watch(None, [a.shape, b.shape]))
