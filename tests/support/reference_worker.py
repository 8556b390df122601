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
from types import SimpleNamespace
from typing import Any

import numpy as np

from jax_engine import EngineConfig, LLMEngine
from jax_engine.core.block_manager import BlockManager
from jax_engine.core.scheduler import Scheduler
from jax_engine.core.scheduler_output import SchedulerOutput
from jax_engine.engine.build import EngineParts
from jax_engine.sampling.inputs import FLOATS, WANTS_PROCESSED, row_fields
from jax_engine.step import RequestSetup, Row, SampleLogprobs, Step, StepResult
from jax_engine.tokenization.tokenizer import Tokenizer
from reference.engine import ReferenceEngine
from reference.kv_cache import KVCache, slot_of
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

    step: Step
    result: StepResult


class ReferenceWorker:
    """What `LLMEngine` and its pipeline ask of a worker.

    Attributes:
        fail_at: Where a step raises, the first that comes there: one of PLACES; None for nowhere.
        in_flight: Steps that were launched and not collected.
        setups: What it was told of the requests, by number.
    """

    Error = DeviceError

    def __init__(self, settings: Settings, eos_token_ids: set[int]) -> None:
        self.settings = settings
        self.eos_token_ids = eos_token_ids
        self.fail_at: str | None = None
        self.in_flight: list[Ticket] = []
        self.setups: dict[int, RequestSetup] = {}
        self._last_tokens: list[int] = []
        self._memory: Any = new_memory(settings)

    def recover(self) -> None:
        """What was in the cache is gone, and so are the steps and the requests."""
        self.in_flight.clear()
        self.setups.clear()
        self._memory = new_memory(self.settings)

    def launch(self, step: Step) -> Ticket:
        if step.rows:
            self._may_fail("launch")
        self.setups |= {setup.number: setup for setup in step.opened}
        self._move_blocks(step)
        result = self._compute(step)
        for number in step.closed:
            self.setups.pop(number, None)
        if step.rows:
            self._may_fail("launched")
        if result.token_ids:
            self._last_tokens = result.token_ids
        ticket = Ticket(step, result)
        if step.rows:
            self.in_flight.append(ticket)
        return ticket

    def collect(self, ticket: Ticket) -> StepResult:
        if ticket.step.rows:
            self.in_flight.remove(ticket)
        self._may_fail("collect")
        for move in moves_of(ticket.step):
            self._may_fail(COLLECTED_AFTER[move])
        self._may_fail("collected")
        return ticket.result

    def is_in_flight(self, number: int) -> bool:
        """Whether a step that was launched, and not collected, computes tokens of a request."""
        return any(row.request == number for one in self.in_flight for row in one.step.rows)

    def _move_blocks(self, step: Step) -> None:
        moves = moves_of(step)
        saw("copy-on-write", "copy" in moves)
        saw("swap-only step", bool(moves.keys() - {"copy"}) and not step.rows)
        if moves and not step.rows:
            self._may_fail(ALONE)
        for move, pairs in moves.items():
            self._may_fail(move)
            getattr(self._memory, move)(pairs)

    def _may_fail(self, place: str) -> None:
        if self.fail_at == place:
            self.fail_at = None
            self._memory = None  # until `recover`
            saw(f"a step failed: {place}")
            raise DeviceError(f"injected at {place}")

    def _compute(self, step: Step) -> StepResult:
        if not step.rows:
            return StepResult([])
        hidden = self._forward(step)
        tokens: list[int] = []
        rows: list[tuple[np.ndarray, int, Any]] = []
        prompt: list[tuple[np.ndarray, int, Any]] = []
        at = 0
        for row in step.rows:
            logits = [_logits(one) for one in hidden[at : at + len(row.tokens)]]
            at += len(row.tokens)
            text = self.setups[row.request].prompt_token_ids
            for position, one in enumerate(logits, row.start + 1):
                following = text[position] if position < len(text) else 0
                prompt.append((log_softmax(one), following, None))
            drawn = self._sample(row, logits[-1]) if row.num_samples else []
            tokens += [token for _, token, _ in drawn]
            rows += drawn
        setups = [self.setups[row.request] for row in step.rows]
        return StepResult(
            tokens,
            _logprobs(rows) if any(one.wants_logprobs for one in setups) else None,
            _logprobs(prompt) if any(one.prompt_logprobs for one in setups) else None,
        )

    def _forward(self, step: Step) -> np.ndarray:
        size, spans = self.settings.block_size, [range(row.start, row.end) for row in step.rows]
        return ReadingModel().forward(
            np.array([self._known(token) for row in step.rows for token in row.tokens]),
            np.array([p for span in spans for p in span]),
            self._memory,
            step.block_tables,
            np.array([span.stop for span in spans]),
            np.cumsum([0, *(len(span) for span in spans)]),
            np.array([
                slot_of(table, p, size)
                for table, span in zip(step.block_tables.tolist(), spans, strict=True)
                for p in span
            ]),
        )  # fmt: skip

    def _sample(self, row: Row, logits: np.ndarray) -> list[tuple[np.ndarray, int, Any]]:
        """For each sample its log-probabilities and its token; of a beam its candidates, too."""
        setup = self.setups[row.request]
        length = len(setup.prompt_token_ids)
        history = [0] * row.end if row.history is None else [*map(self._known, row.history)]
        context: dict[str, Any] = {
            "prompt_token_ids": setup.prompt_token_ids,
            "output_token_ids": history[length:],
            "eos_token_ids": self.eos_token_ids,
        }
        own = log_softmax(logits)
        samples = [unpacked(setup, row.sample + i) for i in range(row.num_samples)]
        if samples[0].use_beam_search:
            return [(own, 0, candidates(logits, samples[0], VOCABULARY, **context))]
        return [(own, sample(logits, one, seed=one.seed, **context), None) for one in samples]

    def _known(self, token: int) -> int:
        """A token, or the one that the step before has drawn in its place."""
        return token if token >= 0 else self._last_tokens[-1 - token]


