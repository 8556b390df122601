"""From drawn settings to an engine whose worker, clock and host memory are simulated."""

import functools
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

from jax_engine import EngineConfig, LLMEngine
from jax_engine.core.block_manager import BlockManager
from jax_engine.core.scheduler import Scheduler
from jax_engine.engine.build import EngineParts
from jax_engine.tokenization.tokenizer import Tokenizer, load_tokenizer
from jax_engine.worker import host_blocks
from jax_engine.worker.preemption_costs import MeasuredCosts, measure_costs
from tests.simulation.clock import SimulatedClock
from tests.simulation.device import SimulatedDevice
from tests.simulation.faults import Faults
from tests.simulation.log import EventLog
from tests.simulation.model import EOS, VOCABULARY
from tests.simulation.settings import Settings
from tests.simulation.stub_worker import StubWorker
from tests.support.byte_tokenizer import save_letter_tokenizer


@functools.cache
def letter_tokenizer() -> Tokenizer:
    folder = Path(tempfile.mkdtemp())
    save_letter_tokenizer(folder, VOCABULARY, EOS)
    return load_tokenizer(folder)


@contextmanager
def simulated_host(faults: Faults) -> Iterator[None]:
    """Inside, the swap space gets its memory from a simulated host."""
    real, host_blocks.check_fits = host_blocks.check_fits, faults.check_fits
    try:
        yield
    finally:
        host_blocks.check_fits = real


def build_engine(
    settings: Settings, clock: SimulatedClock, faults: Faults, chance: Random, log: EventLog
) -> tuple[LLMEngine, SimulatedDevice]:
    """An engine with a stub for its worker."""
    worker = StubWorker(
        num_blocks=settings.num_blocks,
        num_cpu_blocks=settings.num_cpu_blocks,
        block_size=settings.config["block_size"],
        max_model_len=settings.max_model_len,
    )
    model: Any = SimpleNamespace(vocab_size=VOCABULARY)
    lose = worker.kv_cache.lose
    device = SimulatedDevice(worker, clock, faults, settings.speed, chance, log, lose)
    parts = SimpleNamespace(
        model_config=model,
        model_source=Path("stub"),
        memory=None,
        tokenizer=letter_tokenizer() if settings.has_text else None,
        eos_token_ids=frozenset([EOS]),
        head=None,
    )
    return assemble(settings, parts, device, clock), device


def assemble(settings: Settings, parts: Any, device: Any, clock: SimulatedClock) -> LLMEngine:
    """The engine of a device: what `jax_engine.engine.build` does behind the model."""
    config = EngineConfig(**settings.config)

    def host_room(wanted: list[int]) -> bool:
        return bool(device.kv_cache.host.make_room(wanted))

    blocks = BlockManager(
        config.block_size,
        settings.num_blocks,
        settings.num_cpu_blocks,
        watermark=settings.watermark,
        enable_prefix_caching=config.prefix_caching,
        table_width=device.table_width,
        host_room=host_room,
    )
    costs = MeasuredCosts(lambda: measure_costs(device, settings.max_model_len, clock))
    scheduler = Scheduler(
        blocks,
        max_num_seqs=config.max_num_seqs,
        max_num_batched_tokens=config.max_num_batched_tokens or 1,
        max_model_len=settings.max_model_len,
        scheduling=config.scheduling,
        policy=config.scheduling_policy,
        preemption_mode=config.preemption_mode,
        preemption_costs=costs,
        enable_chunked_prefill=config.chunked_prefill,
        long_prefill_token_threshold=config.long_prefill_token_threshold,
    )
    engine = LLMEngine(
        EngineParts(
            config=config,
            model_config=parts.model_config,
            model_source=parts.model_source,
            memory=parts.memory,
            scheduler=scheduler,
            worker=device,
            tokenizer=parts.tokenizer,
            max_model_len=settings.max_model_len,
            eos_token_ids=parts.eos_token_ids,
            preemption_costs=costs,
            head=parts.head,
        )
    )
    engine.clock = clock
    return engine
