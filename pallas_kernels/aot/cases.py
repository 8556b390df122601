"""What is compiled: every operation, and attention in each configuration that is shipped.

A name reads `operation/backend/step-d<head dim>-b<block size>-<queries>[-<cache>][-<option>]`.
Shapes are those of a server; nothing is allocated. The pool has a prime number of blocks, so that
no other array of a program has as many elements as the cache or a part of it.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax.numpy as jnp

import pallas_kernels as pk
from pallas_kernels.aot.compiling import Program, Refused, array
from pallas_kernels.aot.hlo import watch
from pallas_kernels.aot.invariant_cases import invariant_cases
from pallas_kernels.aot.product_cases import (
    grouped_products,
    low_rank_products,
    quantized_products,
)
from pallas_kernels.aot.targets import Target
from pallas_kernels.backends import implementation
from pallas_kernels.call import Call, Options

# The cases that every change must pass, a few minutes on two cores: each kernel on each target with
# the head dimensions of common models, 8-bit caches and all options at once. The other cases have
# other head dimensions, block sizes, dtypes, ratios of heads, single options or step sizes, or
# compile the XLA twin of attention.
QUICK = (
    "attention/[mt]*/decode-d64-b16-bf16",
    "attention/[mt]*/decode-d128-b16-bf16",
    "attention/[mt]*/mixed-d128-b16-bf16",
    "attention/[mt]*/mixed-d256-b16-bf16",
    "attention/[mt]*/*-d128-b16-bf16-fp8",
    "attention/[mt]*/*-d128-b16-bf16-all",
    "attention/triton/mixed-d128-b16-f32",
    "*/xla/bfloat16",
    "*/xla/int8",
    "grouped_product/mosaic/*",
    "quantized_matmul/mosaic/*-16",
    "low_rank/mosaic/*-32",
    "attention/triton/*-d128-b16-bf16-invariant",
    "invariant_*/triton/*",
)
# Fewer for AMD's GPUs, where each case takes a process of its own: half a minute on two cores.
QUICK_ROCM = (
    "attention/triton/decode-d128-b16-bf16-fp8",
    "attention/triton/*-d128-b16-bf16-all",
    "attention/triton/mixed-d256-b16-f32",
    "attention/triton/decode-d128-b16-bf16-invariant",
    "write_kv/xla/bfloat16",
)
LAYERS, BLOCK_SIZE, HEAD_DIM = 4, 16, 128
POOL_TOKENS = 2**16
HEAD_DIMS = (64, 80, 96, 112, 128, 192, 256)
BLOCK_SIZES = (8, 32, 64, 128)
# (T, S, tokens of the longest context); the first two are `decode_only`.
STEPS = {
    "decode": (64, 64, 4096),
    "long": (1, 1, 2**17),
    "mixed": (2048, 64, 4096),
    "few": (64, 16, 4096),
}
OPTIONS: dict[str, dict[str, Any]] = {
    "window": {"window": 1024},
    "cap": {"soft_cap": 50.0},
    "alibi": {"alibi_slopes": True},
    "sinks": {"sinks": True},
    "lse": {"return_lse": True},
    "all": {
        "window": 1024,
        "soft_cap": 50.0,
        "alibi_slopes": True,
        "sinks": True,
        "return_lse": True,
    },
}
# The option `batch_invariant` of `make_metadata`, which only Triton has.
INVARIANT = "invariant"
SHORT = {
    "bfloat16": "bf16",
    "float16": "f16",
    "float32": "f32",
    "float8_e4m3fn": "fp8",
    "int8": "int8",
}


@dataclass(frozen=True)
class Attention:
    """One configuration of `paged_attention`; `option` is a key of OPTIONS, INVARIANT, or empty."""

    backend: str
    step: str = "decode"
    head_dim: int = HEAD_DIM
    block_size: int = BLOCK_SIZE
    dtype: str = "bfloat16"
    cache_dtype: str = "bfloat16"
    heads: int = 32
    kv_heads: int = 8
    option: str = ""

    @property
    def name(self) -> str:
        parts = [self.step, f"d{self.head_dim}", f"b{self.block_size}", SHORT[self.dtype]]
        if self.cache_dtype != self.dtype:
            parts.append(SHORT[self.cache_dtype])
        if (self.heads, self.kv_heads) != (32, 8):
            parts.append(f"h{self.heads}k{self.kv_heads}")
        if self.option:
            parts.append(self.option)
        return f"attention/{self.backend}/{'-'.join(parts)}"


def cases(target: Target) -> dict[str, Callable[[], Program]]:
    """All cases of a target by name."""
    found: dict[str, Callable[[], Program]]
    found = {a.name: partial(_attention, a) for a in _attentions(target)}
    found |= {f"write_kv/xla/{name}": partial(_write_kv, name) for name in SHORT}
    found |= {f"copy_blocks/xla/{name}": partial(_copy_blocks, name) for name in SHORT}
    found |= {f"gather_blocks/xla/{name}": partial(_gather_blocks, name) for name in SHORT}
    found |= {f"scatter_blocks/xla/{name}": partial(_scatter_blocks, name) for name in SHORT}
    found |= {
        f"merge_partials/xla/{name}": partial(_merge, name) for name in SHORT if "8" not in name
    }
    found |= grouped_products(target) | quantized_products(target) | low_rank_products(target)
    return found | invariant_cases(target)


def _attentions(target: Target) -> Iterator[Attention]:
    for backend in target.backends:
        for step in STEPS:
            yield from _variants(Attention(backend, step))


def _variants(base: Attention) -> Iterator[Attention]:
    """Changes one option at a time, and those together that compete for registers or memory."""
    yield base
    if base.step in ("long", "few"):
        return
    for dim in HEAD_DIMS:
        if dim != base.head_dim:
            yield replace(base, head_dim=dim)
    for size in BLOCK_SIZES:
        yield replace(base, block_size=size)
    for heads, kv_heads in ((64, 8), (16, 16), (32, 1)):
        yield replace(base, heads=heads, kv_heads=kv_heads)
    for dim in (64, 128, 256):
        for dtype in ("float16", "float32"):
            yield replace(base, head_dim=dim, dtype=dtype, cache_dtype=dtype)
        for cache_dtype in ("float8_e4m3fn", "int8"):
            yield replace(base, head_dim=dim, cache_dtype=cache_dtype)
    for option in (*OPTIONS, *[INVARIANT] * (base.backend == "triton")):
        yield replace(base, option=option)


def _cache(a: Attention) -> Any:
    blocks = _prime_after(POOL_TOKENS // a.block_size)
    shape = (LAYERS, 2, blocks, a.kv_heads, a.block_size, a.head_dim)
    return array(shape, a.cache_dtype)


def _prime_after(number: int) -> int:
    while any(number % divisor == 0 for divisor in range(2, math.isqrt(number) + 1)):
        number += 1
    return number


def _attention(a: Attention) -> Program:
    """The case; of a batch-invariant one also that of fewer rows, to which it must be alike."""
    tokens, seqs, context = STEPS[a.step]
    program = _attention_of(a, tokens, seqs, context)
    if a.option != INVARIANT:
        return program
    fewer = (1, 1) if tokens == seqs else (tokens // 8, seqs // 2)
    return replace(program, alike=_attention_of(a, *fewer, context))


def _attention_of(a: Attention, tokens: int, seqs: int, context: int) -> Program:
    options = dict(OPTIONS.get(a.option, {}))
    invariant = a.option == INVARIANT
    kv_cache = _cache(a)
    arrays: dict[str, Any] = {}
    for name in ("alibi_slopes", "sinks"):
        if options.pop(name, False):
            arrays[name] = array((a.heads,), jnp.float32)
    if jnp.dtype(a.cache_dtype).itemsize == 1:
        arrays["kv_scales"] = array((LAYERS, 2, a.kv_heads), jnp.float32)

    def attend(
        q: Any,
        kv_cache: Any,
        block_tables: Any,
        context_lens: Any,
        query_start_loc: Any,
        layer: Any,
        more: Any,
    ) -> Any:
        decode_only = a.step in ("decode", "long")
        metadata = pk.make_metadata(
            block_tables, context_lens, query_start_loc, tokens,
            decode_only=decode_only, backend=a.backend, batch_invariant=invariant,
            prompt_lens=context_lens - 7 if invariant else None,
        )  # fmt: skip
        return pk.paged_attention(
            q, kv_cache, block_tables, context_lens, query_start_loc, layer=layer,
            scale=a.head_dim**-0.5, metadata=metadata, backend=a.backend, **options, **more,
        )  # fmt: skip

    integers = [(seqs, -(-context // a.block_size)), (seqs,), (seqs + 1,), ()]
    arguments = (
        array((tokens, a.heads, a.head_dim), a.dtype),
        kv_cache,
        *(array(shape) for shape in integers),
        arrays,
    )
    call = Call(*arguments[:-1], **arrays)
    lack = implementation(a.backend).missing(call, Options(a.head_dim**-0.5, **options))
    if lack:
        raise Refused(lack)
    return Program(attend, arguments, watched=watch(kv_cache.shape))


def _write_kv(dtype: str) -> Program:
    kv_cache = _cache(Attention("xla", cache_dtype=dtype))
    new = array((256, kv_cache.shape[3], kv_cache.shape[5]), jnp.bfloat16)
    slot_mapping = array((256,))
    layer = array(())

    def write(kv_cache: Any, k: Any, v: Any, slot_mapping: Any, layer: Any, *kv_scales: Any) -> Any:
        more = {"kv_scales": kv_scales[0]} if kv_scales else {}
        return pk.write_kv(kv_cache, k, v, slot_mapping, layer=layer, **more)

    kv_scales = [array((LAYERS, 2, kv_cache.shape[3]), jnp.float32)] * ("8" in dtype)
    return _in_place(write, (kv_cache, new, new, slot_mapping, layer, *kv_scales))


def _copy_blocks(dtype: str) -> Program:
    ids = array((16,))
    return _in_place(pk.copy_blocks, (_cache(Attention("xla", cache_dtype=dtype)), ids, ids))


def _gather_blocks(dtype: str) -> Program:
    kv_cache = _cache(Attention("xla", cache_dtype=dtype))
    ids = array((16,))
    return Program(pk.gather_blocks, (kv_cache, ids), watched=watch(kv_cache.shape))


def _scatter_blocks(dtype: str) -> Program:
    kv_cache = _cache(Attention("xla", cache_dtype=dtype))
    ids = array((16,))
    data = array((16, *kv_cache.shape[:2], *kv_cache.shape[3:]), kv_cache.dtype)
    return _in_place(pk.scatter_blocks, (kv_cache, ids, data))


def _in_place(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Program:
    """A case whose first argument is the donated cache; it may make nothing as large as a layer."""
    kv_cache = arguments[0]
    layer = kv_cache.size * kv_cache.dtype.itemsize // LAYERS
    return Program(function, arguments, (0,), watch(kv_cache.shape), temporary=layer // 4)


def _merge(dtype: str) -> Program:
    out = array((16, 64, 32, HEAD_DIM), dtype)
    return Program(pk.merge_partials, (out, array((16, 64, 32), jnp.float32)))
