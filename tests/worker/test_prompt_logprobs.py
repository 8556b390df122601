"""Log-probabilities of prompts' tokens in chunks, against the sampler's own for all at once."""

from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_engine.operations import xla
from jax_engine.sampling.sampler import with_logprobs
from jax_engine.worker import step_output as module
from jax_engine.worker.step_output import prompt_logprobs

VOCABULARY = 7
WEIGHTS = np.random.default_rng(1).normal(size=(4, VOCABULARY)).astype(np.float32)


def model(computed: list[Any]) -> Any:
    def compute_logits(states: jax.Array) -> jax.Array:
        computed.append(states.shape)
        return states @ WEIGHTS

    return SimpleNamespace(
        compute_logits=compute_logits, spec=SimpleNamespace(vocab_size=VOCABULARY)
    )


@pytest.mark.parametrize("tokens", [1, 3, 4, 7, 8])
def test_chunks_give_what_the_whole_gives(tokens: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Log-probabilities of a chunk that nobody asks about are zeros, whatever the model says."""
    monkeypatch.setattr(module, "ROWS_A_CHUNK", 4)
    hidden = np.random.default_rng(tokens).normal(size=(tokens, 4)).astype(np.float32)
    for targets in ([2, 0, 6, 5, -1, -1, -1, -1], [-1, -1, -1, -1, -1, -1, 0, 1], [-1] * 7 + [3]):
        wanted = np.array(targets[:tokens], np.int32)
        shapes: list[Any] = []
        found = prompt_logprobs(model(shapes), jnp.asarray(hidden), jnp.asarray(wanted), 3)
        assert shapes == [(min(tokens, 4), 4)], "one program, and no chunk larger than 4"
        ids = jnp.asarray(np.maximum(wanted, 0))
        whole = with_logprobs(jnp.asarray(hidden @ WEIGHTS), ids, 3, xla.logsumexp)
        for first in range(0, tokens, 4):
            rows = slice(first, first + 4)
            for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(whole), strict=True):
                assert ours.shape == theirs.shape
                if (wanted[rows] >= 0).any():
                    np.testing.assert_allclose(ours[rows], theirs[rows], rtol=1e-5, atol=1e-6)
                else:
                    assert not np.asarray(ours[rows]).any()


@pytest.mark.parametrize("padded", [False, True])
def test_padding_costs_nothing(padded: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last chunk is filled up with tokens that nobody asks about."""
    monkeypatch.setattr(module, "ROWS_A_CHUNK", 4)
    calls: list[int] = []
    one = model([])
    compute = one.compute_logits

    def counted(states: jax.Array) -> jax.Array:
        jax.debug.callback(lambda: calls.append(1))
        return compute(states)

    one.compute_logits = counted
    targets = [0, 1, 2, 3] + [-1] * (1 if padded else 4)
    hidden = jnp.ones((len(targets), 4))
    prompt_logprobs(one, hidden, jnp.asarray(targets, jnp.int32), 2)
    jax.effects_barrier()
    assert len(calls) == 1
