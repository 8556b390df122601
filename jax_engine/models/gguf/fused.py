"""Files with q, k and v in one tensor: NeoX, BLOOM, Falcon, Phi-3, GPT-2 and StarCoder.

llama.cpp stores all queries, then all keys, then all values, whatever the original has.
"""

from typing import Any

from jax_engine.model_spec import ModelSpec
from jax_engine.models.gguf.architecture import Architecture, Header, Undo
from jax_engine.weights.row_orders import regrouped
from jax_engine.weights.transforms import Rows, Transpose


def by_group(spec: ModelSpec, qkv: str) -> Rows:
    """Rows of each group of heads together: NeoX's and BLOOM's groups are single heads."""
    queries = spec.num_heads // spec.num_kv_heads
    return regrouped(qkv, spec.num_kv_heads, (queries, 1, 1), spec.head_dim)


def gptneox(header: Header) -> dict[str, Any]:
    parallel = header.fields.parallel_residual
    return header.config(
        "GPTNeoXForCausalLM",
        use_parallel_residual=True if parallel is None else parallel,
        attention_bias=header.has("blk.0.attn_qkv.bias"),
        partial_rotary_factor=header.rotated_part,
    )


def bloom(header: Header) -> dict[str, Any]:
    fields = header.fields
    return header.config(
        "BloomForCausalLM",
        n_layer=fields.block_count,
        n_head=fields.head_count,
        seq_length=fields.context_length,
    )


def falcon(header: Header) -> dict[str, Any]:
    """All in the newer form: Falcon 7B is one group of heads with one norm."""
    return header.config(
        "FalconForCausalLM",
        num_kv_heads=header.kv_heads,
        ffn_hidden_size=header.fields.feed_forward_length,
        new_decoder_architecture=True,
        num_ln_in_parallel_attn=2 if header.has("blk.0.attn_norm_2.weight") else 1,
        bias=header.has("blk.0.attn_qkv.bias"),
    )


def phi3(header: Header) -> dict[str, Any]:
    """Its fused tensors are in Hugging Face's order. A window of 0 is none."""
    return header.config(
        "Phi3ForCausalLM",
        partial_rotary_factor=header.rotated_part,
        sliding_window=header.fields.sliding_window or None,
    )


def gpt2(header: Header, architecture: str = "GPT2LMHeadModel", **own: Any) -> dict[str, Any]:
    fields = header.fields
    sizes = {
        "n_embd": fields.embedding_length,
        "n_layer": fields.block_count,
        "n_head": fields.head_count,
        "n_positions": fields.context_length,
        "n_inner": fields.feed_forward_length,
    }
    return header.config(architecture, sizes, own)


def starcoder(header: Header) -> dict[str, Any]:
    """All heads share one key and value."""
    multi, activation = header.kv_heads == 1, "gelu_pytorch_tanh"
    return gpt2(header, "GPTBigCodeForCausalLM", multi_query=multi, activation_function=activation)


QKV: dict[str, Undo] = {"query_key_value": by_group}
BLOOM: dict[str, Undo] = {  # names that the gguf package knows in another form only
    "word_embeddings_layernorm.weight": lambda *_: "token_embd_norm.weight",
    "word_embeddings_layernorm.bias": lambda *_: "token_embd_norm.bias",
    "post_attention_layernorm.weight": lambda *_: "blk.{layer}.ffn_norm.weight",
    "post_attention_layernorm.bias": lambda *_: "blk.{layer}.ffn_norm.bias",
}
TURNED: dict[str, Undo] = dict.fromkeys(
    ("c_attn.weight", "c_proj.weight", "c_fc.weight"), lambda spec, stored: Transpose(stored)
)
ARCHITECTURES = (
    Architecture("gptneox", gptneox, QKV),
    Architecture("bloom", bloom, QKV | BLOOM),
    Architecture("falcon", falcon, QKV),
    Architecture("phi3", phi3),
    Architecture("gpt2", gpt2, TURNED),
    Architecture("starcoder", starcoder),
)
