"""Makes engines, and the oracle's beside them; all that tests know of how one is put together.

On a tiny Llama, whose compiled steps are kept from example to example: only the scheduler is made
anew. Or on a runner without a device, where tokens, candidates of beams and log-probabilities are
the oracle's to the bit.
"""

import functools
import tempfile
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np

from jax_engine import EngineConfig, LLMEngine
from jax_engine.config.speculative_config import SpeculativeConfig
from jax_engine.core.block_manager import BlockManager
from jax_engine.core.decoding import Drafts
from jax_engine.core.scheduler import Scheduler
from jax_engine.core.scheduler_output import SchedulerOutput
from jax_engine.engine.startup.build import EngineParts, build_engine
from jax_engine.engine.startup.open_draft import DraftParts
from jax_engine.operations import device
from jax_engine.speculation.draft_model import scratch_blocks
from jax_engine.speculation.speculator import MAX_DRAFT_TOKENS
from jax_engine.step import Capabilities
from jax_engine.tokenization.tokenizer import Tokenizer, load_tokenizer
from reference.engine import ReferenceEngine
from reference.kv_cache import KVCache
from reference.transformer import Transformer
from tests.golden.families.checkpoints import cases
from tests.golden.families.parity import write
from tests.support import tiny_llama as tiny
from tests.support.byte_tokenizer import save_letter_tokenizer
from tests.support.engine_pair import ENGINE_SEED, MAX_LEN, TOLERANCES, Oracle, cache_for
from tests.support.quantised_llama import quantised_llama
from tests.support.reading_model import ReadingModel, with_adapter
from tests.support.some_adapters import MODULES
from tests.support.sometimes import saw
from tests.support.strategies import EOS, VOCABULARY, Settings
from tests.support.stub_runner import StubRunner

MAX_SEQS = 4
# The sizes that 2, 4 and 8 devices share; the vocabulary of 31 is none of their multiples.
MANY_HEADS = {
    "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 4, "intermediate_size": 32,
}  # fmt: skip
ENGINES_OWN = {"async_scheduling", "tokenizer"}  # settings that the oracle's engine has not


@dataclass(frozen=True)
class Pool:
    """What the compiled steps depend on: the block size and the number of blocks.

    Attributes:
        weights: How they are quantised: see `quantised_llama`.
        branches_wait: The sampler is a program of its own, as on a GPU.
        accepts_guesses: A draft model goes on behind steps that are not read, as on a GPU.
        family: A case of `tests.golden.families` in the tiny Llama's place. It has no oracle here.
        draft: The draft model for engines that ask for one: "itself", or "other" weights.
        devices: How many share the model, which then has 16 heads and 4 KV heads. A process with
            several is one of its own: see `tests/parallel`.
    """

    block_size: int
    num_blocks: int
    sliding_window: int | None = None
    cache_dtype: str = "auto"
    weights: str | None = None
    branches_wait: bool = False
    accepts_guesses: bool = False
    family: str | None = None
    dtype: str = "float32"
    max_seqs: int = MAX_SEQS
    max_len: int = MAX_LEN
    draft: str | None = None
    devices: int = 1


@functools.cache
def model_pair(
    window: int | None, weights: str | None = None, *, many_heads: bool = False
) -> tuple[Path, Transformer]:
    folder = Path(tempfile.mkdtemp()) / "tiny"
    if weights is not None:
        return quantised_llama(folder, weights, sliding_window=window)
    changes = MANY_HEADS if many_heads else {}
    return tiny.tiny_llama(folder, sliding_window=window, **changes)


def _model_of(pool: Pool) -> tuple[Path, Transformer]:
    return model_pair(pool.sliding_window, pool.weights, many_heads=pool.devices > 1)


