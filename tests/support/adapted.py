"""A worker that is driven by hand: sequences with adapters, of which logits are read."""

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from jax_engine import SamplingParams
from jax_engine.engine.running_requests import request_setup
from jax_engine.lora.adapted_leaves import adapted_leaves
from jax_engine.lora.adapter import AdaptedModule, Adapter
from jax_engine.lora.modules import Modules, modules_of
from jax_engine.models.leaves import abstract_leaves
from jax_engine.models.model_loader import LoadedModel, open_model
from jax_engine.step import Moves, RequestSetup, Row, Samples, Step
from jax_engine.worker.worker import Worker

BLOCK_SIZE, LONGEST, MAX_ROWS = 4, 40, 256
WIDTH = -(-LONGEST // BLOCK_SIZE)
SEQUENCES = 12
SLOTS, MAX_RANK = 3, 20
NO_MOVES = Moves([], [], [])
PROMPT = [(7 * i * i + 3 * i + 5) % 31 for i in range(13)]
CHUNKS = [PROMPT[:6], PROMPT[6:], [4], [9]]  # of a prompt, and two decodes
OF_MODEL = ("quantization", "tensor_parallel_size", "enable_expert_parallel")


def worker_of(path: Path, *, dtype: str = "float32", loras: int = SLOTS, **more: Any) -> Worker:
    """A worker with its weights, for SEQUENCES sequences.

    Args:
        more: For the worker, and those of OF_MODEL for the model.
    """
    of_model = {name: more.pop(name) for name in OF_MODEL if name in more}
    files = open_model(str(path), dtype=dtype, **of_model)
    options = {"max_lora_rank": MAX_RANK, "cache_dtype": dtype} | more
    worker = Worker(
        files.abstract,
        num_blocks=1 + SEQUENCES * WIDTH,
        num_cpu_blocks=4,
        block_size=BLOCK_SIZE,
        max_model_len=LONGEST,
        max_rows=MAX_ROWS,
        dtype=dtype,
        max_loras=loras,
        **options,
    )
    worker.set_weights(files.load())
    return worker


def supported(model: LoadedModel) -> list[str]:
    """The modules that adapters may change."""
    leaves = abstract_leaves(model.params, model.config.spec)
    found = adapted_leaves(model.config, leaves, 1, MAX_RANK)
    return list(dict.fromkeys(name for leaf in found for names in leaf.modules for name in names))


def adapter_of(
    names: Iterable[str],
    of: Modules,
    seed: int,
    *,
    rank: int | None = None,
    biased: bool = False,
    size: float = 0.3,
    b: float = 1.0,
) -> Adapter:
    """A random adapter of these modules.

    Args:
        rank: Rank of all modules; None: another one for each.
        b: What B is multiplied with.
    """
    rng, found = np.random.default_rng(seed), []
    for name in names:
        module, r = of.by_name[name], rank or int(rng.integers(1, MAX_RANK + 1))
        found.append(
            AdaptedModule(
                name,
                _drawn(rng, size, r, module.in_size),
                _drawn(rng, size * b / r**0.5, module.out_size, r),
                float(rng.choice([0.5, 1.0, 1.25])),
                _drawn(rng, size * b, module.out_size) if biased else None,
            )
        )
    return Adapter(tuple(found))


def _drawn(rng: np.random.Generator, size: float, *shape: int) -> np.ndarray:
    return (size * rng.normal(size=shape)).astype(np.float32)


class Driver:
    """Sequences of a worker: each has blocks of its own and remembers its tokens.

    Attributes:
        slots: Slot of each sequence's adapter.
    """

    def __init__(self, worker: Worker) -> None:
        self.worker, self.slots = worker, dict[int, int]()
        self._lengths, self._tables = dict[int, int](), dict[int, int]()
        self._opened = list[RequestSetup]()
        self._closed = list[int]()

    def open(
        self, seq: int, prompt: list[int], slot: int = 0, place: int | None = None, **asks: Any
    ) -> None:
        """A sequence of which nothing is computed yet; `place` names its blocks."""
        params = SamplingParams(temperature=0.0, max_tokens=10, **asks)
        setup = request_setup(seq, prompt, params, 0, frozenset([2]))
        setup = dataclasses.replace(setup, needs_logits=True, is_special=True)
        self._opened.append(setup)
        self.slots[seq], self._lengths[seq] = slot, 0
        self._tables[seq] = seq % SEQUENCES if place is None else place

    def close(self, seq: int) -> None:
        self._closed.append(seq)

    def step(self, *parts: tuple[int, list[int]], adapters: Any = ()) -> np.ndarray:
        """The logits behind each part's last token."""
        return self.read(self.launch(*parts, adapters=adapters))

    def launch(self, *parts: tuple[int, list[int]], adapters: Any = ()) -> Any:
        rows = [
            Row(seq, seq, self._lengths[seq], tokens, adapter=self.slots[seq])
            for seq, tokens in parts
        ]
        ends = np.cumsum([len(tokens) for _, tokens in parts]) - 1
        firsts = np.array([1 + self._tables[seq] * WIDTH for seq, _ in parts])
        tables = (firsts[:, None] + np.arange(WIDTH)).astype(np.int32)
        step = Step(
            rows,
            Samples(ends.tolist(), [0] * len(rows)),
            tables,
            NO_MOVES,
            self._opened,
            self._closed,
            adapters=list(adapters),
        )
        self._opened, self._closed = [], []
        for seq, tokens in parts:
            self._lengths[seq] += len(tokens)
        return self.worker.launch(step)

    def read(self, ticket: Any) -> np.ndarray:
        found = self.worker.collect(ticket).logits
        assert found is not None
        return np.array(found)


def logits_of(path: Path, **options: Any) -> np.ndarray:
    """The logits behind each of CHUNKS, by a worker without slots."""
    driver = Driver(worker_of(path, loras=0, **options))
    driver.open(1, PROMPT)
    return np.concatenate([driver.step((1, chunk)) for chunk in CHUNKS])


def beside(worker: Worker, adapter: Adapter, slot: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """The logits of a row with the adapter and of one without, which share each step of CHUNKS."""
    driver = Driver(worker)
    driver.open(1, PROMPT, slot=slot)
    driver.open(2, PROMPT)
    found = []
    for number, chunk in enumerate(CHUNKS):
        adapters = [(slot, adapter)] if number == 0 else []
        found.append(driver.step((1, chunk), (2, chunk), adapters=adapters))
    own, other = np.array(found).swapaxes(0, 1)
    return own, other


def modules_at(path: Path, quantization: str | None = None) -> tuple[Modules, list[str]]:
    """A checkpoint's modules, and the names of those that adapters may change."""
    model = open_model(str(path), quantization=quantization).abstract
    return modules_of(model.config), supported(model)
