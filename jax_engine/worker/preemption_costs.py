"""The costs of swapping and of recomputing on this machine, measured."""

import time
from collections.abc import Callable
from functools import partial

import jax
import numpy as np

from jax_engine.sampling.sampling_inputs import ROW_WIDTH
from jax_engine.step import Moves, PreemptionCosts, RequestSetup, Row, Runner, Samples, Step
from jax_engine.worker.compiled_steps import CompiledSteps
from jax_engine.worker.kv_cache import BLOCKS_A_CALL, KVCache
from jax_engine.worker.step_shape import step_shape

ROUNDS = 3
ENOUGH_S = 0.05  # a step this long is precise enough: larger ones are not tried
type Clock = Callable[[], float]
_OWN = -1  # a number that no request of an engine has


def measure_costs(
    runner: Runner,
    steps: CompiledSteps,
    kv_cache: KVCache,
    max_model_len: int,
    clock: Clock = time.perf_counter,
) -> PreemptionCosts:
    """Times moves and steps with nothing else on the device.

    It restores the contents of the cache on the device and on the host, so it may be called between
    any two steps, even while one is running. After a failure nothing is restored: the engine
    discards the cache's contents after any failed step.

    Args:
        clock: Gives the time in seconds.
    """
    return PreemptionCosts(
        seconds_per_block(kv_cache, clock),
        seconds_per_token(runner, steps, kv_cache, max_model_len, clock),
    )


def seconds_per_block(kv_cache: KVCache, clock: Clock = time.perf_counter) -> float:
    """Seconds to move one block one way, averaged over out and in; the fastest round counts."""
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
    runner: Runner,
    steps: CompiledSteps,
    kv_cache: KVCache,
    max_model_len: int,
    clock: Clock = time.perf_counter,
) -> float:
    """Times prompt steps that are already compiled, small ones first, until one is long enough.

    Steps that serve requests cannot be used: they overlap, and they contain decodes, which take
    longer per token than recomputation.
    """
    sizes = _compiled_sizes(steps, max_model_len) or [min(32, max_model_len)]
    best = float("inf")
    held = kv_cache.read(0)  # the steps below write all their tokens to block 0
    for size in sizes:
        seconds = min(_timed(partial(_run_prompt, runner, kv_cache, size), clock) for _ in range(2))
        best = min(best, seconds / size)
        if seconds > ENOUGH_S:
            break
    kv_cache.write(0, held)
    return best


def _compiled_sizes(steps: CompiledSteps, max_model_len: int) -> list[int]:
    """Lengths of single prompts that fill a compiled step, or max_model_len, small first."""
    most = [min(shape.num_tokens, max_model_len) for shape in steps.compiled_shapes()]
    return sorted({n for n in most if n > 1 and steps.has(step_shape(n, 1, 1))})


def _run_prompt(runner: Runner, kv_cache: KVCache, num_tokens: int) -> None:
    """Runs one step with one prompt, whose block table is all zeros; it samples nothing."""
    nothing = np.zeros((2, 0), np.int32)
    setup = RequestSetup(
        _OWN, [0] * num_tokens, np.zeros((1, ROW_WIDTH), np.int32), nothing, nothing
    )
    row, samples = Row(_OWN, _OWN, 0, setup.prompt_token_ids), Samples([], [])
    block_tables = np.zeros((1, runner.capabilities.table_width), np.int32)
    step = Step([row], samples, block_tables, Moves([], [], []), opened=[setup], closed=[_OWN])
    runner.collect(runner.launch(step))
    jax.block_until_ready(kv_cache.array)


def _timed(call: Callable[[], None], clock: Clock) -> float:
    started = clock()
    call()
    return clock() - started
