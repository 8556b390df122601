"""What distinguishes one decoder from another: the sizes of a Llama, and the knobs of the rest.

Decoders since GPT-2 are one machine with a few switches. Each field below whose default is Llama's
is such a switch; the comment names a family that turns it. A checkpoint that only stores the same
numbers in another order needs no switch: its loader rearranges them.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from reference.rope import RopeScaling


@dataclass(frozen=True)
class Rope:
    """One kind of rotation: its base, and how it is stretched (see `reference.rope`)."""

    theta: float
    scaling: RopeScaling | None = None


@dataclass(frozen=True)
class ExpertsConfig:
    """A layer's experts: how many there are, how a token chooses among them, what else it uses.

    * `scores`: "softmax" of the logits of all experts; "chosen_softmax", of the chosen ones only
      (Mixtral, gpt-oss); or "sigmoid" of each (GLM-4.5, DeepSeek V3). "chosen_sigmoid" is the same,
      but the best are those with the largest logits, however close their sigmoids are (Llama 4).
    * `renormalise` divides the scores of the chosen by their sum; `scaling` multiplies them.
    * `router_bias` is added to the logits; `selection_bias` to the scores, for the choice only.
    * `num_groups`: the experts lie in groups, and a token chooses among those of its
      `num_top_groups` best ones. A group is as good as its `experts_judged` best experts together:
      two in DeepSeek V3, one in DeepSeek V2.
    * `shared_width` is the width of a network that every token uses; 0 for none. `shared_gate`
      multiplies its output by the sigmoid of one more product (Qwen 2).
    * `scaled_input`: an expert's weight multiplies what it reads, not what it says (Llama 4).
    """

    num_experts: int
    num_chosen: int
    width: int
    scores: str = "softmax"
    renormalise: bool = False
    scaling: float = 1.0
    router_bias: bool = False
    selection_bias: bool = False
    num_groups: int = 1
    num_top_groups: int = 1
    experts_judged: int = 2
    bias: bool = False
    shared_width: int = 0
    shared_gate: bool = False
    scaled_input: bool = False


@dataclass(frozen=True)
class LatentConfig:
    """Sizes of multi-head latent attention (see `reference.latent_attention`).

    * `kv_rank`, `rotated`: the numbers of a latent, and of the rotated part of a key. Together they
      are what the cache holds for a token.
    * `plain`, `value_dim`: the numbers of the other part of a head's key, and of its value.
    * `q_rank`: queries, too, are made of a latent of so many numbers; None: straight of the input
      (DeepSeek V2 Lite).
    * `eps` of the norms of both latents, which is not that of the other norms.
    """

    kv_rank: int
    rotated: int
    plain: int
    value_dim: int
    q_rank: int | None = None
    eps: float = 1e-6


@dataclass(frozen=True)
class TransformerConfig:
    """The sizes, under their Hugging Face names, and the switches.

    * `norm_placement` says what a part f (attention, or the MLP) does to the residual stream x:

          pre            x + f(norm(x))                      Llama
          post           x + norm(f(x))                      OLMo 2
          sandwich       x + norm(f(norm(x)))                Gemma 2
          parallel       x + attention(n) + mlp(n), n = norm(x)   GPT-J, Falcon
          parallel_two   the same with a norm for each part  GPT-NeoX

    * With `latent`, the KV heads and `head_dim` mean nothing, and `attention_bias` is about the
      products that make latents, and about the output.
    * `layer_ropes`, `layer_windows` and `layer_chunks` have an entry for each layer. A layer whose
      entry is None does not rotate, or sees all positions. Where a tuple is not given, all layers
      have `rope_theta` and `rope_scaling`, or `sliding_window`, or no chunks.
    """

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
    # norms
    norm: str = "rms"  # "layer": GPT-2
    norm_bias: bool = False
    norm_placement: str = "pre"
    # positions
    learned_positions: int | None = None  # rows of a table that is added to the embedding: GPT-2
    layer_ropes: tuple[Rope | None, ...] | None = None  # Gemma 3, SmolLM 3
    rotary_dim: int | None = None  # only the first numbers of a head are rotated: GPT-NeoX
    alibi_slopes: tuple[float, ...] | None = None  # BLOOM
    # attention
    layer_windows: tuple[int | None, ...] | None = None  # Gemma 2
    layer_chunks: tuple[int | None, ...] | None = None  # a query sees its own chunk: Llama 4
    query_scale: float | None = None  # instead of D ** -0.5: Gemma 2
    query_growth: tuple[float, int] | None = None  # beta and length: Ministral 3
    growth_counts_itself: bool = False  # position p is the (p + 1)-th: Llama 4
    layers_without_growth: tuple[int, ...] = ()  # Llama 4
    attention_soft_cap: float | None = None  # Gemma 2
    sinks: bool = False  # gpt-oss
    head_norm: str | None = None  # "each" head by itself (Qwen 3), or "all" together (OLMo 2)
    head_norm_kind: str = "rms"  # "layer": Cohere
    head_norm_bias: bool = False
    head_norm_rotated_first: bool = False  # Hunyuan
    layers_without_head_norm: tuple[int, ...] = ()  # Llama 4
    clip_qkv: float | None = None  # MPT
    output_bias: bool | None = None  # None: as `attention_bias`; False: Qwen 2
    latent: LatentConfig | None = None  # DeepSeek V2
    # the MLP
    hidden_act: str = "silu"  # "xielu", of a network without a gate: Apertus
    gated_mlp: bool = True  # False: GPT-2
    experts: ExpertsConfig | None = None
    dense_layers: tuple[int, ...] = ()  # which layers have no experts
    # embedding and head
    embedding_norm: bool = False  # BLOOM
    embedding_factor: float = 1.0  # Gemma
    scales_inputs: bool = False  # vectors in place of tokens have the factor, too: Granite
    residual_factor: float = 1.0  # Granite
    logits_factor: float = 1.0  # Granite
    logits_soft_cap: float | None = None  # Gemma 2
    head_bias: bool = False  # Phi

    def cache_sizes(self) -> dict[str, int]:
        """What `KVCache` must know of the decoder.

        >>> latent = LatentConfig(kv_rank=6, rotated=2, plain=4, value_dim=4)
        >>> sizes = TransformerConfig(8, 4, 6, 1, 2, 2, head_dim=4, latent=latent).cache_sizes()
        >>> sizes
        {'num_layers': 1, 'num_kv_heads': 1, 'head_dim': 8, 'values_in_keys': True}
        """
        heads, size = self.num_key_value_heads, self.head_dim
        if self.latent is not None:
            heads, size = 1, self.latent.kv_rank + self.latent.rotated
        return {
            "num_layers": self.num_hidden_layers,
            "num_kv_heads": heads,
            "head_dim": size,
            "values_in_keys": self.latent is not None,
        }

    def rotated(self) -> int:
        """How many numbers of a head, or of the cached key of all heads, are rotated."""
        if self.latent is not None:
            return self.latent.rotated
        return self.head_dim if self.rotary_dim is None else self.rotary_dim

    def window(self, layer: int) -> int | None:
        """How many of the last positions a query of this layer sees; None for all."""
        return self.sliding_window if self.layer_windows is None else self.layer_windows[layer]

    def rope(self, layer: int) -> Rope | None:
        """How this layer rotates queries and keys; None for not at all."""
        if self.layer_ropes is None:
            return Rope(self.rope_theta, self.rope_scaling)
        return self.layer_ropes[layer]

    def has_experts(self, layer: int) -> bool:
        return self.experts is not None and layer not in self.dense_layers

    def norms(self) -> list[str]:
        """The norms of a layer: before attention, behind it, before the MLP, behind it."""
        before = ["input_layernorm", "post_attention_layernorm"]
        behind = ["attention_output_norm", "mlp_output_norm"]
        placed = {
            "pre": before,
            "post": behind,
            "sandwich": before + behind,
            "parallel": before[:1],
            "parallel_two": before,
        }
        return placed[self.norm_placement]


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
    width, vocab = config.hidden_size, config.vocab_size
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (vocab, width)}
    if config.learned_positions is not None:
        shapes["model.embed_positions.weight"] = (config.learned_positions, width)
    norms = ["model.norm"] + ["model.embed_norm"] * config.embedding_norm
    if not config.tie_word_embeddings:
        shapes |= _linear("lm_head", vocab, width, config.head_bias)
    for layer in range(config.num_hidden_layers):
        name = f"model.layers.{layer}"
        norms += [f"{name}.{norm}" for norm in config.norms()]
        attention = f"{name}.self_attn"
        if config.latent is not None:
            shapes |= dict(_latent_attention(config, attention))
        else:
            shapes |= dict(_attention(config, attention, layer))
        shapes |= dict(_experts(config, name) if config.has_experts(layer) else _mlp(config, name))
    for norm in norms:
        shapes |= _norm(norm, (width,), config.norm_bias)
    return shapes


Shapes = Iterator[tuple[str, tuple[int, ...]]]


def _linear(name: str, outputs: int, inputs: int, bias: bool) -> dict[str, tuple[int, ...]]:
    weight: dict[str, tuple[int, ...]] = {f"{name}.weight": (outputs, inputs)}
    return weight | ({f"{name}.bias": (outputs,)} if bias else {})


def _norm(name: str, shape: tuple[int, ...], bias: bool) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": shape} | ({f"{name}.bias": shape} if bias else {})


def _attention(config: TransformerConfig, name: str, layer: int) -> Shapes:
    width, size, bias = config.hidden_size, config.head_dim, config.attention_bias
    heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
    for kind, count in (("q", heads), ("k", kv_heads), ("v", kv_heads)):
        yield from _linear(f"{name}.{kind}_proj", count * size, width, bias).items()
    yield from _output(config, name, size)
    if config.head_norm is not None and layer not in config.layers_without_head_norm:
        for kind, count in (("q", heads), ("k", kv_heads)):
            shape = (count, size)
            yield from _norm(f"{name}.{kind}_norm", shape, config.head_norm_bias).items()


def _output(config: TransformerConfig, name: str, value_dim: int) -> Shapes:
    heads = config.num_attention_heads
    bias = config.attention_bias if config.output_bias is None else config.output_bias
    yield from _linear(f"{name}.o_proj", config.hidden_size, heads * value_dim, bias).items()
    if config.sinks:
        yield f"{name}.sinks", (heads,)


def _latent_attention(config: TransformerConfig, name: str) -> Shapes:
    latent = config.latent
    assert latent is not None
    width, heads, bias = config.hidden_size, config.num_attention_heads, config.attention_bias
    queries = heads * (latent.plain + latent.rotated)
    if latent.q_rank is None:
        yield f"{name}.q_proj.weight", (queries, width)
    else:
        yield from _linear(f"{name}.q_a_proj", latent.q_rank, width, bias).items()
        yield f"{name}.q_a_layernorm.weight", (latent.q_rank,)
        yield f"{name}.q_b_proj.weight", (queries, latent.q_rank)
    stored, expanded = latent.kv_rank + latent.rotated, heads * (latent.plain + latent.value_dim)
    yield from _linear(f"{name}.kv_a_proj_with_mqa", stored, width, bias).items()
    yield f"{name}.kv_a_layernorm.weight", (latent.kv_rank,)
    yield f"{name}.kv_b_proj.weight", (expanded, latent.kv_rank)
    yield from _output(config, name, latent.value_dim)


def _mlp(config: TransformerConfig, layer: str) -> Shapes:
    yield from _network(
        config, f"{layer}.mlp", config.intermediate_size, config.gated_mlp, config.mlp_bias
    )
    if config.hidden_act == "xielu":
        yield f"{layer}.mlp.xielu", (4,)


def _network(config: TransformerConfig, name: str, ffn: int, gated: bool, bias: bool) -> Shapes:
    """Each matrix of a feed-forward network."""
    for kind in ["gate"] * gated + ["up"]:
        yield from _linear(f"{name}.{kind}_proj", ffn, config.hidden_size, bias).items()
    yield from _linear(f"{name}.down_proj", config.hidden_size, ffn, bias).items()


def _experts(config: TransformerConfig, layer: str) -> Shapes:
    assert config.experts is not None
    name, experts = f"{layer}.mlp", config.experts
    count, width = experts.num_experts, config.hidden_size
    yield from _linear(f"{name}.router", count, width, experts.router_bias).items()
    if experts.selection_bias:
        yield f"{name}.router.selection_bias", (count,)
    for expert in range(count):
        here = f"{name}.experts.{expert}"
        yield from _network(config, here, experts.width, True, experts.bias)
    if experts.shared_width:
        yield from _network(config, f"{name}.shared", experts.shared_width, True, False)
    if experts.shared_gate:
        yield f"{name}.shared_gate.weight", (1, width)
