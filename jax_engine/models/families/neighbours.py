"""Checkpoints whose RoPE rotates pairs of neighbouring numbers of a head, instead of halves."""

from jax_engine.model_spec import ModelSpec
from jax_engine.weights.transforms import Concatenate, Declaration, rope_halves


def qkv_in_halves(
    spec: ModelSpec, prefix: str = "model.layers.{layer}.self_attn"
) -> dict[str, Declaration]:
    """The fused product of `q_proj`, `k_proj` and `v_proj`, with rows of q and k reordered.

    Args:
        prefix: what the tensors' names begin with.
    """
    size, rotated = spec.head_dim, spec.attentions[0].rotated
    q, k, v = (f"{prefix}.{name}_proj.{{kind}}" for name in "qkv")
    heads, kv_heads = spec.num_heads, spec.num_kv_heads
    parts = rope_halves(q, heads, size, rotated), rope_halves(k, kv_heads, size, rotated), v
    sizes = (heads * size, kv_heads * size, kv_heads * size)
    return {"layers.attention.qkv": Concatenate(parts, sizes=sizes)}