@functools.cache
def family(name: str, max_len: int) -> Path:
    """A golden checkpoint of a family, which takes sequences of at least this length."""
    folder, case = Path(tempfile.mkdtemp()), cases()[name]
    longest = max(case["config"].get("max_position_embeddings", 0), max_len)
    write(case | {"config": case["config"] | {"max_position_embeddings": longest}}, folder)
    return folder


@functools.cache
def oracle_for(pool: Pool) -> Transformer:
    """The oracle's decoder, which takes the scales of an 8-bit cache from the engine."""
    _, transformer = _model_of(pool)
    if pool.cache_dtype == "auto":
        return transformer
    oracle = Oracle(transformer.config, transformer.weights)
    scales = np.asarray(_parts_for(pool).worker.steps.kv_scales)
    repeated = scales.shape[2] // transformer.config.num_key_value_heads  # for more devices
    oracle.cache = {"scales": scales[:, :, ::repeated], "kind": pool.cache_dtype}
    oracle.tolerance = TOLERANCES[pool.cache_dtype]
    return oracle


def parts_for(pool: Pool) -> EngineParts:
    """The parts of an engine, made once; the worker forgets the requests of the engine before."""
    parts = _parts_for(pool)
    for worker in (parts.worker, *([parts.draft.runner] if parts.draft else [])):
        worker.setups.clear()  # what ended in that engine's last step it was never told
    return parts


@functools.cache
def _parts_for(pool: Pool) -> EngineParts:
    if pool.family is not None:
        path = family(pool.family, pool.max_len)
    else:
        path, _ = _model_of(pool)
    config = EngineConfig(
        model=str(path),
        skip_tokenizer_init=True,
        block_size=pool.block_size,
        num_gpu_blocks_override=pool.num_blocks,
        max_model_len=pool.max_len,
        max_num_seqs=pool.max_seqs,
        max_num_batched_tokens=max(pool.max_len, pool.max_seqs),
        dtype=pool.dtype,  # type: ignore[arg-type]
        swap_space=0.1,
        seed=ENGINE_SEED,
        kv_cache_dtype=pool.cache_dtype,  # type: ignore[arg-type]
        speculative_config=_draft_config(pool, path),
        tensor_parallel_size=pool.devices,
        enable_prompt_embeds=pool.family is None,  # some are encoders
    )
    cpu, *others = device.DEVICES
    as_asked = cpu._replace(branches_wait=pool.branches_wait, accepts_guesses=pool.accepts_guesses)
    devices = (as_asked, *others)
    with patch.object(device, "DEVICES", devices):
        return build_engine(config)


def _draft_config(pool: Pool, target: Path) -> SpeculativeConfig | None:
    if pool.draft is None:
        return None
    path = target if pool.draft == "itself" else other_model()
    return SpeculativeConfig(model=path, num_speculative_tokens=MAX_DRAFT_TOKENS)


@functools.cache
def other_model() -> Path:
    """A smaller model with the same tokens."""
    path, _ = tiny.tiny_llama(Path(tempfile.mkdtemp()) / "other", seed=1, num_hidden_layers=1)
    return path


