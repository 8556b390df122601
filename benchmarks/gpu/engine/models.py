"""The models' shapes with random weights, and how much of each measurement is run."""

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from jax_engine import EngineConfig, LLMEngine
from jax_engine.config.speculative_config import SpeculativeConfig
from jax_engine.engine.startup import build as engine_build
from jax_engine.models.model_loader import LoadedModel, ModelFiles, open_model
from jax_engine.weights.codes import E4M3, Kind
from jax_engine.worker.aot_cases import quantised

_LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 128256,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "hidden_act": "silu",
    "bos_token_id": 128000,
    "eos_token_id": 128001,
}


def _rope(factor: float) -> dict[str, Any]:
    lengths = {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
    start = {"original_max_position_embeddings": 8192}
    return {"rope_scaling": {"rope_type": "llama3", "factor": factor, **lengths, **start}}


MODELS: dict[str, dict[str, Any]] = {
    "Llama-3.2-1B": _LLAMA
    | {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "head_dim": 64}
    | {"tie_word_embeddings": True, **_rope(32.0)},
    "Llama-3.1-8B": _LLAMA
    | {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "head_dim": 128}
    | {"tie_word_embeddings": False, **_rope(8.0)},
}
TINY = _LLAMA | {
    "vocab_size": 128,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "max_position_embeddings": 512,
    "tie_word_embeddings": True,
    "bos_token_id": 0,
    "eos_token_id": 1,
}


@dataclass(frozen=True)
class Scale:
    """How much is run.

    Attributes:
        running: Sequences that run at once.
        step_tokens: `max_num_batched_tokens`, and the prompt of the prefill measurement.
        prompt: Tokens of a prompt where its length does not matter, and of one that comes alone.
        output: Tokens decoded by the single stream.
        rounds: How often whatever is repeated is measured.
        steps: Number of steps in one round of decoding.
        steady_s: Seconds at `running` sequences.
        replay_s: Seconds of replaying one step, a round.
        all_steps: Whether the profile and the options look at all kinds of steps.
    """

    running: int = 256
    max_model_len: int = 4096
    step_tokens: int = 2048
    prompt: int = 512
    output: int = 256
    rounds: int = 3
    steps: int = 50
    steady_s: float = 8.0
    replay_s: float = 0.2
    all_steps: bool = True
    num_blocks: int | None = None


FULL = Scale()
SMOKE = Scale(
    running=2,
    max_model_len=128,
    step_tokens=32,
    prompt=24,
    output=8,
    rounds=2,
    steps=3,
    steady_s=0.5,
    replay_s=0.01,
    all_steps=False,
    num_blocks=64,
)


# Weights in codes: a matrix in AWQ's form, and E4M3 in groups of 128 columns.
QUANTISED = {
    "int4": Kind(tuple(map(float, range(16))), 128, minimums=True),
    "fp8": Kind(E4M3, 128),
}


def write_config(name: str, folder: Path, smoke: bool) -> None:
    """A config.json and nothing else: weights are drawn at random."""
    config = TINY if smoke else MODELS[name]
    (folder / "config.json").write_text(json.dumps(config), "utf-8")


def build(
    name: str,
    smoke: bool,
    codes: str | None = None,
    *,
    batch_invariant: bool = False,
    most_blocks: int | None = None,
    num_guesses: int = 0,
    async_scheduling: bool = True,
) -> LLMEngine:
    """The engine around one of `MODELS`, or around a tiny one.

    Args:
        codes: A key of `QUANTISED`; None: weights in bfloat16.
        batch_invariant, async_scheduling: The engine's settings.
        most_blocks: KV blocks, if the card is not to be filled with them.
        num_guesses: So many in each step, drawn by the same model; 0 without a draft model.

    Raises:
        OutOfMemoryError: It does not fit this card.
    """
    scale = SMOKE if smoke else FULL
    with tempfile.TemporaryDirectory() as folder, _weights_in(codes, smoke):
        write_config(name, Path(folder), smoke)
        settings = EngineConfig(
            model=folder,
            load_format="dummy",
            skip_tokenizer_init=True,
            dtype="bfloat16",
            swap_space=0,
            max_model_len=scale.max_model_len,
            max_num_seqs=scale.running,
            max_num_batched_tokens=scale.step_tokens,
            num_gpu_blocks_override=scale.num_blocks or most_blocks,
            batch_invariant=batch_invariant,
            async_scheduling=async_scheduling,
            speculative_config=_itself(folder, num_guesses) if num_guesses else None,
        )
        return LLMEngine.from_config(settings)


def _itself(folder: str, num_guesses: int) -> SpeculativeConfig:
    return SpeculativeConfig(
        method="draft_model",
        model=folder,
        num_speculative_tokens=num_guesses,
        enable_adaptive_verification=False,
    )


@contextmanager
def _weights_in(codes: str | None, smoke: bool) -> Iterator[None]:
    """Within it models that an engine opens have random codes in place of random numbers."""
    if codes is None:
        yield
        return

    @dataclass(frozen=True)
    class Coded(ModelFiles):
        def load(self) -> LoadedModel:
            return replace(self.abstract, params=jax.tree.map(draw, self.abstract.params))

    def draw(leaf: Any) -> Any:
        return _draw(leaf.shape, jnp.dtype(leaf.dtype).name, smoke)

    def opened(*arguments: Any, **settings: Any) -> ModelFiles:
        files = open_model(*arguments, **settings)
        model = files.abstract
        graphdef, params = quantised(model.config, model.graphdef, model.params, QUANTISED[codes])
        held = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(params))
        abstract = replace(model, graphdef=graphdef, params=params, num_bytes=held)
        return Coded(abstract, files.leaves, None, None, 0)

    engine_build.open_model, kept = opened, engine_build.open_model  # type: ignore[attr-defined]
    try:
        yield
    finally:
        engine_build.open_model = kept  # type: ignore[attr-defined]


@partial(jax.jit, static_argnums=(0, 1, 2))
def _draw(shape: tuple[int, ...], dtype: str, smoke: bool) -> Any:
    """Random codes, or numbers so small that no activation overflows.

    In a smoke run zeros: on a CPU an array of bytes holds scales beside its codes.
    """
    key = jax.random.key(0)
    if dtype in ("uint8", "int8"):
        bits = jax.random.bits(key, shape, jnp.uint8)
        return jnp.zeros(shape, dtype) if smoke else bits.view(dtype)
    return (0.02 * jax.random.normal(key, shape, jnp.bfloat16)).astype(dtype)
