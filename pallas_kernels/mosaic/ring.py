"""The ring of stages in shared memory that passes keys and values to the prefill's warpgroups."""

import functools
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl

from pallas_kernels.mosaic import plgpu, softmax
from pallas_kernels.mosaic.pages import Context
from pallas_kernels.mosaic.prefill_plan import ROWS, Prefill, Span


@dataclass(frozen=True)
class Rows:
    """The 64 rows of one warpgroup.

    Attributes:
        queries: the rows' queries, in shared memory.
        position: position of each row's query.
        slopes: ALiBi slope of each row.
        sinks: sink of each row.
        warpgroup: index of the warpgroup.
    """

    queries: Any
    position: jax.Array
    slopes: jax.Array | None
    sinks: jax.Array | None
    warpgroup: jax.Array


@dataclass(frozen=True)
class Ring:
    """Stages of keys and values in shared memory, filled by one warpgroup, read by the others."""

    kernel: Prefill
    context: Context
    span: Span
    scratch: dict[str, Any]

    def produce(self) -> None:
        """Copy the keys and values that the rows see, stage by stage."""

        def fill(block: jax.Array, _: None) -> None:
            turn = block - self.span.first
            slot = plgpu.rem(turn, self.kernel.stages)
            found = self.context.find(block)
            for which, name in enumerate(("keys", "values")):
                free = self.scratch[f"{name}_free"].at[slot]
                pl.when(turn >= self.kernel.stages)(functools.partial(plgpu.barrier_wait, free))
                arrived = self.scratch[f"{name}_arrived"].at[slot]
                self.context.copy(block, found, which, self.scratch[name].at[slot], arrived)

        lax.fori_loop(self.span.first, self.span.last, fill, None)

    def consume(self, rows: Rows) -> softmax.Running:
        """Attend to all stages.

        With ping-pong, the two warpgroups take turns: one multiplies while the other one computes
        exponentials. Each waits for the other twice a stage: when its product of queries and keys
        has been started, and before it multiplies weights by values. The second warpgroup waits
        once more before its first stage, and the first one once more after its last. Both attend to
        the same stages, so they meet equally often, and the second one is half a stage behind.
        """
        span, turn = self.span, self.scratch["turn"]
        if turn is not None:
            pl.when(rows.warpgroup == 1)(functools.partial(_meet, turn))
        edge = functools.partial(self._attend, rows, True)
        inside = functools.partial(self._attend, rows, False)
        running: softmax.Running = softmax.start(ROWS, self.kernel.paging.head_dim, rows.sinks)
        if self.kernel.options.window is not None:
            running = lax.fori_loop(span.first, span.inner, edge, running)
        running = lax.fori_loop(span.inner, span.outer, inside, running)
        running = lax.fori_loop(span.outer, span.last, edge, running)
        if turn is not None:
            pl.when(rows.warpgroup == 0)(functools.partial(_meet, turn))
        return running

    def _attend(
        self, rows: Rows, edge: bool, block: jax.Array, running: softmax.Running
    ) -> softmax.Running:
        slot = plgpu.rem(block - self.span.first, self.kernel.stages)
        keys, values = self.scratch["keys"].at[slot], self.scratch["values"].at[slot]
        values_arrived = self.scratch["values_arrived"].at[slot]
        # With a window there is more code for edges: clear before the scores take registers.
        early = edge and self.kernel.options.window is not None
        if early:
            plgpu.barrier_wait(values_arrived)
            self._clear(rows, block, values)
        plgpu.barrier_wait(self.scratch["keys_arrived"].at[slot])
        turn = self.scratch["turn"]
        meet = None if turn is None else functools.partial(_meet, turn)
        products = plgpu.product(rows.queries, keys.transpose((1, 0)), meet)
        plgpu.barrier_arrive(self.scratch["keys_free"].at[slot])
        raw, factor = self._scores(rows, edge, block, products)
        running, weights = softmax.add_scores(running, raw, factor)
        weights = weights.astype(values.dtype)
        if turn is not None:
            # The exponentials are computed before the other warpgroup's turn at them.
            running, weights = lax.optimization_barrier((running, weights))
            plgpu.barrier_arrive(turn)
        if not early:
            plgpu.barrier_wait(values_arrived)
        if turn is not None:
            plgpu.barrier_wait(turn)
        if edge and not early:
            self._clear(rows, block, values)
        staging = self.scratch["weights"]
        staging = None if staging is None else staging.at[rows.warpgroup]
        out = plgpu.add_product(running.out, weights, values, staging)
        plgpu.barrier_arrive(self.scratch["values_free"].at[slot])
        return running._replace(out=out)

    def _scores(
        self, rows: Rows, edge: bool, block: jax.Array, products: jax.Array
    ) -> tuple[jax.Array, float]:
        """Scores of one stage; minus infinity for keys that a row does not see."""
        options = self.kernel.options
        position = block * self.kernel.paging.block_kv + plgpu.indices(products.shape, 1)
        distance = position - plgpu.across(rows.position, products.shape[1])
        raw, factor = softmax.scores(products, distance, rows.slopes, options)
        if edge:
            visible = distance <= 0
            if options.window is not None:
                visible &= distance > -options.window
            raw = jnp.where(visible, raw, -jnp.inf)
        return raw, factor

    def _clear(self, rows: Rows, block: jax.Array, values: Any) -> None:
        """Zero the values that no row sees; the first warpgroup does so, before any reads them."""

        @pl.when(self.context.has_edge(block))
        def _() -> None:
            first = rows.warpgroup == 0
            pl.when(first)(functools.partial(self.context.clear_outside, block, values))
            if self.scratch["cleared"] is not None:
                _meet(self.scratch["cleared"])


def _meet(barrier: Any) -> None:
    plgpu.barrier_arrive(barrier)
    plgpu.barrier_wait(barrier)
