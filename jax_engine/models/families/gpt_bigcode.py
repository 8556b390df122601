"""StarCoder, SantaCoder (GPT-BigCode): GPT-2 whose query heads share one KV head (MQA)."""

from jax_engine.model_spec import ModelSpec
from jax_engine.models.families import gpt2
from jax_engine.weights.transforms import Declaration, ungrouped


class Fields(gpt2.Fields, frozen=True):
    """GPT-2's fields, and whether there is only one KV head."""

    activation_function: str = "gelu_pytorch_tanh"
    multi_query: bool = True


def specification(fields: Fields) -> ModelSpec:
    """GPT-2's layers."""
    return gpt2.specification(fields, 1 if fields.multi_query else None)


def weights(spec: ModelSpec) -> dict[str, Declaration]:
    """GPT-2's names, [out, in]; without `multi_query`, q, k and v of a head are together."""
    found: dict[str, Declaration] = dict(gpt2.names())
    heads, kv_heads = spec.num_heads, spec.num_kv_heads
    qkv = found["layers.attention.qkv"]
    counts = (heads // kv_heads, 1, 1)
    return found | {"layers.attention.qkv": ungrouped(qkv, kv_heads, counts, spec.head_dim)}
