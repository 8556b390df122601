"""Latent attention in the oracle: transformers' answers (I39), chunks, the other way to sum."""

import dataclasses
import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference.attention import paged_attention
from reference.experts import route
from reference.kv_cache import KVCache, quantize
from reference.latent_attention import latent_attention, latent_queries
from reference.transformer import Transformer
from reference.transformer_config import (
    ExpertsConfig,
    LatentConfig,
    TransformerConfig,
    weight_shapes,
)
from tests.golden.families.checkpoints import NUM_GREEDY, PROMPT, ROWS, cases, goldens, tensors_of
from tests.reference.test_families import LLAMA, with_router
from tests.reference.test_transformer import Batch, whole

CASES, GOLDENS = cases(), goldens()
Weights = dict[str, np.ndarray]
SIZES = LatentConfig(kv_rank=20, rotated=8, plain=10, value_dim=12, q_rank=14)
PLAIN_QUERIES = dataclasses.replace(SIZES, q_rank=None)
SIGMOID = ExpertsConfig(
    8, 2, 24, "sigmoid", renormalise=True, scaling=2.5, selection_bias=True, shared_width=24
)
GROUPS = {"num_groups": 4, "num_top_groups": 2}


def in_halves(tensors: Weights) -> Weights:
    """Each pair of neighbours that is rotated, to places 4 apart, in the last 8 of 18 or of 28."""
    found = with_router(tensors)
    for name, tensor in found.items():
        last = name.rsplit(".", 2)[-2]
        size = {"q_proj": 18, "q_b_proj": 18, "kv_a_proj_with_mqa": 28}.get(last)
        if size is not None:
            heads = tensor.reshape(-1, size, *tensor.shape[1:])
            turning = heads[:, -8:]
            parts = (heads[:, :-8], turning[:, ::2], turning[:, 1::2])
            found[name] = np.concatenate(parts, axis=1).reshape(tensor.shape)
    return found


def stretched(mscale: float, mscale_all_dim: float) -> TransformerConfig:
    """A model with YaRN, whose other number also makes queries and keys longer."""
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
    longer = 0.1 * mscale_all_dim * math.log(4.0) + 1
    return dataclasses.replace(
        LLAMA,
        latent=SIZES,
        dense_layers=(0,),
        rope_theta=500.0,
        rope_scaling=yarn | {"mscale": mscale, "mscale_all_dim": mscale_all_dim},
        query_scale=18**-0.5 * longer * longer,
    )


