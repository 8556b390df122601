"""What an engine takes of the memory: the sums; its parts and the device are stand-ins."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from jax_engine import ConfigError, EngineConfig, OutOfMemoryError
from jax_engine.engine.startup import build_encoder, device_settings, engine_memory
from jax_engine.engine.startup.build_encoder import limits_of_encoder
from jax_engine.engine.startup.device_settings import check_alike
from jax_engine.step import Capabilities
from jax_engine.worker.memory import MemoryProfile

WEIGHTS, BLOCK, SLOTS = 1000, 16, 300  # bytes
DRAFT_WEIGHTS, DRAFT_BLOCK = 50, 2
CONFIG = EngineConfig(
    model="x", block_size=4, max_model_len=10, max_num_seqs=3, max_num_batched_tokens=16
)
MESH, COPIES = SimpleNamespace(copies_cache=False), SimpleNamespace(copies_cache=True)
DRAFT: Any = SimpleNamespace(
    files=SimpleNamespace(
        abstract=SimpleNamespace(config="a draft's", num_bytes=DRAFT_WEIGHTS, name="draft")
    ),
    num_scratch=5,
    max_model_len=9,
    budget=64,
)


class Parts:
    """Stands for the parts; `given` is what the profile was made of, `steps` what was compiled."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.given: dict[str, Any] = {}
        self.steps: list[dict[str, Any]] = []
        self.checked: list[int] = []
        self.rank: int | None = None
        self.device = SimpleNamespace(in_host_memory=True, auto_dtype="float32")
        self.bytes_of_steps = {"target": 700, "draft": 20}
        for module in (engine_memory, device_settings):
            monkeypatch.setattr(module, "this_device", lambda: self.device)
        for name in ("block_bytes", "_slots", "_step_bytes", "profile_memory", "check_fits"):
            monkeypatch.setattr(engine_memory, name, getattr(self, f"_{name.lstrip('_')}"))
        monkeypatch.setattr(engine_memory, "own_rank", lambda: self.rank)
        monkeypatch.setattr(engine_memory, "needs_invariant_kernels", lambda config: True)

    def _block_bytes(self, of: Any, size: int, dtype: Any) -> int:
        assert size == CONFIG.block_size
        return {"all layers": BLOCK, "a draft's": DRAFT_BLOCK}[of]

    def _slots(self, config: EngineConfig, model: Any) -> Any:
        return SimpleNamespace(num_bytes=SLOTS, count=2) if config.enable_lora else None

    def _step_bytes(self, config: Any, model: Any, longest: int, shape: Any, **rest: Any) -> int:
        self.steps.append({"longest": longest, "shape": shape, **rest})
        return self.bytes_of_steps[model.name]

    def _profile_memory(self, **given: Any) -> MemoryProfile:
        self.given = given
        return MemoryProfile(2**20, 2**19, given["weights"], 1, given["block"], 100)

    def _check_fits(self, what: str, size: int) -> None:
        assert "2 slots for adapters (max_loras)" in what
        self.checked.append(size)

    def memory(self, mesh: Any = None, draft: Any = None, **changes: Any) -> MemoryProfile:
        model: Any = SimpleNamespace(
            all_layers="all layers", num_bytes=WEIGHTS, mesh=mesh, name="target"
        )
        return engine_memory.engine_memory(replace(CONFIG, **changes), model, 10, 128, draft)


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> Parts:
    return Parts(monkeypatch)


