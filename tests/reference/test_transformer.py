"""The decoder against one without a cache (I39); chunks, company and blocks (I30, I35, I36)."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference.kv_cache import KVCache
from reference.rope import rope_frequencies
from reference.transformer import Transformer, TransformerConfig, weight_shapes

seeds = st.integers(0, 2**32 - 1)
TINY = TransformerConfig(
    vocab_size=37,
    hidden_size=24,
    intermediate_size=40,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
    rope_theta=500.0,
    max_position_embeddings=64,
)
CONFIGS = {
    "plain": TINY,
    "tied": replace(TINY, tie_word_embeddings=True),
    "biases": replace(TINY, attention_bias=True, mlp_bias=True),
    "window": replace(TINY, sliding_window=4),
    "yarn": replace(TINY, rope_scaling={"rope_type": "yarn", "factor": 4}),
    "one KV head": replace(TINY, num_key_value_heads=1),
}
Weights = dict[str, np.ndarray]


def random_weights(config: TransformerConfig, seed: int = 0) -> Weights:
    rng = np.random.default_rng(seed)
    shapes = weight_shapes(config)
    return {name: rng.normal(0, 0.4, size=shape) for name, shape in shapes.items()}


def naive_logits(config: TransformerConfig, weights: Weights, ids: list[int]) -> np.ndarray:
    """Logits after every token: all in matrices, all in float64, nothing kept from call to call."""
    length = len(ids)
    frequencies, factor = rope_frequencies(
        config.head_dim, config.rope_theta, config.max_position_embeddings, config.rope_scaling
    )
    angles = np.arange(length, dtype=np.float32)[:, None] * frequencies
    turn = (factor * np.exp(1j * angles.astype(np.float64)))[:, None, :]
    ahead = np.arange(length)[None, :] - np.arange(length)[:, None]
    hidden = (ahead > 0) | (ahead <= -(config.sliding_window or length))

    def linear(name: str, x: np.ndarray) -> np.ndarray:
        return x @ weights[f"{name}.weight"].T + weights.get(f"{name}.bias", 0.0)

    def norm(name: str, x: np.ndarray) -> np.ndarray:
        square = (x**2).mean(-1, keepdims=True)
        return x * (square + config.rms_norm_eps) ** -0.5 * weights[f"{name}.weight"]

    def heads(name: str, x: np.ndarray, *, turned: bool) -> np.ndarray:
        x = linear(name, x).reshape(length, -1, config.head_dim)
        first, second = x[..., : config.head_dim // 2], x[..., config.head_dim // 2 :]
        z = (first + 1j * second) * (turn if turned else 1.0)
        x = np.concatenate([z.real, z.imag], axis=-1)
        return np.repeat(x, config.num_attention_heads // x.shape[1], axis=1)

    x = weights["model.embed_tokens.weight"][ids]
    for layer in range(config.num_hidden_layers):
        name = f"model.layers.{layer}"
        y = norm(f"{name}.input_layernorm", x)
        q = heads(f"{name}.self_attn.q_proj", y, turned=True)
        k = heads(f"{name}.self_attn.k_proj", y, turned=True)
        v = heads(f"{name}.self_attn.v_proj", y, turned=False)
        scores = np.einsum("thd,shd->hts", q, k) / np.sqrt(config.head_dim)
        share = np.exp(np.where(hidden, -np.inf, scores))
        share /= share.sum(-1, keepdims=True)
        attended = np.einsum("hts,shd->thd", share, v).reshape(length, -1)
        x = x + linear(f"{name}.self_attn.o_proj", attended)
        y = norm(f"{name}.post_attention_layernorm", x)
        gate = linear(f"{name}.mlp.gate_proj", y)
        silu = gate / (1 + np.exp(-gate))
        x = x + linear(f"{name}.mlp.down_proj", silu * linear(f"{name}.mlp.up_proj", y))
    tied = config.tie_word_embeddings
    return linear("model.embed_tokens" if tied else "lm_head", norm("model.norm", x))


class Batch:
    """Several sequences over one cache, each with a block table of its own."""

    def __init__(
        self, config: TransformerConfig, texts: list[list[int]], block_size: int, seed: int = 0
    ) -> None:
        self.texts, self.block_size = texts, block_size
        width = -(-max(map(len, texts)) // block_size) + 1
        self.tables = np.random.default_rng(seed).permutation(len(texts) * width)
        self.tables = self.tables.reshape(len(texts), width)
        self.cache = KVCache(
            **config.cache_sizes(),
            num_blocks=self.tables.size,
            block_size=block_size,
            dtype=np.float64,
        )
        self.computed = [0] * len(texts)

    def step(self, model: Transformer, chunks: dict[int, int]) -> dict[int, np.ndarray]:
        """The next `chunks[s]` tokens of each sequence s, in that order; their hidden states."""
        rows = list(chunks)
        spans = [range(self.computed[s], self.computed[s] + n) for s, n in chunks.items()]
        tokens = [self.texts[s][p] for s, span in zip(rows, spans, strict=True) for p in span]
        slots = [
            self.tables[s, p // self.block_size] * self.block_size + p % self.block_size
            for s, span in zip(rows, spans, strict=True)
            for p in span
        ]
        starts = np.concatenate([[0], np.cumsum([len(span) for span in spans])])
        hidden = model.forward(
            np.array(tokens, dtype=int),
            np.array([p for span in spans for p in span], dtype=int),
            self.cache,
            self.tables[rows],
            np.array([span.stop for span in spans]),
            starts,
            np.array(slots, dtype=int),
        )
        for s, span in zip(rows, spans, strict=True):
            self.computed[s] = span.stop
        return {s: hidden[starts[i] : starts[i + 1]] for i, s in enumerate(rows)}


def whole(model: Transformer, text: list[int], block_size: int = 4) -> np.ndarray:
    """Hidden states of one text, alone and in one piece."""
    return Batch(model.config, [text], block_size).step(model, {0: len(text)})[0]


texts_of = st.lists(st.integers(0, TINY.vocab_size - 1), min_size=1, max_size=14)


@pytest.mark.parametrize("name", CONFIGS)
@given(text=texts_of, seed=seeds)
def test_i39_paged_equals_a_naive_decoder_without_a_cache(
    name: str, text: list[int], seed: int
) -> None:
    config = CONFIGS[name]
    weights = random_weights(config, seed)
    expected = naive_logits(config, weights, text)
    exact = Transformer(config, weights, dtype=np.float64)
    logits = exact.compute_logits(whole(exact, text))
    np.testing.assert_allclose(logits, expected, rtol=1e-9, atol=1e-9)
    single = Transformer(config, weights)
    logits = single.compute_logits(whole(single, text))
    assert logits.dtype == np.float32
    np.testing.assert_allclose(logits, expected, rtol=1e-3, atol=1e-3)


@given(text=texts_of, seed=seeds, block_size=st.integers(1, 9))
def test_i39_greedy_decoding_equals_full_recomputation(
    text: list[int], seed: int, block_size: int
) -> None:
    weights = random_weights(TINY, seed)
    model = Transformer(TINY, weights, dtype=np.float64)
    batch = Batch(TINY, [[*text, 0, 0, 0, 0]], block_size, seed)
    recomputed, chunk = list(text), len(text)
    for position in range(len(text), len(text) + 4):
        last = batch.step(model, {0: chunk})[0][-1:]
        batch.texts[0][position] = int(model.compute_logits(last).argmax())
        recomputed.append(int(naive_logits(TINY, weights, recomputed)[-1].argmax()))
        chunk = 1
    assert batch.texts[0] == recomputed


@given(data=st.data(), texts=st.lists(texts_of, min_size=1, max_size=4), seed=seeds)
def test_i35_i36_chunks_company_and_blocks_do_not_matter(
    data: st.DataObject, texts: list[list[int]], seed: int
) -> None:
    """Bit by bit in float32: any chunks, in any company, for any block size and tables."""
    config = CONFIGS[data.draw(st.sampled_from(sorted(CONFIGS)))]
    model = Transformer(config, random_weights(config, seed))
    batch = Batch(config, texts, data.draw(st.integers(1, 9)), seed)
    pieces: list[list[np.ndarray]] = [[] for _ in texts]
    while left := [s for s, text in enumerate(texts) if batch.computed[s] < len(text)]:
        chunks = {
            s: data.draw(st.integers(1, len(texts[s]) - batch.computed[s]))
            for s in data.draw(st.lists(st.sampled_from(left), min_size=1, unique=True))
        }
        for s, hidden in batch.step(model, chunks).items():
            pieces[s].append(hidden)
    for text, hidden in zip(texts, pieces, strict=True):
        np.testing.assert_array_equal(np.concatenate(hidden), whole(model, text))


def test_i36_logits_of_a_row_do_not_depend_on_the_other_rows() -> None:
    model = Transformer(TINY, random_weights(TINY))
    hidden = whole(model, [1, 2, 3, 4, 5])
    alone = [model.compute_logits(row[None])[0] for row in hidden]
    np.testing.assert_array_equal(model.compute_logits(hidden), alone)


def test_tokens_that_are_not_written_leave_the_cache_alone() -> None:
    """Slot -1, and a query range that ends before them: padding."""
    model = Transformer(TINY, random_weights(TINY))
    batch = Batch(TINY, [[1, 2, 3]], block_size=4)
    hidden = model.forward(
        np.array([1, 2, 3, 0, 0]),
        np.array([0, 1, 2, 0, 0]),
        batch.cache,
        batch.tables,
        np.array([3]),
        np.array([0, 3]),
        np.array([*batch.tables[0, 0] * 4 + np.arange(3), -1, -1]),
    )
    np.testing.assert_array_equal(hidden[:3], whole(model, [1, 2, 3]))
    assert (~np.isnan(batch.cache.gpu)).sum() == batch.cache.gpu.size * 3 // (4 * batch.tables.size)


def test_a_step_without_tokens() -> None:
    model = Transformer(TINY, random_weights(TINY))
    batch = Batch(TINY, [[1]], block_size=4)
    assert batch.step(model, {0: 0})[0].shape == (0, TINY.hidden_size)


@pytest.mark.parametrize("token", [-1, TINY.vocab_size])
def test_a_token_outside_of_the_vocabulary(token: int) -> None:
    model = Transformer(TINY, random_weights(TINY))
    with pytest.raises(ValueError, match=f"token id {token} is not one of 0..36"):
        whole(model, [1, token])


def test_a_weight_that_is_missing_or_of_another_shape() -> None:
    weights = random_weights(TINY)
    missing = {name: w for name, w in weights.items() if name != "model.norm.weight"}
    with pytest.raises(ValueError, match=r"model.norm.weight must be \(24,\), found nothing"):
        Transformer(TINY, missing)
    name = "model.layers.1.self_attn.k_proj.weight"
    with pytest.raises(ValueError, match=rf"{name} must be \(16, 24\), found \(24, 16\)"):
        Transformer(TINY, weights | {name: weights[name].T})


def test_weights_that_nobody_asked_for_are_ignored() -> None:
    weights = random_weights(TINY) | {"model.layers.0.self_attn.rotary_emb.inv_freq": np.ones(4)}
    assert set(Transformer(TINY, weights).weights) == set(weight_shapes(TINY))
