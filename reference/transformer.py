"""A decoder whose keys and values live in pages: Llama, or another one by its switches.

Section 2.1 of the paper says what a decoder computes, section 4.1 how its attention reads a paged
cache. The decoder takes the tokens of one *step*, those of many sequences laid end to end, and
returns one vector for each. A whole prompt, a chunk of it and one decoded token differ in nothing
but how many tokens they bring.

Each matrix is applied to one token at a time. So a token's numbers depend on the tokens before it
and on nothing else, bit by bit: not on its neighbours in the batch, not on where a prompt was cut
into chunks, not on the size and the order of blocks.

Legend: T tokens in the step, S sequences, H query heads, K KV heads, D head dim, E model width,
F FFN width, V vocabulary, W table width in blocks, R rows whose logits are wanted, X experts.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import DTypeLike

from reference.activations import activate, gate, sigmoid, xielu
from reference.attention import paged_attention
from reference.experts import route
from reference.kv_cache import KVCache
from reference.latent_attention import latent_attention, latent_keys, latent_queries
from reference.linear import linear
from reference.norms import normalise
from reference.rope import apply_rope, rope_frequencies
from reference.transformer_config import LatentConfig
from reference.transformer_config import TransformerConfig as TransformerConfig
from reference.transformer_config import weight_shapes as weight_shapes


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
        self.turns = [self._frequencies(layer) for layer in range(config.num_hidden_layers)]

    def _frequencies(self, layer: int) -> tuple[Float[np.ndarray, "half"], float] | None:
        """What a layer's rotation needs; None if it does not rotate."""
        config, rope = self.config, self.config.rope(layer)
        if rope is None:
            return None
        longest = config.max_position_embeddings
        return rope_frequencies(config.rotated(), rope.theta, longest, rope.scaling)

    def forward(
        self,
        token_ids: Int[np.ndarray, "T"],
        positions: Int[np.ndarray, "T"],
        kv_cache: KVCache,
        block_tables: Int[np.ndarray, "S W"],
        context_lens: Int[np.ndarray, "S"],
        query_start_loc: Int[np.ndarray, "S+1"],
        slot_mapping: Int[np.ndarray, "T"],
        inputs: Mapping[int, Float[np.ndarray, "E"]] | None = None,
    ) -> Float[np.ndarray, "T E"]:
        """Hidden states of the step's tokens; their keys and values are written into `kv_cache`.

        Sequence s owns the tokens `query_start_loc[s]:query_start_loc[s + 1]`, the last ones of
        its `context_lens[s]`. Token t is written to slot `slot_mapping[t]` (-1: nowhere). Any
        swapping and copying of blocks (`KVCache.begin_step`) comes before. What the model reads at
        token t is `inputs[t]`, if there is one, and else the embedding of its id.

        Raises ValueError for a token id outside of the vocabulary.
        """
        inputs = inputs or {}
        for t, token in enumerate(token_ids):
            if t not in inputs and not 0 <= token < self.config.vocab_size:
                raise ValueError(f"token id {token} is not one of 0..{self.config.vocab_size - 1}")
        step = _Step(positions, kv_cache, block_tables, context_lens, query_start_loc, slot_mapping)
        x = self._embed(token_ids, positions, inputs)
        for layer in range(self.config.num_hidden_layers):
            x = self._layer(layer, x, step)
        return self._norm("model.norm", x)

    def compute_logits(self, hidden: Float[np.ndarray, "R E"]) -> Float[np.ndarray, "R V"]:
        """Logits of the rows given: of the tokens that something is to be sampled after."""
        config = self.config
        name = "model.embed_tokens" if config.tie_word_embeddings else "lm_head"
        logits = self._linear(name, hidden) * config.logits_factor
        cap = config.logits_soft_cap
        return np.asarray(logits if cap is None else cap * np.tanh(logits / cap), hidden.dtype)

    def _embed(
        self,
        token_ids: Int[np.ndarray, "T"],
        positions: Int[np.ndarray, "T"],
        inputs: Mapping[int, Float[np.ndarray, "E"]],
    ) -> Float[np.ndarray, "T E"]:
        """Gemma's factor is one of its table: vectors that are given in place of tokens have it.

        Granite's is one of the model, and counts for them, too (`scales_inputs`).
        """
        config = self.config
        x = self.weights["model.embed_tokens.weight"][token_ids]
        if not config.scales_inputs:
            x = (x * config.embedding_factor).astype(x.dtype)
        for t, vector in inputs.items():
            x[t] = vector
        if config.learned_positions is not None:
            x = x + self.weights["model.embed_positions.weight"][positions]
        if config.scales_inputs:
            x = (x * config.embedding_factor).astype(x.dtype)
        return self._norm("model.embed_norm", x) if config.embedding_norm else x

    def _layer(
        self, layer: int, x: Float[np.ndarray, "T E"], step: _Step
    ) -> Float[np.ndarray, "T E"]:
        """Attention and the MLP, each added to x. A norm that the model lacks changes nothing."""
        name = _layer(layer)
        first = self._norm_if_any(f"{name}.input_layernorm", x)
        attended = self._attention(layer, first, step)
        attended = self._norm_if_any(f"{name}.attention_output_norm", attended)
        after = self._add(x, attended)
        second = self._norm_if_any(f"{name}.post_attention_layernorm", after)
        match self.config.norm_placement:
            case "parallel":
                second = first
            case "parallel_two":
                second = self._norm_if_any(f"{name}.post_attention_layernorm", x)
        computed = self._feed_forward(layer, second)
        return self._add(after, self._norm_if_any(f"{name}.mlp_output_norm", computed))

    def _add(
        self, x: Float[np.ndarray, "T E"], part: Float[np.ndarray, "T E"]
    ) -> Float[np.ndarray, "T E"]:
        return np.asarray(x + part * self.config.residual_factor, dtype=x.dtype)

    def _attention(
        self, layer: int, x: Float[np.ndarray, "T E"], step: _Step
    ) -> Float[np.ndarray, "T E"]:
        """Project, turn by position, write keys and values to their pages, attend to the pages."""
        config, name = self.config, f"{_layer(layer)}.self_attn"
        if config.latent is not None:
            return self._latent_attention(layer, x, config.latent, step)
        q = self._heads(f"{name}.q_proj", x, config.num_attention_heads)
        k = self._heads(f"{name}.k_proj", x, config.num_key_value_heads)
        v = self._heads(f"{name}.v_proj", x, config.num_key_value_heads)
        q = self._place(layer, f"{name}.q_norm", q, step)
        k = self._place(layer, f"{name}.k_norm", k, step)
        step.kv_cache.write(layer, k, v, step.slot_mapping)
        q = self._grow(layer, q, step)
        out, _ = paged_attention(q, **self._context(layer, config.head_dim, step))
        joined = out.reshape(len(x), config.num_attention_heads * config.head_dim)
        return self._linear(f"{name}.o_proj", joined)

    def _latent_attention(
        self, layer: int, x: Float[np.ndarray, "T E"], sizes: LatentConfig, step: _Step
    ) -> Float[np.ndarray, "T E"]:
        """The same, but what is written are latents (see `reference.latent_attention`)."""
        name = f"{_layer(layer)}.self_attn"
        plain, turning = latent_queries(self.weights, name, x, sizes)
        q = np.concatenate([plain, self._turn(layer, turning, step)], axis=-1)
        latent, shared = latent_keys(self.weights, name, x, sizes)
        stored = np.concatenate([latent, self._turn(layer, shared, step)], axis=-1)
        step.kv_cache.write(layer, stored, None, step.slot_mapping)
        out = latent_attention(
            self._grow(layer, q, step),
            **self._context(layer, sizes.plain + sizes.rotated, step),
            weights=self.weights,
            name=name,
            sizes=sizes,
        )
        return self._linear(f"{name}.o_proj", out.reshape(len(x), -1))

    def _context(self, layer: int, query_size: int, step: _Step) -> dict[str, Any]:
        """What queries of so many numbers attend to, and how."""
        config = self.config
        scale, slopes = config.query_scale, config.alibi_slopes
        return {
            "kv_cache": step.kv_cache.gpu,
            "block_tables": step.block_tables,
            "context_lens": step.context_lens,
            "query_start_loc": step.query_start_loc,
            "layer": layer,
            "scale": query_size**-0.5 if scale is None else scale,
            "window": config.window(layer),
            "chunk": None if config.layer_chunks is None else config.layer_chunks[layer],
            "soft_cap": config.attention_soft_cap,
            "alibi_slopes": None if slopes is None else np.asarray(slopes),
            "sinks": self.weights.get(f"{_layer(layer)}.self_attn.sinks"),
            "kv_scales": step.kv_cache.scales,
        }

    def _norm_heads(
        self, name: str, x: Float[np.ndarray, "T heads D"]
    ) -> Float[np.ndarray, "T heads D"]:
        """Each head by itself, or all heads of a token as one vector."""
        config, weight = self.config, self.weights.get(f"{name}.weight")
        if weight is None:
            return x
        shape = x.shape if config.head_norm == "each" else (len(x), 1, x[0].size)
        bias = self.weights.get(f"{name}.bias")
        normed = normalise(
            x.reshape(shape),
            weight.reshape(shape[1:]),
            None if bias is None else bias.reshape(shape[1:]),
            kind=config.head_norm_kind,
            eps=config.rms_norm_eps,
        )
        return normed.reshape(x.shape).astype(x.dtype)

    def _place(
        self, layer: int, norm: str, x: Float[np.ndarray, "T heads D"], step: _Step
    ) -> Float[np.ndarray, "T heads D"]:
        """Norm queries or keys and turn them, in the model's order."""
        if self.config.head_norm_rotated_first:
            return self._norm_heads(norm, self._turn(layer, x, step))
        return self._turn(layer, self._norm_heads(norm, x), step)

    def _turn(
        self, layer: int, x: Float[np.ndarray, "T heads D"], step: _Step
    ) -> Float[np.ndarray, "T heads D"]:
        turns = self.turns[layer]
        return x if turns is None else apply_rope(x, step.positions, *turns)

    def _grow(
        self, layer: int, q: Float[np.ndarray, "T H D"], step: _Step
    ) -> Float[np.ndarray, "T H D"]:
        """Queries far into a text may be made larger, so that attention stays sharp."""
        if self.config.query_growth is None or layer in self.config.layers_without_growth:
            return q
        beta, length = self.config.query_growth
        places = step.positions + self.config.growth_counts_itself
        grown = 1 + beta * np.log1p(places // length)
        return np.asarray(q * grown[:, None, None], dtype=q.dtype)

    def _feed_forward(self, layer: int, x: Float[np.ndarray, "T E"]) -> Float[np.ndarray, "T E"]:
        name = f"{_layer(layer)}.mlp"
        if self.config.has_experts(layer):
            return np.stack([self._experts(name, token[None])[0] for token in x])
        return self._mlp(name, x)

    def _mlp(self, name: str, x: Float[np.ndarray, "T E"]) -> Float[np.ndarray, "T E"]:
        """down(act(gate(x)) * up(x)), which SwiGLU is; without a gate, down(act(up(x)))."""
        act, up = self.config.hidden_act, self._linear(f"{name}.up_proj", x).astype(np.float64)
        if f"{name}.gate_proj.weight" in self.weights:
            gates = self._linear(f"{name}.gate_proj", x).astype(np.float64)
            hidden = gate(act, gates, up)
        elif act == "xielu":
            hidden = xielu(up, self.weights[f"{name}.xielu"])
        else:
            hidden = activate(act, up)
        return self._linear(f"{name}.down_proj", hidden.astype(x.dtype))

    def _experts(self, name: str, x: Float[np.ndarray, "1 E"]) -> Float[np.ndarray, "1 E"]:
        """One token's experts, and the network that all tokens share."""
        config = self.config.experts
        assert config is not None
        logits = self._linear(f"{name}.router", x.astype(np.float64))[0]
        bias = self.weights.get(f"{name}.router.selection_bias")
        out = np.zeros(x.shape)
        for expert, weight in route(logits, config, bias):
            each = f"{name}.experts.{expert}"
            if config.scaled_input:
                out += self._mlp(each, np.asarray(x * weight, x.dtype))
            else:
                out += weight * self._mlp(each, x)
        if config.shared_width:
            shared = self._mlp(f"{name}.shared", x).astype(np.float64)
            if config.shared_gate:
                shared = shared * sigmoid(self._linear(f"{name}.shared_gate", x))
            out += shared
        return out.astype(x.dtype)

    def _norm_if_any(self, name: str, x: Float[np.ndarray, "T E"]) -> Float[np.ndarray, "T E"]:
        return self._norm(name, x) if f"{name}.weight" in self.weights else x

    def _norm(self, name: str, x: Float[np.ndarray, "T E"]) -> Float[np.ndarray, "T E"]:
        weight, bias = self.weights[f"{name}.weight"], self.weights.get(f"{name}.bias")
        config = self.config
        normed = normalise(x, weight, bias, kind=config.norm, eps=config.rms_norm_eps)
        return normed.astype(x.dtype)

    def _heads(
        self, name: str, x: Float[np.ndarray, "T E"], heads: int
    ) -> Float[np.ndarray, "T heads D"]:
        projected = self._linear(name, x)
        if self.config.clip_qkv is not None:
            projected = np.clip(projected, -self.config.clip_qkv, self.config.clip_qkv)
        return projected.reshape(len(x), heads, self.config.head_dim)

    def _linear(self, name: str, x: Float[np.ndarray, "R in"]) -> Float[np.ndarray, "R out"]:
        return linear(self.weights, name, x)


def _layer(layer: int) -> str:
    return f"model.layers.{layer}"
