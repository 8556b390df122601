"""Two rules of the sampler that random requests reach too rarely to notice a bug in them."""

import jax.numpy as jnp
import numpy as np

from jax_engine.sampling.filters import lowest_kept
from jax_engine.sampling.sampler import apply_bias
from jax_engine.sampling.sampling_inputs import SamplingInputs


def test_i49_top_k_beyond_the_partial_sort_keeps_k() -> None:
    """I49: 300 of 1000 different logits; the sort covers 256, the rest is a search bit by bit."""
    logits = np.random.default_rng(0).permutation(1000).astype(np.float32)[None] / 100
    lowest = lowest_kept(jnp.asarray(logits), jnp.zeros(1), jnp.array([300]), jnp.ones(1))
    kept = logits >= np.asarray(lowest)[:, None]
    assert set(np.flatnonzero(kept[0])) == set(np.argsort(logits[0])[-300:])


def test_i49_top_p_beyond_the_partial_sort_keeps_the_boundary_token() -> None:
    """I49: of 1000 equally probable tokens but for a trifle, 0.5 needs 500."""
    logits = np.arange(1000, dtype=np.float32)[None] * 1e-6
    lowest = lowest_kept(jnp.asarray(logits), jnp.zeros(1), jnp.array([0]), jnp.full(1, 0.5))
    kept = logits >= np.asarray(lowest)[:, None]
    assert abs(int(kept.sum()) - 500) <= 1 and kept[0, -400:].all()


def test_bias_is_added_to_the_logit() -> None:
    none = jnp.zeros((0,), jnp.int32)
    row = jnp.zeros(1)
    inputs = SamplingInputs(
        seed=jnp.zeros((1, 2), jnp.uint32),
        position=jnp.zeros(1, jnp.int32),
        top_k=jnp.zeros(1, jnp.int32),
        want_logprobs=jnp.zeros(1, jnp.int32),
        temperature=row,
        top_p=row + 1,
        min_p=row,
        top_n_sigma=row,
        presence_penalty=row,
        frequency_penalty=row,
        repetition_penalty=row + 1,
        bias_row=jnp.array([0, 1], jnp.int32),
        bias_token=jnp.array([2, 0], jnp.int32),
        bias_value=jnp.array([0.5, 9.0]),
        history_row=none,
        history_token=none,
        history_is_output=none,
    )
    edited = apply_bias(jnp.array([[1.0, 2.0, 3.0]]), inputs)
    assert np.asarray(edited).tolist() == [[1.0, 2.0, 3.5]]  # the padding of row 1 is dropped
