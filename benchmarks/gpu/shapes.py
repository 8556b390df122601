"""What is measured, and how long the card's own limits say that it must take."""

from dataclasses import dataclass, replace

import numpy as np

BYTES = {"bfloat16": 2, "float16": 2, "float32": 4, "float8_e4m3fn": 1, "int8": 1}


@dataclass(frozen=True)
class Shape:
    """One batch of attention in one layer.

    Attributes:
        part: which table it belongs to.
        sequences: (new tokens, earlier tokens) of each sequence.
        paged: False puts each sequence's blocks one after another, in order.
    """

    part: str
    sequences: tuple[tuple[int, int], ...]
    heads: int = 32
    kv_heads: int = 8
    dim: int = 128
    block_size: int = 16
    dtype: str = "bfloat16"
    cache_dtype: str = "bfloat16"
    paged: bool = True

    @property
    def name(self) -> str:
        new, old = self.sequences[0]
        alike = len(set(self.sequences)) == 1
        lengths = f"{new}+{old}" if alike else f"{new}+{old}.."
        cache = "" if self.cache_dtype == self.dtype else f" {self.cache_dtype} cache"
        return (
            f"{len(self.sequences)} x {lengths}, heads {self.heads}/{self.kv_heads} x {self.dim}, "
            f"blocks of {self.block_size}{cache}{'' if self.paged else ', in order'}"
        )

    @property
    def decode_only(self) -> bool:
        return all(new == 1 for new, _ in self.sequences)

    @property
    def num_tokens(self) -> int:
        return sum(new for new, _ in self.sequences)

    @property
    def contexts(self) -> list[int]:
        return [new + old for new, old in self.sequences]

    @property
    def num_blocks(self) -> int:
        return sum(-(-length // self.block_size) for length in self.contexts)

    @property
    def layer_bytes(self) -> int:
        """Keys and values of all blocks, in one layer."""
        slot = 2 * self.kv_heads * self.dim * BYTES[self.cache_dtype]
        return self.num_blocks * self.block_size * slot

    @property
    def traffic(self) -> int:
        """Bytes that must be read or written: keys, values, queries, results, block tables."""
        slot = 2 * self.kv_heads * self.dim * BYTES[self.cache_dtype]
        queries = 2 * self.num_tokens * self.heads * self.dim * BYTES[self.dtype]
        return sum(self.contexts) * slot + queries + 4 * self.num_blocks

    @property
    def flops(self) -> int:
        """Multiplications and additions of the pairs of tokens that causality leaves."""
        pairs = sum(new * old + new * (new + 1) // 2 for new, old in self.sequences)
        return 4 * self.heads * self.dim * pairs

    def predicted_s(self, bytes_per_s: float, flops_per_s: float) -> float:
        """Seconds if nothing but the memory or nothing but the matrix units were in the way."""
        return max(self.traffic / bytes_per_s, self.flops / flops_per_s)


def _decode(batch: int, context: int) -> Shape:
    return Shape("decode", ((1, context - 1),) * batch)


def _prefill(tokens: int) -> Shape:
    return Shape("prefill", ((tokens, 0),))


def _ragged(seqs: int, least: int, most: int) -> tuple[tuple[int, int], ...]:
    rng = np.random.default_rng(0)
    return tuple((1, int(n)) for n in rng.integers(least, most, seqs))


# The aims of the project.
AIMS = (_decode(64, 4096), _decode(1, 65536), _prefill(8192))
# What never ran on a device before this script: caches of 8 bits, blocks in order.
NEW = (
    *(replace(AIMS[0], part="cache", cache_dtype=kind) for kind in ("float8_e4m3fn", "int8")),
    *(replace(AIMS[2], part="cache", cache_dtype=kind) for kind in ("float8_e4m3fn", "int8")),
    replace(AIMS[0], part="in order", paged=False),
    replace(AIMS[2], part="in order", paged=False),
)
# Beside other libraries' attention, the most telling first.
BESIDE = (
    *(_decode(batch, 129) for batch in (1, 256)),
    *(_prefill(tokens) for tokens in (2048, 8192)),
    replace(_prefill(2048), dim=64),
    *(_decode(batch, 4096) for batch in (1, 64, 256)),
    *(_decode(batch, 1024) for batch in (1, 16, 64, 256)),
    *(_decode(batch, 129) for batch in (16, 64)),
    _decode(16, 4096),
)
_MIXED = Shape("mixed", ((512, 0), (512, 4096), (1024, 1024), *_ragged(61, 256, 8192)))
REST: tuple[Shape, ...] = (
    _MIXED,
    AIMS[1],
    *(_decode(batch, context) for batch, context in ((1, 8192), (16, 16384), (64, 16384))),
    _decode(1, 131072),
    *(_prefill(tokens) for tokens in (1024, 4096, 16384, 32768)),
    *(replace(AIMS[0], part="block size", block_size=size) for size in (8, 32, 64, 128)),
    *(replace(AIMS[2], part="block size", block_size=size) for size in (8, 128)),
    *(replace(AIMS[0], part="heads", heads=h, kv_heads=k) for h, k in ((64, 8), (16, 16))),
    *(replace(AIMS[0], part="head dim", dim=dim) for dim in (64, 256)),
    *(replace(AIMS[2], part="head dim", dim=dim) for dim in (64, 256)),
    Shape("decode", _ragged(64, 128, 8192)),
)
SHAPES = (*NEW, *BESIDE, *REST)

# Interpreted kernels take seconds to compile: one shape shows that everything runs.
SMOKE = (Shape("decode", ((1, 47), (1, 47)), heads=4, kv_heads=2, dim=64),)
