"""What a step hands from one of its parts to another, seen while it is traced."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import pallas_kernels
from jax_engine.layers import attention
from jax_engine.models.load import LoadedModel, abstract_decoder
from jax_engine.models.registry import config_from_hf
from jax_engine.worker import compiled_steps
from jax_engine.worker.kv_cache import kv_cache_shape
from jax_engine.worker.step_shape import StepShape
from tests.golden import tiny_checkpoints as tiny

SHAPES = [StepShape(1, 1, decode_only=True), StepShape(32, 8)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_metadata_is_made_for_the_calls_of_the_layers(
    shape: StepShape, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once a step, and its backend is the one that each layer's call would choose."""
    made, attended = [], []

    def make_metadata(*batch: Any, **options: Any) -> Any:
        made.append((options["call"], pallas_kernels.make_metadata(*batch, **options)))
        return made[-1][1]

    def paged_attention(q: Any, kv_cache: Any, *batch: Any, metadata: Any, **options: Any) -> Any:
        attended.append((q, kv_cache, metadata))
        return pallas_kernels.paged_attention(q, kv_cache, *batch, metadata=metadata, **options)

    monkeypatch.setattr(compiled_steps, "make_metadata", make_metadata)
    monkeypatch.setattr(attention, "paged_attention", paged_attention)
    config = config_from_hf(tiny.CONFIGS["plain"])
    graphdef, params = abstract_decoder(config, dtype)
    model = LoadedModel(config, graphdef, params, Path(), 0, 0)
    steps = compiled_steps.CompiledSteps(model, block_size=16, table_width=4, max_rows=8)
    cache = jax.ShapeDtypeStruct(kv_cache_shape(config, 9, 16), jnp.dtype(dtype))
    function, arguments = steps.function(shape, cache)
    jax.jit(function).lower(*arguments)

    [(call, metadata)], [(q, kv_cache, received)] = made, attended
    assert (call[0].shape, call[1].shape) == (q.shape, kv_cache.shape)
    assert call[1].dtype == kv_cache.dtype
    assert received.backend == metadata.backend
    assert received.decode_only == shape.decode_only