@pytest.mark.parametrize(
    ("rank", "mesh", "in_host_memory", "size", "weights", "block"),
    [
        (None, None, True, 1, WEIGHTS, BLOCK),
        (None, MESH, True, 2, WEIGHTS, BLOCK),
        (None, COPIES, True, 2, WEIGHTS, BLOCK * 2),
        (0, None, True, 2, WEIGHTS, BLOCK * 2),
        (1, COPIES, True, 4, WEIGHTS, BLOCK * 4),
        (None, MESH, False, 2, WEIGHTS // 2, BLOCK // 2),
        (None, COPIES, False, 2, WEIGHTS // 2, BLOCK),
        (None, None, False, 1, WEIGHTS, BLOCK),
    ],
)
@pytest.mark.parametrize("loras", [False, True])
@pytest.mark.parametrize("drafts", [False, True])
def test_what_is_beside_the_blocks_and_what_a_block_takes(
    parts: Parts,
    rank: int | None,
    mesh: Any,
    in_host_memory: bool,
    size: int,
    weights: int,
    block: int,
    loras: bool,
    drafts: bool,
) -> None:
    """Slots are weights. A draft's are whole: once, or once in each process of one memory."""
    parts.rank, parts.device.in_host_memory = rank, in_host_memory
    parts.memory(mesh, DRAFT if drafts else None, tensor_parallel_size=size, enable_lora=loras)
    apart = size > 1 and not in_host_memory
    if loras:
        weights += SLOTS // size if apart else SLOTS
    assert parts.checked == ([weights] if loras and in_host_memory else [])
    times = 1 if rank is None else size
    draft_block = DRAFT_BLOCK * times if drafts else 0
    assert parts.given["weights"] == weights + (DRAFT_WEIGHTS * times if drafts else 0)
    assert parts.given["block"] == block + draft_block
    assert parts.given["scratch"] == 5 * draft_block


def test_what_the_largest_step_is_of_two_models(parts: Parts) -> None:
    """They run in turns: the larger counts. Only the target's takes embeddings and adapters."""
    parts.memory(enable_prompt_embeds=True, enable_lora=True)
    assert parts.given["step_bytes"]() == 700
    (target,) = parts.steps
    assert target["shape"].embeds and target["shape"].num_tokens == 128
    assert target["longest"] == 10 and target["batch_invariant"] is True
    assert target["slots"].num_bytes == SLOTS
    parts.memory(None, DRAFT)
    for of_draft, most in ((20, 700), (800, 800)):
        parts.steps.clear()
        parts.bytes_of_steps["draft"] = of_draft
        assert parts.given["step_bytes"]() == most
        target, draft = parts.steps
        assert not target["shape"].embeds and target["slots"] is None
        assert draft["longest"] == 9 and draft["batch_invariant"] is False
        assert draft["shape"].num_tokens == 64 and not draft["shape"].embeds


@pytest.mark.parametrize(
    ("drafts", "num_bytes", "count"),
    [
        (False, 320, 20),
        (False, 335, 20),
        (True, 320, 17),
        (True, 17 * 18 + 9, 16),
        (True, 1090, 60),
    ],
)
def test_blocks_of_a_size_that_is_given(
    parts: Parts, drafts: bool, num_bytes: int, count: int
) -> None:
    """The draft's scratch, 5 blocks of 2 bytes, comes off first."""
    memory = parts.memory(None, DRAFT if drafts else None, kv_cache_memory_bytes=num_bytes)
    assert memory.num_blocks == count


def test_a_size_below_the_scratch_has_no_blocks(parts: Parts) -> None:
    with pytest.raises(OutOfMemoryError, match="but there are 0: memory"):
        parts.memory(None, DRAFT, kv_cache_memory_bytes=3)


def test_processes_that_have_as_many_blocks_as_each_other() -> None:
    def sizes(num_blocks: int) -> list[Capabilities]:
        return [Capabilities(50, 4, num_blocks, 0, table_width=3, look_ahead_tokens=64)]

    check_alike([sizes(7), sizes(7)])
    with pytest.raises(ConfigError, match="rank 2 has 6 KV blocks, and rank 0 7"):
        check_alike([sizes(7), sizes(7), sizes(6)])


def test_an_encoder_with_equal_bits_where_no_kernel_has_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(build_encoder, "needs_invariant_kernels", lambda config: asked)
    asked = False
    limits = limits_of_encoder(CONFIG, 10)
    assert (limits.max_model_len, limits.max_num_batched_tokens) == (10, 16)
    asked = True
    with pytest.raises(ConfigError, match="batch_invariant must be left out for an encoder"):
        limits_of_encoder(CONFIG, 10)
