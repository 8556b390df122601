"""A worker made of the oracle's parts: its KV cache, its sampler, and `ReadingModel` as the model.

The engine around it is the real one, and the oracle's engine with the same parts must give the same
in each step: tokens, candidates of beams, log-probabilities. What a sequence gets next is a hash of
what its block table leads to, so a wrong block, copy or swap shows in the tokens. Nothing is
compiled and nothing is rounded, but for float32 in log-probabilities.

The simulation has another worker without a device (`tests/simulation/stub_worker.py`), for hours of
traffic without an oracle's engine beside it.
"""

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from jax_engine import EngineConfig, LLMEngine
from jax_engine.core.block_manager import BlockManager
from jax_engine.core.scheduler import Scheduler
from jax_engine.engine.build import EngineParts
from jax_engine.worker.worker import SampleLogprobs, StepResult
from reference.engine import ReferenceEngine
from reference.kv_cache import KVCache, slot_of
from reference.random_numbers import derive_seed
from reference.sampling import candidates, log_softmax, sample
from tests.support.engine_pair import ENGINE_SEED
from tests.support.reading_model import ReadingModel
from tests.support.sometimes import saw
from tests.support.strategies import EOS, VOCABULARY, Settings

MOVES = ("swap_in", "swap_out", "copy")  # methods of the cache
COLLECTED_AFTER = {move: f"collect after {move}" for move in MOVES}
# Where a step fails: any step; or one in which blocks move, then or when it is collected.
IN_ANY_STEP = ("launch", "launched", "collect", "collected")
ALONE = "moves without a launch"
WHERE_BLOCKS_MOVE = (*MOVES, *COLLECTED_AFTER.values(), ALONE)
PLACES = IN_ANY_STEP + WHERE_BLOCKS_MOVE


class DeviceError(RuntimeError):
    """As a device raises that is out of memory."""


@dataclass(eq=False)
class Ticket:
    """A step: what was computed, when it was launched."""

    plan: Any
    result: StepResult


class ReferenceWorker:
    """What `LLMEngine` and its pipeline ask of a worker.

    Attributes:
        fail_at: Where a step raises, the first that comes there: one of PLACES; None for nowhere.
        in_flight: Steps that were launched and not collected.
    """

    Error = DeviceError

    def __init__(self, settings: Settings, eos_token_ids: set[int]) -> None:
        self.settings = settings
        self.eos_token_ids = eos_token_ids
        self.fail_at: str | None = None
        self.in_flight: list[Ticket] = []
        self.kv_cache = self  # `recover` is all that the engine asks of it
        self.mask_seconds = 0.0
        self._sampling: dict[str, tuple[Any, int]] = {}
        self._memory: Any = new_memory(settings)

    def add_request(
        self, request_id: str, params: Any, seed: int, eos_token_ids: Any, constraints: Any
    ) -> None:
        self._sampling[request_id] = params, seed

    def remove_request(self, request_id: str) -> None:
        self._sampling.pop(request_id, None)

    def recover(self) -> None:
        """What was in the cache is gone, and so are the steps."""
        self.in_flight.clear()
        self._memory = new_memory(self.settings)

    def move_blocks(self, plan: Any) -> None:
        swaps = plan.blocks_to_swap_in or plan.blocks_to_swap_out
        saw("copy-on-write", bool(plan.blocks_to_copy))
        saw("swap-only step", bool(swaps and not plan.scheduled))
        saw("rebuild", any(one.group.forked and one.num_tokens > 1 for one in plan.scheduled))
        moves = moves_of(plan)
        if moves and not plan.scheduled:
            self._may_fail(ALONE)
        for move, pairs in moves.items():
            self._may_fail(move)
            getattr(self._memory, move)(pairs)

    def launch(self, plan: Any, blocks: Any, before: Ticket | None = None) -> Ticket:
        self._may_fail("launch")
        self.move_blocks(plan)
        previous = [] if before is None else before.result.token_ids
        result = self._compute(plan.scheduled, blocks, previous)
        self._may_fail("launched")
        self.in_flight.append(Ticket(plan, result))
        return self.in_flight[-1]

    def collect(self, ticket: Ticket) -> StepResult:
        self.in_flight.remove(ticket)
        self._may_fail("collect")
        for move in moves_of(ticket.plan):
            self._may_fail(COLLECTED_AFTER[move])
        self._may_fail("collected")
        return ticket.result

    def is_in_flight(self, request_id: str) -> bool:
        """Whether a step that was launched, and not collected, computes tokens of a request."""
        steps = [ticket.plan.scheduled for ticket in self.in_flight]
        return any(item.group.request_id == request_id for step in steps for item in step)

    def _may_fail(self, place: str) -> None:
        if self.fail_at == place:
            self.fail_at = None
            self._memory = None  # until `recover`
            saw(f"a step failed: {place}")
            raise DeviceError(f"injected at {place}")

    def _compute(self, scheduled: list[Any], blocks: Any, previous: list[int]) -> StepResult:
        if not scheduled:
            return StepResult([], None, {})
        texts = [_known(item.seq, previous) for item in scheduled]
        hidden = self._forward(scheduled, texts, blocks)
        tokens: list[int] = []
        rows: list[tuple[np.ndarray, int, Any]] = []
        prompt: list[tuple[np.ndarray, int, Any]] = []
        at = 0
        for item, text in zip(scheduled, texts, strict=True):
            logits = [_logits(one) for one in hidden[at : at + item.num_tokens]]
            at += item.num_tokens
            for position, row in enumerate(logits, item.start + 1):
                following = text[position] if position < item.seq.prompt_len else 0
                prompt.append((log_softmax(row), following, None))
            drawn = self._sample(item, text, logits[-1]) if item.num_samples else []
            tokens += [token for _, token, _ in drawn]
            rows += drawn
        wants = [self._sampling[item.group.request_id][0] for item in scheduled]
        return StepResult(
            tokens,
            _logprobs(rows) if any(one.needs_logprobs for one in wants) else None,
            {},
            _logprobs(prompt) if any(one.prompt_logprobs is not None for one in wants) else None,
        )

    def _forward(self, scheduled: list[Any], texts: list[list[int]], blocks: Any) -> np.ndarray:
        tables = [list(blocks.block_table(item.seq.seq_id)) for item in scheduled]
        width = max(len(table) for table in tables)
        spans = [range(item.start, item.start + item.num_tokens) for item in scheduled]
        size = self.settings.block_size
        return ReadingModel().forward(
            np.array([text[p] for text, span in zip(texts, spans, strict=True) for p in span]),
            np.array([p for span in spans for p in span]),
            self._memory,
            np.array([table + [0] * (width - len(table)) for table in tables]),
            np.array([span.stop for span in spans]),
            np.cumsum([0, *(len(span) for span in spans)]),
            np.array([
                slot_of(table, p, size)
                for table, span in zip(tables, spans, strict=True) for p in span
            ]),
        )  # fmt: skip

    def _sample(
        self, item: Any, text: list[int], logits: np.ndarray
    ) -> list[tuple[np.ndarray, int, Any]]:
        """For each sample its log-probabilities and its token; of a beam its candidates, too."""
        params, seed = self._sampling[item.group.request_id]
        context: dict[str, Any] = {
            "prompt_token_ids": text[: item.seq.prompt_len],
            "output_token_ids": text[item.seq.prompt_len :],
            "eos_token_ids": self.eos_token_ids,
        }
        row = log_softmax(logits)
        if params.use_beam_search:
            return [(row, 0, candidates(logits, params, VOCABULARY, **context))]
        seeds = [derive_seed(seed, item.seq.index + i) for i in range(item.num_samples)]
        return [(row, sample(logits, params, seed=one, **context), None) for one in seeds]