MODELS: dict[str, tuple[TransformerConfig, Callable[[Weights], Weights]]] = {
    "deepseek_v2_lite": (
        dataclasses.replace(
            stretched(0.7, 0.7),
            latent=PLAIN_QUERIES,
            experts=ExpertsConfig(8, 2, 24, shared_width=48),
        ),
        in_halves,
    ),
    "deepseek_v2": (
        dataclasses.replace(
            stretched(1.0, 0.7),
            num_hidden_layers=4,
            attention_bias=True,
            experts=ExpertsConfig(
                8, 2, 24, scaling=1.6, shared_width=48, experts_judged=1, **GROUPS
            ),
        ),
        in_halves,
    ),
    "deepseek_v3": (
        dataclasses.replace(stretched(1.0, 1.0), experts=dataclasses.replace(SIGMOID, **GROUPS)),
        in_halves,
    ),
    "deepseek_v3_plain_queries": (
        dataclasses.replace(
            LLAMA,
            latent=PLAIN_QUERIES,
            attention_bias=True,
            dense_layers=(0,),
            experts=dataclasses.replace(SIGMOID, shared_width=48),
        ),
        in_halves,
    ),
    "minicpm3": (
        dataclasses.replace(
            LLAMA,
            rms_norm_eps=1e-5,
            latent=SIZES,
            embedding_factor=3.0,
            residual_factor=0.9 / 3**0.5,
            logits_factor=13 / 32,
            tie_word_embeddings=True,
        ),
        dict,
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_i39_logits_are_those_of_transformers(name: str) -> None:
    """The prompt and the tokens that follow greedily, all at once."""
    config, named = MODELS[name]
    model = Transformer(config, named(tensors_of(CASES[name])))
    text = [*PROMPT, *GOLDENS[f"{name}.tokens"].tolist()]
    logits = model.compute_logits(whole(model, text))
    found = logits[[*ROWS, *range(len(text) - NUM_GREEDY, len(text))]]
    expected = GOLDENS[f"{name}.logits"]
    np.testing.assert_allclose(found, expected, atol=1e-4 * np.abs(expected).max())


TINY = dataclasses.replace(
    LLAMA,
    vocab_size=11,
    num_hidden_layers=2,
    num_attention_heads=3,
    latent=LatentConfig(kv_rank=5, rotated=4, plain=3, value_dim=2, q_rank=4),
    sinks=True,
    layer_windows=(None, 3),
)


def random_weights(config: TransformerConfig, seed: int) -> Weights:
    rng = np.random.default_rng(seed)
    return {name: rng.uniform(-1, 1, shape) for name, shape in weight_shapes(config).items()}


@given(
    text=st.lists(st.integers(0, 10), min_size=3, max_size=12),
    cut=st.integers(1, 2),
    block_size=st.integers(1, 5),
    seed=st.integers(0, 2**32 - 1),
)
def test_i35_i36_chunks_company_and_blocks_do_not_matter(
    text: list[int], cut: int, block_size: int, seed: int
) -> None:
    model = Transformer(TINY, random_weights(TINY, seed))
    batch = Batch(TINY, [text, text[:cut]], block_size, seed)
    first = batch.step(model, {0: cut, 1: cut})
    second = batch.step(model, {0: len(text) - cut})[0]
    np.testing.assert_array_equal(first[0], first[1])
    np.testing.assert_array_equal(np.concatenate([first[0], second]), whole(model, text))


@given(seed=st.integers(0, 2**32 - 1), window=st.sampled_from([None, 3]))
def test_the_matrices_may_stand_on_the_other_side_of_the_sums(
    seed: int, window: int | None
) -> None:
    """Attention to the latents as they lie, by queries that the keys' matrix has multiplied."""
    sizes, length = TINY.latent, 6
    assert sizes is not None
    rng = np.random.default_rng(seed)
    made = rng.standard_normal((3 * (sizes.plain + sizes.value_dim), sizes.kv_rank))
    cache = KVCache(
        num_layers=1, num_blocks=2, num_kv_heads=1, block_size=4, head_dim=9, values_in_keys=True,
        dtype=np.float64,
    )  # fmt: skip
    cache.write(0, rng.standard_normal((length, 1, 9)), None, np.array([4, 5, 6, 7, 0, 1]))
    q = rng.standard_normal((2, 3, 7))
    batch = np.array([[1, 0], [0, 0]]), np.array([length, 0]), np.array([0, 2, 2])
    options = {"layer": 0, "scale": 0.4, "window": window}
    expected = latent_attention(
        q, cache.gpu, *batch, weights={"a.kv_b_proj.weight": made}, name="a", sizes=sizes, **options
    )
    of_keys, of_values = np.split(made.reshape(3, 5, -1), [sizes.plain], axis=1)
    plain, rotated = np.split(q, [sizes.plain], axis=-1)
    absorbed = np.concatenate([np.einsum("thp,hpc->thc", plain, of_keys), rotated], axis=-1)
    latents, _ = paged_attention(absorbed, cache.gpu, *batch, **options)
    found = np.einsum("thc,hvc->thv", latents[..., : sizes.kv_rank], of_values)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", ["int8", "fp8"])
def test_latents_of_8_bits_are_read_with_their_scale(kind: str) -> None:
    """The result is that over a cache of the numbers that they stand for."""
    sizes, rng = TINY.latent, np.random.default_rng(7)
    assert sizes is not None
    made = rng.standard_normal((3 * (sizes.plain + sizes.value_dim), sizes.kv_rank))
    stored, scales = rng.standard_normal((6, 1, 9)), np.array([[[0.0625]], [[0.25]]])
    slots, found, q = np.arange(6), [], rng.standard_normal((2, 3, 7))
    for own in (scales, None):
        cache = KVCache(
            num_layers=2, num_blocks=1, num_kv_heads=1, block_size=6, head_dim=9,
            values_in_keys=True, dtype=np.float64, scales=own, kind=kind,
        )  # fmt: skip
        meant = stored if own is not None else quantize(stored[:, 0], np.full(6, 0.25), kind) / 4
        cache.write(1, meant.reshape(6, 1, 9), None, slots)
        found.append(latent_attention(
            q, cache.gpu, np.array([[0]]),
            np.array([6]), np.array([0, 2]), layer=1, scale=0.4, kv_scales=own,
            weights={"a.kv_b_proj.weight": made}, name="a", sizes=sizes,
        ))  # fmt: skip
    np.testing.assert_allclose(*found, rtol=1e-9)


def test_a_query_of_one_number_by_hand() -> None:
    """x is 3; its latent 6 has the norm 1 (times 5), and the head's two numbers are 10 and -5."""
    sizes = LatentConfig(kv_rank=1, rotated=1, plain=1, value_dim=1, q_rank=1, eps=0.0)
    weights = {
        "a.q_a_proj.weight": np.array([[2.0]]),
        "a.q_a_layernorm.weight": np.array([5.0]),
        "a.q_b_proj.weight": np.array([[2.0], [-1.0]]),
    }
    plain, rotated = latent_queries(weights, "a", np.array([[3.0]]), sizes)
    assert (plain.item(), rotated.item()) == (10.0, -5.0)


def test_what_the_cache_holds() -> None:
    """A latent and the rotated part for each token, and nothing else: 9 numbers a layer.

    A second sequence brings nothing.
    """
    model = Transformer(TINY, random_weights(TINY, 0))
    batch = Batch(TINY, [[1, 2, 3], [4]], block_size=4)
    batch.step(model, {0: 3, 1: 0})
    assert batch.cache.gpu.shape[1] == 1 and (~np.isnan(batch.cache.gpu)).sum() == 2 * 3 * 9


def test_a_group_is_as_good_as_its_best_expert_or_its_two_best() -> None:
    logits = np.array([5.0, 0.0, 4.0, 4.0])
    groups = ExpertsConfig(4, 1, 1, "sigmoid", num_groups=2, num_top_groups=1)
    assert route(logits, groups)[0][0] == 2
    assert route(logits, dataclasses.replace(groups, experts_judged=1))[0][0] == 0
