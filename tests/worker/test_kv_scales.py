"""Where the scales of a quantised KV cache come from."""

import dataclasses
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from jax_engine.models.model_loader import LoadedModel, load_model
from jax_engine.worker import kv_cache as module
from jax_engine.worker.kv_cache import HEADROOM, calibration_text, scales_for, scales_shape
from reference.transformer import Transformer
from tests.support.engine_pair import cache_for
from tests.support.tiny_llama import VOCAB, tiny_llama

FLOAT8, LENGTH = "float8_e4m3fn", 23
SHAPE = (2, 2, 2)  # layers, keys and values, KV heads


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[LoadedModel, Transformer]:
    path, oracle = tiny_llama(tmp_path_factory.mktemp("scales") / "tiny")
    return load_model(str(path)), oracle


def scales(model: LoadedModel, cache_dtype: str, known: Any = None) -> np.ndarray | None:
    model = dataclasses.replace(model, kv_scales=known)
    found = scales_for(model, cache_dtype, dtype="float32", max_model_len=LENGTH)
    return None if found is None else np.asarray(found)


@pytest.mark.parametrize("cache_dtype", ["float32", "bfloat16"])
def test_other_caches_have_none(pair: Any, cache_dtype: str) -> None:
    assert scales(pair[0], cache_dtype, np.ones(SHAPE, np.float32)) is None
    assert scales_shape(pair[0].config, cache_dtype) is None


def test_what_a_step_is_compiled_for_is_what_it_gets(pair: Any) -> None:
    shape = scales_shape(pair[0].config, "int8")
    assert shape is not None and (shape.shape, shape.dtype) == (SHAPE, jnp.float32)


def test_float8_has_scales_of_one_without_running_the_model(
    pair: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_largest", None)
    np.testing.assert_array_equal(scales(pair[0], FLOAT8), np.ones(SHAPE))


def test_int8_scales_are_measured_on_a_text_that_is_always_the_same(pair: Any) -> None:
    """The largest key of a head in the oracle's cache of that text is the code 127 / HEADROOM."""
    model, oracle = pair
    found = scales(model, "int8")
    tokens, places = calibration_text(VOCAB, LENGTH), np.arange(LENGTH)
    assert len(set(tokens.tolist())) > VOCAB // 2 and tokens.max() < VOCAB
    cache = cache_for(oracle, num_blocks=1, block_size=LENGTH)
    batch = np.array([[0]]), np.array([LENGTH]), np.array([0, LENGTH])
    oracle.forward(tokens, places, cache, *batch, places)
    largest = np.abs(cache.gpu).max(axis=(2, 4, 5))
    np.testing.assert_allclose(found, largest * HEADROOM / 127, rtol=1e-4)
    np.testing.assert_array_equal(found, scales(model, "int8"))


def test_the_checkpoint_s_scales_are_those_of_float8(
    pair: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An int8 cache covers the same range: 448 codes of the one are 127 of the other."""
    monkeypatch.setattr(module, "_largest", None)
    known = np.linspace(0.01, 0.08, 8, dtype=np.float32).reshape(SHAPE)
    np.testing.assert_allclose(scales(pair[0], FLOAT8, known), known)
    np.testing.assert_allclose(scales(pair[0], "int8", known), known * 448 / 127, rtol=1e-6)


def test_what_the_checkpoint_lacks_is_filled_in(pair: Any) -> None:
    known = np.full(SHAPE, np.nan, np.float32)
    known[1] = 0.5
    measured, float8, int8 = (
        scales(pair[0], *of) for of in [("int8",), (FLOAT8, known), ("int8", known)]
    )
    assert measured is not None and float8 is not None and int8 is not None
    assert (float8[0] == 1).all() and (float8[1] == 0.5).all()
    np.testing.assert_array_equal(int8[0], measured[0])
    np.testing.assert_allclose(int8[1], 0.5 * 448 / 127, rtol=1e-6)


def test_a_head_of_zeros_gets_a_scale_that_divides(
    pair: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_largest", lambda *_: np.zeros(SHAPE, np.float32))
    found = scales(pair[0], "int8")
    assert found is not None and (found > 0).all()


def test_random_weights_have_scales_too(tmp_path: Path) -> None:
    path, _ = tiny_llama(tmp_path / "tiny")
    found = scales(load_model(str(path), load_format="dummy"), "int8")
    assert found is not None and np.isfinite(found).all() and (found > 0).all()
