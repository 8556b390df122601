"""A decoder's logits of a sequence: the same bits in chunks, in company and computed again.

No engine: rows of a step go straight to a decoder, so that a difference shows where it is made.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jax_engine.layers.batch import make_batch
from jax_engine.models.decoder import Decoder
from jax_engine.models.model_loader import load_model
from jax_engine.worker.kv_cache import kv_cache_shape
from pallas_kernels.backends import runs_cpu_kernels
from tests.golden.families.checkpoints import cases
from tests.golden.families.parity import write
from tests.support.optimised import OPTIMISED

CASES = cases()
# What adds in an order of its own: head norms, routers, experts, a gate, latents, sinks, windows.
NAMES = (
    "llama", "qwen3", "olmo2", "phi_head_norms", "gemma3", "cohere_head_norms", "mpt", "bloom",
    "qwen2_moe", "glm4_moe_groups", "gpt_oss", "deepseek_v2", "minicpm3",
)  # fmt: skip
BLOCK_SIZE, BLOCKS_EACH, COMPANY = 4, 10, 15
PROMPT, LENGTH = 23, 32  # of the sequence; what lies behind the prompt is decoded
DECODES = [(at, at + 1) for at in range(PROMPT, LENGTH)]
Spans = Sequence[tuple[int, int]]
# How the sequence is cut into steps, and how many others are beside it. What takes time is to
# compile: a step is padded to one of six shapes.
WAYS: dict[str, tuple[Spans, int]] = {
    "chunks": ([(0, 7), (7, 8), (8, 15), (15, PROMPT), *DECODES], 0),
    "company": ([(0, PROMPT), *DECODES], COMPANY),
    "computed again": ([(0, LENGTH)], 0),
    "drafts, a rest of one": ([(0, 22), (22, 23), (23, 26), (26, 27), (27, LENGTH)], COMPANY),
}


class Steps:
    """A model, and the cache of 1 + COMPANY sequences, whose tokens are known before."""

    def __init__(self, path: Path, dtype: str, **invariant: bool) -> None:
        self.dtype, self.invariant = jnp.dtype(dtype), invariant
        self.model = load_model(str(path), dtype=self.dtype, **invariant)
        rng, seqs = np.random.default_rng(0), 1 + COMPANY
        self.prompts = np.array([PROMPT, *rng.integers(1, 9, COMPANY)])
        self.tokens = rng.integers(5, self.model.config.spec.vocab_size, (seqs, 40))
        self.tables = rng.permutation(seqs * BLOCKS_EACH).reshape(seqs, BLOCKS_EACH)
        self.compiled = jax.jit(self._step, compiler_options=OPTIMISED)

    def _step(self, params: Any, kv_cache: Any, ids: Any, arrays: Any, prompt_lens: Any) -> Any:
        model: Decoder = nnx.merge(self.model.graphdef, params)
        attentions = model.spec.attentions
        more = {"dtype": self.dtype, "prompt_lens": prompt_lens, **self.invariant}
        batch = make_batch(attentions, kv_cache, *arrays, **more)
        hidden, kv_cache = model(ids, batch, kv_cache)
        return model.compute_logits(hidden), kv_cache

    def logits(self, spans: Spans, company: int) -> np.ndarray:
        """Logits [LENGTH, V] of the first sequence in these steps, beside so many others."""
        seqs = len(self.tables)
        shape = kv_cache_shape(self.model.config, seqs * BLOCKS_EACH, BLOCK_SIZE)
        self.kv_cache, used = jnp.zeros(shape, self.dtype), np.zeros(seqs, int)
        found = []
        for start, stop in spans:
            counts = np.where(used[: company + 1] > 0, 1, self.prompts[: company + 1])
            counts[0] = stop - start
            place = company // 2  # others come before and behind
            order = [*range(1, place + 1), 0, *range(place + 1, company + 1)]
            logits = self._run([(seq, int(used[seq]), int(counts[seq])) for seq in order])
            first = int(counts[order[:place]].sum())
            found.append(logits[first : first + stop - start])
            used[: company + 1] += counts
        return np.concatenate(found)

    def _run(self, rows: list[tuple[int, int, int]]) -> np.ndarray:
        """One step, padded to powers of two; a row is a sequence, its first position, a length."""
        total, count = sum(length for _, _, length in rows), len(rows)
        tokens = 1 << (total - 1).bit_length()
        seqs = tokens if total == count else 1 << (count - 1).bit_length()
        ids, positions = np.zeros(tokens, np.int32), np.zeros(tokens, np.int32)
        slots = np.full(tokens, -1, np.int32)
        tables = np.zeros((seqs, BLOCKS_EACH), np.int32)
        lens, prompts = np.zeros(seqs, np.int32), np.zeros(seqs, np.int32)
        starts, at = np.full(seqs + 1, total, np.int32), 0
        for i, (seq, start, length) in enumerate(rows):
            here, its = slice(at, at + length), np.arange(start, start + length)
            ids[here], positions[here] = self.tokens[seq, its], its
            slots[here] = self.tables[seq, its // BLOCK_SIZE] * BLOCK_SIZE + its % BLOCK_SIZE
            tables[i], lens[i], prompts[i] = self.tables[seq], start + length, self.prompts[seq]
            starts[i] = at
            at += length
        arrays = tables, lens, starts, slots, positions
        logits, self.kv_cache = self.compiled(
            self.model.params, self.kv_cache, ids, arrays, prompts
        )
        return np.asarray(logits)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "dtype"),
    [(name, "float32") for name in NAMES]
    + [(name, "bfloat16") for name in ("qwen2_moe", "gpt_oss", "minicpm3")]
    + [(name, "float16") for name in ("llama", "gemma3", "qwen2_moe", "gpt_oss", "minicpm3")],
)
def test_i52_a_sequence_s_logits_depend_on_nothing_else(
    name: str, dtype: str, tmp_path: Path
) -> None:
    """I52, without an engine."""
    check(name, dtype, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("llama", "float32"), ("gemma3", "bfloat16"), ("qwen2_moe", "float32"),
        ("gpt_oss", "float16"), ("minicpm3", "float32"), ("bloom", "float32"),
    ],
)  # fmt: skip
def test_i52_by_xla_s_twins(
    name: str, dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no Numba, as on other machines."""
    monkeypatch.setattr("pallas_kernels.backends._cpu_kernels_failure", lambda: "not wanted")
    assert not runs_cpu_kernels()
    check(name, dtype, tmp_path)