def moves_of(plan: Any) -> dict[str, list[tuple[int, int]]]:
    """Which blocks a step moves, by one of MOVES, in the order of a step."""
    pairs = (plan.blocks_to_swap_in, plan.blocks_to_swap_out, plan.blocks_to_copy)
    return {move: own for move, own in zip(MOVES, pairs, strict=True) if own}


def _known(seq: Any, previous: list[int]) -> list[int]:
    """All tokens of a sequence, the one that the step before has drawn for it included."""
    return [*seq.token_ids, *([previous[-1 - seq.pending]] if seq.pending else [])]


def _logits(hidden: np.ndarray) -> np.ndarray:
    [row] = ReadingModel().compute_logits(hidden[None])
    return np.asarray(row)


def _logprobs(rows: list[tuple[np.ndarray, int, Any]]) -> SampleLogprobs:
    """As the sampler gives them: one row each, the most probable tokens best first."""
    count = len(rows)
    own, ranks = np.zeros(count, np.float32), np.zeros(count, np.int32)
    top = np.zeros((count, VOCABULARY), np.int32)
    values = np.full((count, VOCABULARY), -np.inf, np.float32)
    for i, (row, token, beam) in enumerate(rows):
        own[i], ranks[i] = row[token], 1 + (row > row[token]).sum()
        best = np.argsort(-row, kind="stable")
        pairs = [(one, row[one]) for one in best] if beam is None else beam
        for j, (one, value) in enumerate(pairs):
            top[i, j], values[i, j] = one, value
    return SampleLogprobs(own, ranks, top, values)


def new_memory(settings: Settings) -> KVCache:
    return KVCache(
        num_layers=1,
        num_blocks=settings.num_gpu_blocks,
        num_kv_heads=1,
        block_size=settings.block_size,
        head_dim=1,
        num_cpu_blocks=settings.num_cpu_blocks,
        dtype=np.float64,
    )


@cache
def _config() -> EngineConfig:
    return EngineConfig(
        model="stub", skip_tokenizer_init=True, seed=ENGINE_SEED, scheduling_policy="priority"
    )


def pair_without_device(settings: Settings, *, ahead: bool) -> tuple[LLMEngine, ReferenceEngine]:
    """An engine whose worker is made of the oracle's parts, and the oracle's engine."""
    blocks = settings.block_manager(
        BlockManager, table_width=-(-settings.max_model_len // settings.block_size)
    )
    scheduler = Scheduler(blocks, **settings.scheduler_arguments)
    worker: Any = ReferenceWorker(settings, {EOS})
    model: Any = _ModelConfig()
    nothing: Any = None
    config = replace(_config(), async_scheduling=ahead, scheduling_policy=settings.policy)
    parts = EngineParts(
        config, model, Path("stub"), nothing, scheduler, worker, None, settings.max_model_len,
        frozenset({EOS}), nothing, None,
    )  # fmt: skip
    reference = ReferenceEngine(
        ReadingModel(),
        new_memory(settings),
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
