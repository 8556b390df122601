"""Copies a sequence's keys and values from the pool, a block_kv at a time.

The kernels see the cache as a list of pages `[L*2*N*K, B, D]` (the same bytes). A page is one
physical block of one head's keys or values. It is contiguous, so one TMA copy moves it.
"""

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from pallas_kernels.mosaic import plgpu


@dataclass(frozen=True)
class Paging:
    """Sizes of a cache, and `block_kv`, the tokens of context that a kernel processes at a time."""

    num_blocks: int
    kv_heads: int
    block_size: int
    head_dim: int
    block_kv: int

    @property
    def run(self) -> int:
        """Tokens of one copy, which crosses no border of a page or a block_kv."""
        return math.gcd(self.block_size, self.block_kv)

    @property
    def copies(self) -> int:
        """Copies that fill one block_kv."""
        return self.block_kv // self.run


@dataclass(frozen=True)
class Context:
    """The positions low:high of one sequence's cache, for one KV head.

    Attributes:
        paging: sizes.
        pages: the cache as pages, in global memory.
        block_tables: all block tables, in global memory.
        seq: row of `block_tables`.
        layer: layer of the cache.
        head: KV head.
        low: first position that may be read.
        high: last position that may be read, plus 1. Other positions may hold anything.
    """

    paging: Paging
    pages: Any
    block_tables: Any
    seq: jax.Array
    layer: jax.Array
    head: jax.Array
    low: jax.Array
    high: jax.Array

    def find(self, block: jax.Array) -> list[jax.Array]:
        """Physical block of each copy of block_kv number `block`.

        The table is never read outside of low:high. Copies outside repeat the nearest block
        inside, which is in the L2 cache by then.
        """
        size = self.paging.block_size
        first, last = plgpu.div(self.low, size), plgpu.div(self.high - 1, size)
        found = []
        for i in range(self.paging.copies):
            position = block * self.paging.block_kv + i * self.paging.run
            column = jnp.clip(plgpu.div(position, size), first, last)
            found.append(self.block_tables[self.seq, column])
        return found

    def copy(
        self, block: jax.Array, found: list[jax.Array], which: int, to: Any, done: Any
    ) -> None:
        """Start copying keys (`which` 0) or values (1); each copy arrives at `done` once."""
        sizes = self.paging
        for i, physical in enumerate(found):
            page = ((self.layer * 2 + which) * sizes.num_blocks + physical) * sizes.kv_heads
            offset = plgpu.rem(block * sizes.block_kv + i * sizes.run, sizes.block_size)
            offset = pl.multiple_of(offset, sizes.run)
            plgpu.copy_gmem_to_smem(
                self.pages.at[page + self.head, pl.ds(offset, sizes.run)],
                to.at[pl.ds(i * sizes.run, sizes.run)],
                done,
            )

    def has_edge(self, block: jax.Array) -> jax.Array:
        """Whether block_kv number `block` has slots outside of low:high."""
        start = block * self.paging.block_kv
        return (start < self.low) | (start + self.paging.block_kv > self.high)

    def clear_outside(self, block: jax.Array, values: Any) -> None:
        """Zero the values outside of low:high: a probability of 0 does not hide a NaN."""
        # In pieces, to save registers.
        for start in range(0, self.paging.block_kv, 64):
            position = block * self.paging.block_kv + start + plgpu.indices((64,), 0)
            inside = (position >= self.low) & (position < self.high)
            for column in range(0, self.paging.head_dim, 64):
                width = min(64, self.paging.head_dim - column)
                piece = values.at[pl.ds(start, 64), pl.ds(column, width)]
                keep = plgpu.across(inside, width)
                piece[...] = jnp.where(keep, piece[...], jnp.zeros((), values.dtype))
        plgpu.commit_smem()
