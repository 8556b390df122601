"""Compiling every step before the first request comes (`LLM(..., warmup=True)`)."""

import logging
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat

from tqdm import tqdm

from jax_engine.operations import this_device
from jax_engine.progress_log import LONG_S
from jax_engine.sampling.asks import USUAL, Asks
from jax_engine.worker.compiled_steps import CompiledSteps
from jax_engine.worker.kv_cache import KVCache
from jax_engine.worker.step_shape import StepShape

logger = logging.getLogger("jax_engine.compile")
THREADS = 2  # one traces, holding Python's lock, while XLA compiles for the other


def compile_ahead(
    steps: CompiledSteps,
    kv_cache: KVCache,
    vocab_size: int,
    shapes: Sequence[StepShape],
    *,
    use_tqdm: bool = True,
    threads: int = THREADS,
) -> int:
    """Compiles the steps of these shapes that are not compiled yet, and the block copies.

    Returns:
        How many steps were missing. Those in the persistent cache are loaded from it.
    """
    started = time.perf_counter()
    missing = [shape for shape in shapes if not steps.has(shape)]
    # The longest first, so that it does not keep one thread busy alone at the end.
    missing.sort(key=lambda shape: (-shape.num_tokens, -shape.num_rows))
    kv_cache.warm_up()
    with (
        ThreadPoolExecutor(threads) as pool,
        tqdm(total=len(missing), desc="Compiling steps", disable=not use_tqdm) as bar,
    ):
        jobs = [pool.submit(steps.prepare_silently, one, kv_cache.array) for one in missing]
        try:
            for job in jobs:
                job.result()
                bar.update(1)
            if missing and this_device().branches_wait:  # none is where nothing is compiled
                sample = steps.sample
                rows, asks = _samplers(shapes)
                list(pool.map(sample.prepare, rows, repeat(vocab_size), asks))
        finally:
            pool.shutdown(cancel_futures=True)
    seconds = time.perf_counter() - started
    if seconds >= LONG_S:
        logger.info("%d steps compiled ahead in %.1f s", len(missing), seconds)
    return len(missing)


def _samplers(shapes: Sequence[StepShape]) -> tuple[list[int], list[Asks]]:
    """Numbers of rows, and what they may ask for."""
    rows = sorted({shape.num_rows for shape in shapes}, reverse=True)
    return [count for count in rows for _ in USUAL], [*USUAL] * len(rows)
