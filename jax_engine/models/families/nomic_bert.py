"""Nomic Embed (NomicBERT): BERT with RoPE in place of learned positions, and a gated MLP."""

import msgspec

from jax_engine.model_spec import ModelSpec
from jax_engine.models.checkpoints.file_schema import Size
from jax_engine.models.families import bert
from jax_engine.models.families.changed import changed
from jax_engine.models.families.hf_config import require, require_one_of, rope_from_hf
from jax_engine.models.hf_schemas import Epsilon, RopeFields, Theta
from jax_engine.models.model_config import HeadLayers, HeadTask
from jax_engine.weights.transforms import Concatenate, Declaration


class Fields(bert.Fields, frozen=True):
    """config.json: transformers' names, and beside them those of the published checkpoints."""

    hidden_act: str = "silu"
    max_position_embeddings: Size = 2048
    max_trained_positions: Size | None = None
    rope_theta: Theta = 1000.0
    rope_scaling: RopeFields | None = None
    rope_parameters: RopeFields | None = None
    original_max_position_embeddings: Size | None = None
    n_inner: Size | None = None
    activation_function: str = "swiglu"
    layer_norm_epsilon: Epsilon | None = None
    prenorm: bool | None = False
    parallel_block: bool | None = False
    use_rms_norm: bool | None = False
    qkv_proj_bias: bool | None = False
    mlp_fc1_bias: bool | None = False
    mlp_fc2_bias: bool | None = False
    rotary_emb_fraction: float | None = 1.0
    rotary_emb_interleaved: bool | None = False
    rotary_emb_scale_base: float | None = None
    rotary_scaling_factor: float | None = None
    moe_every_n_layers: int | None = 0
    causal: bool | None = False


def specification(fields: Fields) -> ModelSpec:
    """BERT's layers without biases.

    Raises:
        ConfigError: A switch of the published code has a value that no published model has.
    """
    off = (False, None)
    for name in ("prenorm", "parallel_block", "use_rms_norm", "qkv_proj_bias", "mlp_fc1_bias",
                 "mlp_fc2_bias", "rotary_emb_interleaved", "causal"):  # fmt: skip
        require_one_of(fields, name, off)
    require_one_of(fields, "moe_every_n_layers", (0, None))
    require_one_of(fields, "rotary_emb_fraction", (1.0, None))
    require(fields, activation_function="swiglu", rotary_emb_scale_base=None)
    require(fields, rotary_scaling_factor=None)
    longest = fields.max_position_embeddings
    longest = min(longest, fields.max_trained_positions or longest)
    spec = bert.specification(
        msgspec.structs.replace(
            fields,
            intermediate_size=fields.n_inner or fields.intermediate_size,
            layer_norm_eps=fields.layer_norm_epsilon or fields.layer_norm_eps,
        )
    )
    return changed(
        spec,
        attention={"rope": rope_from_hf(fields), "qkv_bias": False, "output_bias": False},
        mlp={"gated": True, "bias": False},
        learned_positions=None,
        max_context_len=longest,
    )


def weights(spec: ModelSpec) -> dict[str, Declaration]:
    """The published names, below that of the whole model."""
    layer = "nomic_bert.encoder.layers.{layer}"
    gate_up = f"{layer}.mlp.fc12.{{kind}}", f"{layer}.mlp.fc11.{{kind}}"
    return {
        "embed": "nomic_bert.embeddings.word_embeddings.{kind}",
        "token_types": "nomic_bert.embeddings.token_type_embeddings.{kind}",
        "embed_norm": "nomic_bert.emb_ln.{kind}",
        "layers.attention.qkv": f"{layer}.attn.Wqkv.{{kind}}",
        "layers.attention.o": f"{layer}.attn.out_proj.{{kind}}",
        "layers.attention_output_norm": f"{layer}.norm1.{{kind}}",
        "layers.mlp.gate_up": Concatenate(gate_up),
        "layers.mlp.down": f"{layer}.mlp.fc2.{{kind}}",
        "layers.mlp_output_norm": f"{layer}.norm2.{{kind}}",
    }


def head(fields: Fields, task: HeadTask) -> HeadLayers:
    """BERT's."""
    return bert.head(fields, task, "nomic_bert")
