"""An engine whose runner has no device, and the oracle's engine with the same model.

The two must give the same in each step: tokens, candidates of beams, log-probabilities.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from jax_engine import EngineConfig, LLMEngine
from jax_engine.core.block_manager import BlockManager
from jax_engine.core.scheduler import Scheduler
from jax_engine.core.scheduler_output import SchedulerOutput
from jax_engine.engine.build import EngineParts
from jax_engine.step import Capabilities
from jax_engine.tokenization.tokenizer import Tokenizer
from reference.engine import ReferenceEngine
from reference.kv_cache import KVCache
from tests.support.engine_pair import ENGINE_SEED
from tests.support.reading_model import ReadingModel
from tests.support.sometimes import saw
from tests.support.strategies import EOS, VOCABULARY, Settings
from tests.support.stub_runner import StubRunner


@cache
def _config() -> EngineConfig:
    return EngineConfig(
        model="stub", skip_tokenizer_init=True, seed=ENGINE_SEED, scheduling_policy="priority"
    )


class WatchedScheduler(Scheduler):
    """Notes what no runner sees in a step."""

    def schedule(self) -> SchedulerOutput:
        plan = super().schedule()
        saw("rebuild", any(one.group.forked and one.num_tokens > 1 for one in plan.scheduled))
        return plan


def pair_without_device(
    settings: Settings,
    *,
    ahead: bool,
    tokenizer: Tokenizer | None = None,
    behind: int = 64,
    wrap: Callable[[Any], Any] = lambda runner: runner,
) -> tuple[LLMEngine, ReferenceEngine]:
    """An engine on a `StubRunner`, and the oracle's engine.

    Args:
        behind: The most tokens of prompts behind which a step is planned ahead.
        wrap: What the engine gets in the runner's place.
    """
    model: Any = ReadingModel()
    width = -(-settings.max_model_len // settings.block_size)
    sizes = settings.block_size, settings.num_gpu_blocks, settings.num_cpu_blocks
    runner = wrap(StubRunner(model, Capabilities(VOCABULARY, *sizes, width, behind), {EOS}))
    blocks = settings.block_manager(BlockManager, table_width=width, host_room=runner.host_room)
    nothing: Any = None
    model_config: Any = _ModelConfig()
    parts = EngineParts(
        replace(_config(), async_scheduling=ahead, scheduling_policy=settings.policy),
        model_config, Path("stub"), nothing,
        WatchedScheduler(blocks, **settings.scheduler_arguments),
        runner, tokenizer, settings.max_model_len, frozenset({EOS}), None,
    )  # fmt: skip
    reference = ReferenceEngine(
        model,
        KVCache(
            num_blocks=settings.num_gpu_blocks,
            block_size=settings.block_size,
            num_cpu_blocks=settings.num_cpu_blocks,
            dtype=np.float64,
            **model.config.cache_sizes(),
        ),
        eos_token_ids={EOS},
        seed=ENGINE_SEED,
        watermark=settings.watermark,
        enable_prefix_caching=settings.enable_prefix_caching,
        **settings.scheduler_arguments,
    )
    return LLMEngine(parts), reference


@dataclass(frozen=True)
class _ModelConfig:
    """What the checks of a request read."""

    vocab_size: int = VOCABULARY
