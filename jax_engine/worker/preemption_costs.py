"""The costs of swapping and of recomputing on this machine, measured when first needed."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import jax
import numpy as np

from jax_engine.sampling.inputs import ROW_WIDTH
from jax_engine.step import Moves, RequestSetup, Row, Step
from jax_engine.worker.kv_cache import BLOCKS_A_CALL
from jax_engine.worker.step_shape import step_shape
from jax_engine.worker.worker import Worker

logger = logging.getLogger("jax_engine.core")
ROUNDS = 3
ENOUGH_S = 0.05  # a step this long is precise enough: larger ones are not tried
type Clock = Callable[[], float]
_OWN = -1  # a number that no request of an engine has


@dataclass(frozen=True, slots=True)
class PreemptionCosts:
    """What it costs to preempt, in seconds; `MeasuredCosts` measures it when it is first asked.

    Attributes:
        seconds_per_block: To move one KV block between the device and the host, one way.
        seconds_per_token: To recompute one token, as part of a long prompt step.
    """

    seconds_per_block: float
    seconds_per_token: float


class MeasuredCosts:
    """`PreemptionCosts` that are measured once, when first needed: most engines never preempt.

    Attributes:
        known: The measured costs; None before the measurement.
    """

    def __init__(self, measure: Callable[[], PreemptionCosts]) -> None:
        self._measure = measure
        self.known: PreemptionCosts | None = None

    @property
    def seconds_per_block(self) -> float:
        return self._get().seconds_per_block

    @property
    def seconds_per_token(self) -> float:
        return self._get().seconds_per_token

    def _get(self) -> PreemptionCosts:
        if self.known is None:
            self.known = self._measure()
            logger.info(
                "preemption costs %.3f ms to move a KV block one way, %.3f ms to recompute a token",
                1000 * self.known.seconds_per_block,
                1000 * self.known.seconds_per_token,
            )
        return self.known


def measure_costs(
    worker: Worker, max_model_len: int, clock: Clock = time.perf_counter
) -> PreemptionCosts:
    """Times moves and steps with nothing else on the device.

    It restores the contents of the cache on the device and on the host, so it may be called between
    any two steps, even while one is running. After a failure nothing is restored: the engine
    discards the cache's contents after any failed step.

    Args:
        clock: Gives the time in seconds.
    """
    return PreemptionCosts(
        seconds_per_block(worker, clock), seconds_per_token(worker, max_model_len, clock)
    )


def seconds_per_block(worker: Worker, clock: Clock = time.perf_counter) -> float:
    """Seconds to move one block one way, averaged over out and in; the fastest round counts."""
    kv_cache = worker.kv_cache
    count = min(BLOCKS_A_CALL, len(kv_cache.host), kv_cache.shape[2])
    blocks = list(range(count))
    if not kv_cache.host.make_room(blocks):
        return float("inf")
    pairs = list(zip(blocks, blocks, strict=True))
    held = kv_cache.host.read(blocks)  # a swapped-out sequence may own them
    jax.block_until_ready(kv_cache.array)

    def out_and_in() -> None:
        kv_cache.swap_out(pairs)
        kv_cache.swap_in(pairs)
        jax.block_until_ready(kv_cache.array)

    out_and_in()  # compiles, and takes memory for the host's pages
    seconds = min(_timed(out_and_in, clock) for _ in range(ROUNDS))
    kv_cache.host.write(blocks, held)
    return seconds / (2 * count)


def seconds_per_token(
    worker: Worker, max_model_len: int, clock: Clock = time.perf_counter
) -> float:
    """Times prompt steps that are already compiled, small ones first, until one is long enough.

    Steps that serve requests cannot be used: they overlap, and they contain decodes, which take
    longer per token than recomputation.
    """
    sizes = _compiled_sizes(worker, max_model_len) or [min(32, max_model_len)]
    best = float("inf")
    held = worker.kv_cache.read(0)  # the steps below write all their tokens to block 0
    for size in sizes:
        seconds = min(_timed(partial(_run_prompt, worker, size), clock) for _ in range(2))
        best = min(best, seconds / size)
        if seconds > ENOUGH_S:
            break
    worker.kv_cache.write(0, held)
    return best


def _compiled_sizes(worker: Worker, max_model_len: int) -> list[int]:
    """Lengths of single prompts that fill a compiled step, or max_model_len, small first."""
    most = [min(shape.num_tokens, max_model_len) for shape in worker.steps.compiled_shapes()]
    return sorted({n for n in most if n > 1 and worker.steps.has(step_shape(n, 1, 1))})


def _run_prompt(worker: Worker, num_tokens: int) -> None:
    """Runs one step with one prompt, whose block table is all zeros; it samples nothing."""
    nothing = np.zeros((2, 0), np.int32)
    setup = RequestSetup(
        _OWN, [0] * num_tokens, np.zeros((1, ROW_WIDTH), np.int32), nothing, nothing
    )
    row = Row(_OWN, _OWN, 0, setup.prompt_token_ids, num_samples=0)
    block_tables = np.zeros((1, worker.table_width), np.int32)
    step = Step([row], block_tables, Moves([], [], []), opened=[setup], closed=[_OWN])
    worker.collect(worker.launch(step))
    jax.block_until_ready(worker.kv_cache.array)


def _timed(call: Callable[[], None], clock: Clock) -> float:
    started = clock()
    call()
    return clock() - started