def build_one(
    pool: Pool,
    *,
    num_cpu_blocks: int,
    prefix_caching: bool,
    async_scheduling: bool = True,
    tokenizer: Tokenizer | None = None,
    speculation: SpeculativeConfig | None = None,
    draft: DraftParts | None = None,
    **settings: Any,
) -> LLMEngine:
    """An empty engine with these scheduler settings; CPU blocks as far as they go.

    Args:
        draft: In the place of the pool's, if `speculation` asks for a draft model.
    """
    parts = parts_for(pool)
    settings = {"max_samples": parts.worker.capabilities.max_samples} | settings
    if speculation is not None:
        settings = {"max_draft_tokens": MAX_DRAFT_TOKENS} | settings
    blocks = BlockManager(
        pool.block_size,
        pool.num_blocks,
        min(num_cpu_blocks, parts.worker.capabilities.num_cpu_blocks),
        enable_prefix_caching=prefix_caching,
        table_width=-(-pool.max_len // pool.block_size),
    )
    scheduler = Scheduler(blocks, **(_limits(pool) | settings))
    own = replace(
        parts.config,
        scheduling_policy=scheduler.policy,
        async_scheduling=async_scheduling,
        speculative_config=speculation,
    )
    draft = draft or parts.draft
    return LLMEngine(
        replace(parts, config=own, scheduler=scheduler, tokenizer=tokenizer, draft=draft)
    )


def build_pair(
    pool: Pool, *, num_cpu_blocks: int, prefix_caching: bool, **settings: Any
) -> tuple[LLMEngine, ReferenceEngine]:
    """Both engines, empty, with these settings."""
    num_cpu_blocks = min(num_cpu_blocks, parts_for(pool).worker.capabilities.num_cpu_blocks)
    engine = build_one(
        pool, num_cpu_blocks=num_cpu_blocks, prefix_caching=prefix_caching, **settings
    )
    transformer = oracle_for(pool)
    sizes = {"num_blocks": pool.num_blocks, "block_size": pool.block_size}
    cache = cache_for(transformer, **sizes, num_cpu_blocks=num_cpu_blocks)
    limits = {name: one for name, one in settings.items() if name not in ENGINES_OWN}
    reference = ReferenceEngine(
        transformer, cache, eos_token_ids=[tiny.EOS], seed=ENGINE_SEED,
        enable_prefix_caching=prefix_caching, **(_limits(pool) | limits),
    )  # fmt: skip
    return engine, reference


def _limits(pool: Pool) -> dict[str, Any]:
    return {"max_model_len": pool.max_len, "max_num_seqs": pool.max_seqs}


@functools.cache
def _stub_config() -> EngineConfig:
    return EngineConfig(
        model="stub", skip_tokenizer_init=True, seed=ENGINE_SEED, scheduling_policy="priority"
    )


class WatchedScheduler(Scheduler):
    """Notes what no runner sees in a step."""

    def schedule(self, drafts: Drafts | None = None) -> SchedulerOutput:
        plan = super().schedule(drafts)
        saw("rebuild", any(one.group.forked and one.num_tokens > 1 for one in plan.scheduled))
        victims = [self.groups[name] for name, _ in plan.preempted]
        saw("preempted with an adapter", any(one.adapter is not None for one in victims))
        saw("preempted in flight", any(one.in_flight for one in victims))
        return plan


def pair_without_device(
    settings: Settings,
    *,
    ahead: bool,
    tokenizer: Tokenizer | None = None,
    behind: int = 64,
    wrap: Callable[[Any], Any] = lambda runner: runner,
    speculation: SpeculativeConfig | None = None,
    draft: DraftParts | None = None,
    stages: int = 1,
) -> tuple[LLMEngine, ReferenceEngine]:
    """An engine on a `StubRunner`, and the oracle's engine, which never has guesses.

    Args:
        behind: The most tokens of prompts behind which a step is planned ahead.
        wrap: What the engine gets in the runner's place.
        draft: As `stub_draft` makes it, if `speculation` asks for a draft model.
        stages: How many steps the runner computes at once.
    """
    drafts = {} if speculation is None else {"max_draft_tokens": MAX_DRAFT_TOKENS}
    model: Any = ReadingModel()
    width = -(-settings.max_model_len // settings.block_size)
    sizes = settings.block_size, settings.num_gpu_blocks, settings.num_cpu_blocks
    known = Capabilities(
        VOCABULARY, *sizes, width, behind, max_loras=settings.max_loras,
        max_concurrent_batches=stages,
    )  # fmt: skip
    stub = StubRunner(model, known, {EOS})
    runner = wrap(stub)
    blocks = settings.block_manager(BlockManager, table_width=width, host_room=runner.host_room)
    memory: Any = SimpleNamespace(num_blocks=settings.num_gpu_blocks)
    model_config: Any = _ModelConfig()
    config = replace(
        _stub_config(),
        async_scheduling=ahead,
        scheduling_policy=settings.policy,
        speculative_config=speculation,
        enable_lora=settings.max_loras > 0,
        max_loras=max(1, settings.max_loras),
    )
    parts = EngineParts(
        config, model_config, Path("stub"), memory,
        WatchedScheduler(
            blocks, **settings.scheduler_arguments, **drafts, max_concurrent_batches=stages
        ),
        runner, tokenizer, settings.max_model_len, frozenset({EOS}), None, draft,
        lambda: MODULES,
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
        adapted=with_adapter,
        **settings.scheduler_arguments,
    )
    engine = LLMEngine(parts)
    stub.wanted = functools.partial(_digest_of, weakref.ref(engine))
    return engine, reference


def _digest_of(engine: Callable[[], LLMEngine | None], number: int) -> str | None:
    """Digest of an unfinished request's adapter. Raises KeyError if there is no such request."""
    alive = engine()
    assert alive is not None, "it runs"
    for request in alive._running.requests.values():
        if request.group.number == number:
            adapter = request.group.adapter
            return None if adapter is None else adapter.digest
    raise KeyError(number)


def stub_draft(
    settings: Settings,
    speculation: SpeculativeConfig,
    *,
    model: Any = None,
    max_len: int | None = None,
    budget: int = 64,
    accepts: bool = False,
) -> DraftParts:
    """A draft model without a device.

    Args:
        model: None: the one that the target's stub has.
        max_len: The longest text that it reads; None: as the target.
        budget: Tokens that it computes in one step.
        accepts: Whether its device accepts guesses.
    """
    longest = settings.max_model_len if max_len is None else max_len
    most = speculation.num_speculative_tokens or 0
    scratch = scratch_blocks(most, MAX_DRAFT_TOKENS, settings.max_num_seqs, settings.block_size)
    sizes = settings.block_size, settings.num_gpu_blocks + scratch, 0
    width = -(-longest // settings.block_size)
    known = Capabilities(VOCABULARY, *sizes, width, 64, accepts_guesses=accepts)
    runner = StubRunner(model or ReadingModel(), known, {EOS})
    return DraftParts(runner, settings.num_gpu_blocks, longest, budget, cost=0.3)


@dataclass(frozen=True)
class _ModelConfig:
    """What the checks of a request read."""

    vocab_size: int = VOCABULARY
    hidden_size: int = 1
    spec: Any = field(
        default_factory=lambda: SimpleNamespace(is_encoder=False, token_types=None, width=8)
    )


SETTINGS = Settings(4, 40, 8, 0.0, True, 8, 64, 40, "unified", "fcfs", None, True, 0)


@functools.cache
def letters(vocabulary: int = VOCABULARY, eos: int = EOS) -> Tokenizer:
    folder = Path(tempfile.mkdtemp())
    save_letter_tokenizer(folder, vocabulary, eos)
    return load_tokenizer(folder)


def small_engine(
    *,
    ahead: bool = False,
    has_text: bool = True,
    behind: int = 64,
    speculation: SpeculativeConfig | None = None,
    draft: dict[str, Any] | None = None,
    **changes: Any,
) -> LLMEngine:
    """An engine of its own, quickly made.

    Args:
        behind: The most tokens of prompts behind which a step is planned ahead.
        draft: What `stub_draft` is told, if `speculation` asks for a draft model.
        changes: Changes of SETTINGS, which has blocks of 4 tokens, sequences of 40, steps of 64.
    """
    tokenizer = letters() if has_text else None
    settings = replace(SETTINGS, **changes)
    parts = None
    if speculation is not None and speculation.method == "draft_model":
        parts = stub_draft(settings, speculation, **(draft or {}))
    engine, _ = pair_without_device(
        settings,
        ahead=ahead,
        tokenizer=tokenizer,
        behind=behind,
        speculation=speculation,
        draft=parts,
    )
    return engine
