"""StableLM: Llama with layer norms and RoPE on a quarter of each head; some are parallel."""

from jax_engine.model_spec import HeadNormSpec, ModelSpec, NormSpec
from jax_engine.models.checkpoints.file_schema import Size
from jax_engine.models.families import llama
from jax_engine.models.families.changed import changed
from jax_engine.models.families.hf_config import partial_factor
from jax_engine.models.hf_schemas import Epsilon, Fraction, LlamaFields
from jax_engine.weights.transforms import Declaration, Stack


class Fields(LlamaFields, frozen=True):
    """Llama's fields and StableLM's own."""

    num_key_value_heads: Size | None = 32
    layer_norm_eps: Epsilon = 1e-5
    use_qkv_bias: bool = False
    qk_layernorm: bool = False
    use_parallel_residual: bool = False
    partial_rotary_factor: Fraction | None = None


def specification(fields: Fields) -> ModelSpec:
    """Llama's layers with other norms; if parallel, both parts read the same norm."""
    plain = llama.specification(fields, partial_factor(fields, 0.25))
    norm = NormSpec(fields.layer_norm_eps, "layer", bias=True)
    head_norm = HeadNormSpec(fields.layer_norm_eps, "layer") if fields.qk_layernorm else None
    parallel = fields.use_parallel_residual
    return changed(
        plain,
        attention={
            "qkv_bias": fields.use_qkv_bias,
            "head_norm": head_norm,
        },
        layer={
            "input_norm": norm,
            "mlp_norm": None if parallel else norm,
            "parallel": parallel,
        },
        norm=norm,
    )


def weights(spec: ModelSpec) -> dict[str, Declaration]:
    """Llama's names; each head has a norm of its own."""
    attention = "model.layers.{layer}.self_attn"
    q, k = (f"{attention}.{name}_layernorm.norms.{{head}}.{{kind}}" for name in "qk")
    return llama.weights(spec) | {
        "layers.attention.q_norm": Stack("head", range(spec.num_heads), q),
        "layers.attention.k_norm": Stack("head", range(spec.num_kv_heads), k),
    }
