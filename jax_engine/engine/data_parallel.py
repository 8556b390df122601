"""Several engines that are alike behind one `LLM`: how they are built, and who gets a request."""

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Lock

from jax_engine.config import EngineConfig
from jax_engine.engine.llm_engine import LLMEngine
from jax_engine.engine.request import Request
from jax_engine.engine.request_router import RequestRouter
from jax_engine.errors import ConfigError
from jax_engine.processes.places import Place, places


def build_engines(config: EngineConfig) -> list[LLMEngine]:
    """`data_parallel_size` engines. Where there are several, their models are in other processes.

    Each has its share of the cores, or GPUs of its own. They start at the same time.

    Raises:
        ConfigError: The machine has too few devices, or the models are asked for in this process.
        JaxEngineError: As `LLMEngine.from_config`, of the first engine that cannot be built.
    """
    count = config.data_parallel_size
    if count == 1:
        return [LLMEngine.from_config(config)]
    if config.distributed_executor_backend == "uni":
        raise ConfigError(
            "distributed_executor_backend must be 'mp' or 'ray' with several engines, whose models "
            f"are in processes of their own (data_parallel_size={count}), got 'uni'"
        )
    backend = config.distributed_executor_backend or "mp"
    each = replace(config, data_parallel_size=1, distributed_executor_backend=backend)

    def build(place: Place) -> LLMEngine:
        return LLMEngine.from_config(each, place)

    # If one of them cannot be built, nobody keeps the others: their processes end.
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(build, places(count, config.world_size)))


class Routes:
    """Which engine has which request.

    Only threads of engines' loops call it: so Ctrl-C, which comes to the main thread, interrupts
    nobody who holds the lock.
    """

    def __init__(self, engines: Sequence[LLMEngine]) -> None:
        blocks = engines[0].scheduler.block_manager
        cached = blocks.num_gpu_blocks * blocks.enable_prefix_caching
        self._router = RequestRouter(len(engines), blocks.block_size, cached)
        self._lock = Lock()

    def choose(self, requests: Iterable[Request]) -> list[int]:
        """The number of each request's engine. The requests have names, which no open one has."""
        with self._lock:
            return [
                self._router.choose(one.request_id, one.prompt.token_ids, one.group.cache_salt)
                for one in requests
            ]

    def end(self, request_ids: Iterable[str]) -> None:
        """These requests have ended."""
        with self._lock:
            for request_id in request_ids:
                self._router.end(request_id)

    def forget_prefixes(self) -> None:
        """The engines have emptied their prefix caches."""
        with self._lock:
            self._router.forget_prefixes()
