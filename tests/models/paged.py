"""Runs a decoder on its own, without an engine: one sequence, a cache of shuffled blocks."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from jax_engine.layers.batch import make_batch
from jax_engine.models.decoder import Decoder
from jax_engine.models.model_config import ModelConfig
from jax_engine.worker.kv_cache import kv_cache_shape


@dataclasses.dataclass
class PagedRun:
    """One sequence over its own cache; `feed` takes its next tokens."""

    config: ModelConfig
    graphdef: Any
    params: nnx.State
    block_size: int = 4
    num_blocks: int = 24

    def __post_init__(self) -> None:
        self.step = jax.jit(self._step, donate_argnums=2)
        self.reset()

    def reset(self) -> "PagedRun":
        """An empty cache; what is compiled stays compiled."""
        shape = kv_cache_shape(self.config, self.num_blocks, self.block_size)
        self.kv_cache = jnp.full(shape, jnp.nan)
        self.table = np.random.default_rng(3).permutation(self.num_blocks).astype(np.int32)
        self.length = 0
        return self

    def _step(
        self, params: nnx.State, token_ids: Any, kv_cache: Any, slots: Any, start: Any
    ) -> Any:
        tokens = token_ids.shape[0]
        tables = jnp.asarray(self.table[None])
        lens, starts = (start + tokens)[None], jnp.array([0, tokens], jnp.int32)
        positions = start + jnp.arange(tokens, dtype=jnp.int32)
        model: Decoder = nnx.merge(self.graphdef, params)
        arrays = tables, lens, starts, slots, positions
        batch = make_batch(model.spec.attentions, kv_cache, *arrays, dtype=kv_cache.dtype)
        hidden, kv_cache = model(token_ids, batch, kv_cache)
        return model.compute_logits(hidden), kv_cache

    def arguments(self, token_ids: list[int]) -> tuple[Any, ...]:
        """What `step` takes for these next tokens."""
        positions = self.length + np.arange(len(token_ids))
        slots = self.table[positions // self.block_size] * self.block_size
        slots = slots + positions % self.block_size
        ids = jnp.asarray(token_ids, jnp.int32)
        slots = jnp.asarray(slots, jnp.int32)
        return self.params, ids, self.kv_cache, slots, jnp.int32(self.length)

    def feed(self, token_ids: list[int]) -> np.ndarray:
        """Logits [T, V] after each of the next tokens."""
        logits, self.kv_cache = self.step(*self.arguments(token_ids))
        self.length += len(token_ids)
        return np.asarray(logits)

    def greedy(self, token_ids: list[int], count: int) -> list[int]:
        """`count` tokens after these, whatever they are."""
        tokens = [int(self.feed(token_ids)[-1].argmax())]
        while len(tokens) < count:
            tokens.append(int(self.feed(tokens[-1:])[-1].argmax()))
        return tokens
