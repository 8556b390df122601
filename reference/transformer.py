"""A Llama decoder whose keys and values live in pages.

Section 2.1 of the paper says what a decoder computes, section 4.1 how its attention reads a paged
cache. The decoder takes the tokens of one *step*, those of many sequences laid end to end, and
returns one vector for each. A whole prompt, a chunk of it and one decoded token differ in nothing
but how many tokens they bring.

Each matrix is applied to one token at a time. So a token's numbers depend on the tokens before it
and on nothing else, bit by bit: not on its neighbours in the batch, not on where a prompt was cut
into chunks, not on the size and the order of blocks.

Legend: T tokens in the step, S sequences, H query heads, K KV heads, D head dim, E model width,
F FFN width, V vocabulary, W table width in blocks, R rows whose logits are wanted.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import DTypeLike, Float, Int

from reference.attention import paged_attention
from reference.kv_cache import KVCache
from reference.rope import RopeScaling, apply_rope, rope_frequencies


@dataclass(frozen=True)
class TransformerConfig:
    """The fields of a Llama config.json that matter here, under their Hugging Face names."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    rms_norm_eps: float = 1e-5
    rope_theta: float = 10000.0
    rope_scaling: RopeScaling | None = None
    max_position_embeddings: int = 2048
    tie_word_embeddings: bool = False
    sliding_window: int | None = None
    attention_bias: bool = False
    mlp_bias: bool = False


@dataclass(frozen=True)
class _Step:
    """What all layers need to know of a step; the fields are the arguments of `forward`."""

    positions: Int[np.ndarray, "T"]
    kv_cache: KVCache
    block_tables: Int[np.ndarray, "S W"]
    context_lens: Int[np.ndarray, "S"]
    query_start_loc: Int[np.ndarray, "S+1"]
    slot_mapping: Int[np.ndarray, "T"]


class Transformer:
    """The decoder: `forward` makes hidden states, `compute_logits` makes logits of them.

    `weights` has Hugging Face's names, each matrix as [out, in]; `weight_shapes` lists them all.
    Names beyond those are ignored. Raises ValueError for one that is missing or of another shape.
    """

    def __init__(
        self,
        config: TransformerConfig,
        weights: Mapping[str, np.ndarray],
        dtype: DTypeLike = np.float32,
    ) -> None:
        self.config = config
        self.weights: dict[str, np.ndarray] = {}
        for name, shape in weight_shapes(config).items():
            found = weights[name].shape if name in weights else "nothing"
            if found != shape:
                raise ValueError(f"weight {name} must be {shape}, found {found}")
            self.weights[name] = np.ascontiguousarray(weights[name], dtype=dtype)
        self.frequencies, self.attention_factor = rope_frequencies(
            config.head_dim, config.rope_theta, config.max_position_embeddings, config.rope_scaling
        )

    def forward(
        self,
        token_ids: Int[np.ndarray, "T"],
        positions: Int[np.ndarray, "T"],
        kv_cache: KVCache,
        block_tables: Int[np.ndarray, "S W"],
        context_lens: Int[np.ndarray, "S"],
        query_start_loc: Int[np.ndarray, "S+1"],
        slot_mapping: Int[np.ndarray, "T"],
    ) -> Float[np.ndarray, "T E"]:
        """Hidden states of the step's tokens; their keys and values are written into `kv_cache`.

        Sequence s owns the tokens `query_start_loc[s]:query_start_loc[s + 1]`, the last ones of
        its `context_lens[s]`. Token t is written to slot `slot_mapping[t]` (-1: nowhere). Any
        swapping and copying of blocks (`KVCache.begin_step`) comes before.

        Raises ValueError for a token id outside of the vocabulary.
        """
        for token in token_ids:
            if not 0 <= token < self.config.vocab_size:
                raise ValueError(f"token id {token} is not one of 0..{self.config.vocab_size - 1}")
        step = _Step(positions, kv_cache, block_tables, context_lens, query_start_loc, slot_mapping)
        x = self.weights["model.embed_tokens.weight"][token_ids]
        for layer in range(self.config.num_hidden_layers):
            x = x + self._attention(layer, self._norm(f"{_layer(layer)}.input_layernorm", x), step)
            normed = self._norm(f"{_layer(layer)}.post_attention_layernorm", x)
            x = x + self._mlp(f"{_layer(layer)}.mlp", normed)
        return self._norm("model.norm", x)

    def compute_logits(self, hidden: Float[np.ndarray, "R E"]) -> Float[np.ndarray, "R V"]:
        """Logits of the rows given: of the tokens that something is to be sampled after."""
        tied = self.config.tie_word_embeddings
        return self._linear("model.embed_tokens" if tied else "lm_head", hidden)

    def _attention(
        self, layer: int, x: Float[np.ndarray, "T E"], step: _Step
    ) -> Float[np.ndarray, "T E"]:
        """Project, turn by position, write keys and values to their pages, attend to the pages."""
        config, name = self.config, f"{_layer(layer)}.self_attn"
        q = self._heads(f"{name}.q_proj", x, config.num_attention_heads)
        k = self._heads(f"{name}.k_proj", x, config.num_key_value_heads)
        v = self._heads(f"{name}.v_proj", x, config.num_key_value_heads)
        q = apply_rope(q, step.positions, self.frequencies, self.attention_factor)
        k = apply_rope(k, step.positions, self.frequencies, self.attention_factor)
        step.kv_cache.write(layer, k, v, step.slot_mapping)
        out, _ = paged_attention(
            q,
            step.kv_cache.gpu,
            step.block_tables,
            step.context_lens,
            step.query_start_loc,
            layer=layer,
            scale=config.head_dim**-0.5,
            window=config.sliding_window,
        )
        joined = out.reshape(len(x), config.num_attention_heads * config.head_dim)
        return self._linear(f"{name}.o_proj", joined)

    def _mlp(self, name: str, x: Float[np.ndarray, "T E"]) -> Float[np.ndarray, "T E"]:
        """SwiGLU: down(silu(gate(x)) * up(x))."""
        gate = self._linear(f"{name}.gate_proj", x).astype(np.float64)
        up = self._linear(f"{name}.up_proj", x)
        silu = gate * np.exp(
            -np.logaddexp(0.0, -gate)
        )  # gate / (1 + exp(-gate)), safe from overflow
        return self._linear(f"{name}.down_proj", (silu * up).astype(x.dtype))

    def _norm(self, name: str, x: Float[np.ndarray, "T E"]) -> Float[np.ndarray, "T E"]:
        """RMSNorm: divide a token by its root mean square, then weigh each of its E numbers."""
        exact = x.astype(np.float64)
        mean_square = np.mean(exact * exact, axis=-1, keepdims=True)
        normed = exact / np.sqrt(mean_square + self.config.rms_norm_eps)
        return np.asarray(normed * self.weights[f"{name}.weight"], dtype=x.dtype)

    def _heads(
        self, name: str, x: Float[np.ndarray, "T E"], heads: int
    ) -> Float[np.ndarray, "T heads D"]:
        return self._linear(name, x).reshape(len(x), heads, self.config.head_dim)

    def _linear(self, name: str, x: Float[np.ndarray, "R in"]) -> Float[np.ndarray, "R out"]:
        """W x + b, one token after another (see the top of this file), b where there is one."""
        weight, bias = self.weights[f"{name}.weight"], self.weights.get(f"{name}.bias")
        out = np.empty((len(x), len(weight)), dtype=x.dtype)
        for row, token in enumerate(x):
            out[row] = weight @ token
        return out if bias is None else out + bias