def unpacked(setup: RequestSetup, sample: int) -> Any:
    """What the oracle's sampler reads of a request's parameters, from the words of one sample."""
    words = {name: setup.rows[sample, at] for name, at in row_fields().items()}
    high, low = words["seed"].view(np.uint32).tolist()
    floats = {name: _shortest(words[name].view(np.float32)[0]) for name in FLOATS}
    bias = dict(zip(setup.bias[0].tolist(), setup.bias[1].view(np.float32).tolist(), strict=True))
    return SimpleNamespace(
        **floats,
        seed=high << 32 | low,
        top_k=int(words["top_k"][0]),
        use_beam_search=words["want_logprobs"][0] == WANTS_PROCESSED,
        min_tokens=setup.min_tokens,
        stop_token_ids=setup.forbidden[0].tolist(),
        ignore_eos=False,
        logit_bias=bias or None,
    )


def _shortest(value: np.float32) -> float:
    """The number that somebody wrote who got this float32."""
    return float(str(value))


def moves_of(step: Step) -> dict[str, list[tuple[int, int]]]:
    """Which blocks a step moves, by one of MOVES, in the order of a step."""
    return {move: pairs for move, pairs in zip(MOVES, step.moves, strict=True) if pairs}


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


class WatchedScheduler(Scheduler):
    """Notes what no worker sees in a step."""

    def schedule(self) -> SchedulerOutput:
        plan = super().schedule()
        saw("rebuild", any(one.group.forked and one.num_tokens > 1 for one in plan.scheduled))
        return plan


def pair_without_device(
    settings: Settings, *, ahead: bool, tokenizer: Tokenizer | None = None
) -> tuple[LLMEngine, ReferenceEngine]:
    """An engine whose worker is made of the oracle's parts, and the oracle's engine."""
    blocks = settings.block_manager(
        BlockManager, table_width=-(-settings.max_model_len // settings.block_size)
    )
    scheduler = WatchedScheduler(blocks, **settings.scheduler_arguments)
    worker: Any = ReferenceWorker(settings, {EOS})
    model: Any = _ModelConfig()
    nothing: Any = None
    config = replace(_config(), async_scheduling=ahead, scheduling_policy=settings.policy)
    parts = EngineParts(
        config, model, Path("stub"), nothing, scheduler, worker, tokenizer, settings.max_model_len,
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
