"""The world of the stub runner: what comes next is a pure function of the tokens."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from jax_engine.step import Capabilities
from tests.simulation.model import EOS, VOCABULARY, CheckingModel, Rules, Sample, contents, draw
from tests.simulation.requests import Request
from tests.simulation.settings import Settings
from tests.support.builders import letters
from tests.support.engine_under_test import DebugState
from tests.support.some_adapters import MODULES, mark_of_digest, offset_of, some_adapter
from tests.support.stub_runner import StubRunner


class StubWorld:
    """See `build.World`."""

    def adapt(self, settings: Settings) -> Settings:
        return settings

    def worker(self, settings: Settings) -> StubRunner:
        size = settings.config["block_size"]
        width = -(-settings.max_model_len // size)
        sizes = Capabilities(
            VOCABULARY, size, settings.num_blocks, settings.num_cpu_blocks, width, 64,
            max_loras=settings.config["max_loras"] if settings.has_adapters else 0,
        )  # fmt: skip
        return StubRunner(
            CheckingModel(), sizes, draw=draw, adapted=lambda one: CheckingModel(offset_of(one))
        )

    def cache(self, worker: StubRunner) -> "CacheOf":
        return CacheOf(worker)

    def parts(self, settings: Settings) -> Any:
        return SimpleNamespace(
            model_config=SimpleNamespace(
                vocab_size=VOCABULARY,
                spec=SimpleNamespace(is_encoder=False, token_types=None, width=8),
            ),
            model_source=Path("stub"),
            memory=None,
            tokenizer=letters(VOCABULARY, EOS) if settings.has_text else None,
            eos_token_ids=frozenset([EOS]),
            head=None,
            modules=lambda: MODULES,
        )

    def lose_cache(self, worker: StubRunner) -> None:
        worker.memory = None

    def samples(self, request: Request, seed: int, max_model_len: int) -> list[Sample] | None:
        params = request.params
        if len(request.prompt) >= max_model_len:
            return []  # it is refused
        rules = Rules(
            prompt=tuple(request.prompt),
            seed=seed,
            max_tokens=params.max_tokens,
            min_tokens=params.min_tokens,
            ignore_eos=params.ignore_eos,
            stop_token_ids=tuple(params.stop_token_ids or ()),
            stop=tuple(params.stop or ()),
            mark=_mark_of(request.adapter),
        )
        return [rules.sample(i, max_model_len) for i in range(params.n)]

    def check_contents(self, state: DebugState, worker: StubRunner, *, cached: bool) -> int:
        """Args:
        cached: Whether to look at the blocks of the prefix cache as well.
        """
        memory, in_host = worker.memory, 0
        on_device = memory.gpu[0, 0, :, 0, :, 0]
        for table, tokens, adapter in state.computed():
            if table.device == "cpu":
                found: Any = memory.host.read(table.ids)[:, 0, 0, 0, :, 0]
                in_host += len(table.ids)
            else:
                found = on_device[table.ids]
            found, wanted = (
                found.reshape(-1)[: len(tokens)],
                contents(tokens, 0 if adapter is None else offset_of(adapter)),
            )
            assert (found == wanted).all(), f"I13: {found} for {wanted}"
        for block, (tokens, salt) in state.blocks.cached.items() if cached else ():
            mark = mark_of_digest(salt[0]) if isinstance(salt, tuple) else 0
            wanted = contents(tokens, mark)[len(tokens) - state.blocks.block_size :]
            assert (on_device[block] == wanted).all(), f"I13: cached block {block}"
        return in_host


def _mark_of(number: int | None) -> int:
    return 0 if number is None else offset_of(some_adapter(number))


class CacheOf:
    """The cache that the stub has now, with the names of the engine's `KVCache`."""

    def __init__(self, worker: StubRunner) -> None:
        self._worker = worker

    def __getattr__(self, name: str) -> Any:
        return getattr(self._worker.memory, name)

    @property
    def array(self) -> np.ndarray:
        found: np.ndarray = self._worker.memory.gpu
        return found

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    def read(self, block: int) -> np.ndarray:
        return self.array[:, :, block].copy()

    def write(self, block: int, data: np.ndarray) -> None:
        self.array[:, :, block] = data
