"""Static parameters of the prefill kernel, and the span of context that a thread block needs."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from pallas_kernels.call import Options
from pallas_kernels.mosaic import plgpu
from pallas_kernels.mosaic.pages import Paging

# Rows of one warpgroup.
ROWS = 64
# Registers of a computing thread and of a copying thread, by the number of computing warpgroups.
# An SM has 65536 registers.
REGISTERS = {2: (232, 40), 3: (160, 32)}


@dataclass(frozen=True)
class Prefill:
    """Static parameters of the prefill kernel.

    Attributes:
        paging: sizes of the cache and of a stage.
        options: options of the call.
        stages: stages of the ring.
        warpgroups: number of computing warpgroups.
        ping_pong: whether two computing warpgroups take turns at the tensor core.
        group: query heads of one KV head.
        tile_queries: query tokens of a tile.
        has_slopes: whether ALiBi slopes are given.
        has_sinks: whether sinks are given.
        interpret: whether the kernel runs in the interpreter.
    """

    paging: Paging
    options: Options
    stages: int
    warpgroups: int
    ping_pong: bool
    group: int
    tile_queries: int
    has_slopes: bool
    has_sinks: bool
    interpret: bool

    @property
    def rows(self) -> int:
        """Rows of one thread block."""
        return ROWS * self.warpgroups

    @property
    def parts(self) -> int:
        """Thread blocks of one tile and KV head."""
        return -(-self.tile_queries * self.group // self.rows)

    def scratch(self, dtype: Any) -> dict[str, Any]:
        """Shared memory and barriers of one thread block."""
        sizes, groups = self.paging, self.warpgroups
        ring = plgpu.tiles((self.stages, sizes.block_kv, sizes.head_dim), dtype)
        arrived = plgpu.Barrier(num_arrivals=sizes.copies, num_barriers=self.stages)
        free = plgpu.Barrier(num_arrivals=groups, num_barriers=self.stages)
        all_meet = plgpu.Barrier(num_arrivals=groups)
        weights = plgpu.SMEM((groups, ROWS, sizes.block_kv), dtype)
        return {
            # Also holds the output at the end.
            "queries": plgpu.tiles((groups, ROWS, sizes.head_dim), dtype),
            "keys": ring,
            "values": ring,
            "log_sums": plgpu.SMEM((groups, ROWS), jnp.float32),
            "weights": weights if self.interpret else None,
            "queries_arrived": plgpu.Barrier(num_barriers=groups),
            "keys_arrived": arrived,
            "values_arrived": arrived,
            "keys_free": free,
            "values_free": free,
            "turn": all_meet if self.ping_pong else None,
            # In turns, the second warpgroup comes to a stage's values after the first one anyway.
            "cleared": None if self.ping_pong else all_meet,
        }


@dataclass(frozen=True)
class Span:
    """The part of the context that the rows of one thread block attend to ("see").

    Attributes:
        low: first position that any row sees.
        high: last position that any row sees, plus 1.
        first: first block_kv that any row sees part of.
        inner: first block_kv that all rows see completely.
        outer: first block_kv after these that some row does not see completely.
        last: last block_kv that any row sees part of, plus 1.
    """

    low: jax.Array
    high: jax.Array
    first: jax.Array
    inner: jax.Array
    outer: jax.Array
    last: jax.Array

    @staticmethod
    def of_rows(
        kernel: Prefill, position: jax.Array, first_row: jax.Array, queries: jax.Array
    ) -> "Span":
        """The span of rows from `first_row` on.

        Args:
            kernel: static parameters.
            position: position of the tile's first query.
            first_row: first row of the thread block in its tile.
            queries: number of the tile's queries.
        """
        size, window = kernel.paging.block_kv, kernel.options.window
        begin = position + plgpu.div(first_row, kernel.group)
        last_query = plgpu.div(first_row + (kernel.rows - 1), kernel.group)
        end = position + jnp.minimum(last_query + 1, queries)
        last = plgpu.div(end + (size - 1), size)
        if window is None:
            low = first = inner = jnp.zeros_like(begin)
        else:
            low = jnp.maximum(begin - (window - 1), 0)
            first = plgpu.div(low, size)
            inner = plgpu.div(jnp.maximum(end - window, 0) + (size - 1), size)
            inner = jnp.minimum(inner, last)
        outer = jnp.clip(plgpu.div(begin + 1, size), inner, last)
        return Span(low, end, first, inner, outer, last)