def weight_shapes(config: TransformerConfig) -> dict[str, tuple[int, ...]]:
    """The name and shape of every weight of the decoder.

    >>> tiny = TransformerConfig(8, 4, 6, 1, 2, 1, head_dim=2, tie_word_embeddings=True)
    >>> shapes = weight_shapes(tiny)
    >>> shapes["model.layers.0.self_attn.k_proj.weight"], "lm_head.weight" in shapes
    ((2, 4), False)
    >>> biased = TransformerConfig(8, 4, 6, 1, 2, 1, head_dim=2, mlp_bias=True)
    >>> sorted(name for name in weight_shapes(biased) if name.endswith("proj.bias"))
    ... # doctest: +NORMALIZE_WHITESPACE
    ['model.layers.0.mlp.down_proj.bias',
     'model.layers.0.mlp.gate_proj.bias',
     'model.layers.0.mlp.up_proj.bias']
    """
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (config.vocab_size, config.hidden_size),
        "model.norm.weight": (config.hidden_size,),
    }
    if not config.tie_word_embeddings:
        shapes["lm_head.weight"] = (config.vocab_size, config.hidden_size)
    for layer in range(config.num_hidden_layers):
        for norm in ("input_layernorm", "post_attention_layernorm"):
            shapes[f"{_layer(layer)}.{norm}.weight"] = (config.hidden_size,)
        for name, outputs, inputs, has_bias in _projections(config):
            shapes[f"{_layer(layer)}.{name}.weight"] = (outputs, inputs)
            if has_bias:
                shapes[f"{_layer(layer)}.{name}.bias"] = (outputs,)
    return shapes


def _projections(config: TransformerConfig) -> Iterator[tuple[str, int, int, bool]]:
    """Name, outputs, inputs, has a bias: of each matrix of a layer."""
    width, ffn = config.hidden_size, config.intermediate_size
    queries = config.num_attention_heads * config.head_dim
    keys = config.num_key_value_heads * config.head_dim
    yield "self_attn.q_proj", queries, width, config.attention_bias
    yield "self_attn.k_proj", keys, width, config.attention_bias
    yield "self_attn.v_proj", keys, width, config.attention_bias
    yield "self_attn.o_proj", width, queries, config.attention_bias
    yield "mlp.gate_proj", ffn, width, config.mlp_bias
    yield "mlp.up_proj", ffn, width, config.mlp_bias
    yield "mlp.down_proj", width, ffn, config.mlp_bias


def _layer(layer: int) -> str:
    return f"model.layers.{layer}"
