"""OLMoE: Llama with experts in each layer, and norms over all heads of q and k."""

from jax_engine.model_spec import ExpertsSpec, HeadNormSpec, ModelSpec, RouterSpec
from jax_engine.models.checkpoints.file_schema import Positive, Size
from jax_engine.models.families import llama, olmo2, qwen2_moe
from jax_engine.models.families.changed import changed
from jax_engine.models.families.hf_config import require
from jax_engine.models.hf_schemas import LlamaFields
from jax_engine.weights.transforms import Declaration


class Fields(LlamaFields, frozen=True):
    """Llama's fields and the experts."""

    rms_norm_eps: float = 1e-5
    num_experts: Size = 64
    num_experts_per_tok: Size = 8
    norm_topk_prob: bool = False
    clip_qkv: Positive | None = None
    sliding_window: int | None = None


def specification(fields: Fields) -> ModelSpec:
    """Llama's layers with experts. OLMoE would clip behind its norms, which no checkpoint does."""
    require(fields, clip_qkv=None, sliding_window=None)
    counts = fields.num_experts, fields.num_experts_per_tok
    router = RouterSpec(*counts, renormalise=fields.norm_topk_prob)
    return changed(
        llama.specification(fields),
        attention={"head_norm": HeadNormSpec(fields.rms_norm_eps, whole=True)},
        layer={"mlp": ExpertsSpec(router, llama.mlp_of(fields))},
    )


def weights(spec: ModelSpec) -> dict[str, Declaration]:
    """Llama's names, and those of the experts and of the norms of heads."""
    return llama.weights(spec) | qwen2_moe.names(spec) | olmo2.head_norms()