def check(name: str, dtype: str, folder: Path) -> None:
    write(CASES[name], folder)
    steps = Steps(folder, dtype)
    expected = steps.logits([(0, PROMPT), *DECODES], 0)
    for way, (spans, company) in WAYS.items():
        found = steps.logits(spans, company)
        differing = np.flatnonzero((found != expected).any(axis=1))
        assert not differing.size, f"{way}: positions {differing}"


@pytest.mark.slow
@pytest.mark.parametrize(("name", "dtype"), [("qwen3", "float32"), ("bloom", "bfloat16")])
def test_i52_with_a_gpu_s_kernels(name: str, dtype: str, tmp_path: Path) -> None:
    """I52 with `batch_invariant`, whose kernels for GPUs are interpreted here."""
    write(CASES[name], tmp_path)
    steps = Steps(tmp_path, dtype, batch_invariant=True)
    expected = steps.logits([(0, PROMPT), *DECODES], 0)
    plain = Steps(tmp_path, dtype).logits([(0, PROMPT), *DECODES], 0)
    np.testing.assert_allclose(expected, plain, atol=1e-4 if dtype == "float32" else 0.1)
    for way, (spans, company) in WAYS.items():
        found = steps.logits(spans, min(company, 3))
        differing = np.flatnonzero((found != expected).any(axis=1))
        assert not differing.size, f"{way}: positions {differing}"
