"""MiniMax M2: experts chosen by sigmoids plus a bias; norms over all heads of q and k."""

from jax_engine.errors import ConfigError
from jax_engine.model_spec import ExpertsSpec, HeadNormSpec, ModelSpec, RouterSpec
from jax_engine.models.checkpoints.file_schema import Size
from jax_engine.models.families import llama, mixtral, olmo2
from jax_engine.models.families.changed import changed
from jax_engine.models.families.hf_config import FILE, partial_factor, require
from jax_engine.models.hf_schemas import Fraction, LlamaFields, Theta
from jax_engine.weights.transforms import Declaration

ATTENTION = 1  # in `attn_type_list`; 0 is linear attention


class Fields(LlamaFields, frozen=True):
    """Llama's fields and the experts; released files give the rotated part as `rotary_dim`."""

    num_key_value_heads: Size | None = 8
    head_dim: Size | None = 128
    rope_theta: Theta = 5000000.0
    partial_rotary_factor: Fraction | None = None
    rotary_dim: Size | None = None
    num_local_experts: Size = 256
    num_experts_per_tok: Size = 8
    use_qk_norm: bool | None = True
    shared_intermediate_size: int | None = 0
    attn_type_list: list[int] | None = None


def specification(fields: Fields) -> ModelSpec:
    """Llama's layers with partial rotation; the weights of the chosen experts sum to one."""
    require(fields, use_qk_norm=True, shared_intermediate_size=0)
    if set(fields.attn_type_list or ()) - {ATTENTION}:
        raise ConfigError(
            f"{FILE}: attn_type_list {fields.attn_type_list!r} is not supported; known: "
            f"{ATTENTION} for every layer. Linear attention needs a state that is no KV cache."
        )
    size = fields.head_dim or fields.hidden_size // fields.num_attention_heads
    rotated = 1.0 if fields.rotary_dim is None else fields.rotary_dim / size
    router = RouterSpec(
        fields.num_local_experts,
        fields.num_experts_per_tok,
        "sigmoid",
        renormalise=True,
        selection_bias=True,
    )
    return changed(
        llama.specification(fields, partial_factor(fields, rotated)),
        attention={"head_norm": HeadNormSpec(fields.rms_norm_eps, whole=True)},
        layer={"mlp": ExpertsSpec(router, llama.mlp_of(fields))},
    )


def weights(spec: ModelSpec) -> dict[str, Declaration]:
    """Mixtral's names, those of OLMo 2's norms of heads, and that of the bias."""
    block = "model.layers.{layer}.block_sparse_moe"
    return (
        mixtral.weights(spec)
        | olmo2.head_norms()
        | {"layers.experts.router.selection_bias": f"{block}.e_score_correction_bias"}
    )
