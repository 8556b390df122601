"""From drawn settings to an engine whose runner, clock and host memory are simulated."""

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any, Protocol

from jax_engine import EngineConfig, LLMEngine
from jax_engine.engine.startup.build import EngineParts, build_scheduler, limits_of
from jax_engine.worker import kv_cache
from tests.simulation.clock import SimulatedClock
from tests.simulation.device import SimulatedDevice
from tests.simulation.faults import Faults
from tests.simulation.log import EventLog
from tests.simulation.model import Sample
from tests.simulation.requests import Request
from tests.simulation.settings import Settings
from tests.support.engine_under_test import DebugState


class World(Protocol):
    """What differs between a stub and a model."""

    def adapt(self, settings: Settings) -> Settings:
        """Settings that this worker can have."""

    def worker(self, settings: Settings) -> Any:
        """A worker without requests."""

    def cache(self, worker: Any) -> Any:
        """Its cache, with the names of the engine's `KVCache`."""

    def parts(self, settings: Settings) -> Any:
        """What else `EngineParts` wants to know of the model."""

    def lose_cache(self, worker: Any) -> None:
        """As a donated cache is lost with the step that was to replace it."""

    def samples(self, request: Request, seed: int, max_model_len: int) -> list[Sample] | None:
        """How a request must come out; None if rounding may decide."""

    def check_contents(self, state: DebugState, worker: Any, *, cached: bool) -> int:
        """I13, on the device and in the host's memory; how many blocks were looked at there."""


@contextmanager
def simulated_host(faults: Faults) -> Iterator[None]:
    """Inside, the swap space gets its memory from a simulated host."""
    real, kv_cache.check_fits = kv_cache.check_fits, faults.check_fits
    try:
        yield
    finally:
        kv_cache.check_fits = real


def build_engine(
    world: World,
    settings: Settings,
    clock: SimulatedClock,
    faults: Faults,
    chance: Random,
    log: EventLog,
) -> tuple[LLMEngine, SimulatedDevice]:
    """An engine, empty, and the device that its worker is on."""
    worker, parts = world.worker(settings), world.parts(settings)
    lose = functools.partial(world.lose_cache, worker)
    device = SimulatedDevice(
        worker, world.cache(worker), settings.max_model_len, settings.num_cpu_blocks, clock, faults,
        settings.speed, chance, log, lose,
    )  # fmt: skip
    return assemble(settings, parts, device, clock), device


def assemble(settings: Settings, parts: Any, device: Any, clock: SimulatedClock) -> LLMEngine:
    """The engine of a device: what `jax_engine.engine.startup.build` does behind the model."""
    config = EngineConfig(**settings.config)
    limits = limits_of(config, settings.max_model_len)
    scheduler = build_scheduler(config, limits, device, watermark=settings.watermark)
    device.watch(scheduler)
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
            head=parts.head,
            modules=parts.modules,
        )
    )
    engine.clock = clock
    return engine
