"""Architectures whose files hold q, k and v in one tensor: NeoX, Falcon, Phi-3, GPT-2, StarCoder.

llama.cpp stores all queries, then all keys, then all values, whatever the original has.
"""

from typing import Any

from jax_engine.models.gguf.architecture import Architecture, Header
from jax_engine.weights.row_orders import regrouped
from jax_engine.weights.transforms import Transpose


def gptneox(header: Header) -> dict[str, Any]:
    parallel = header.fields.parallel_residual
    return header.common | {
        "architectures": ["GPTNeoXForCausalLM"],
        "use_parallel_residual": True if parallel is None else parallel,
        "attention_bias": header.has("blk.0.attn_qkv.bias"),
        "partial_rotary_factor": header.rotated_part,
    }


def falcon(header: Header) -> dict[str, Any]:
    """All in the newer form: Falcon 7B is one group of heads with one norm."""
    norms = 2 if header.has("blk.0.attn_norm_2.weight") else 1
    return header.common | {
        "architectures": ["FalconForCausalLM"],
        "num_kv_heads": header.kv_heads,
        "ffn_hidden_size": header.fields.feed_forward_length,
        "new_decoder_architecture": True,
        "num_ln_in_parallel_attn": norms,
        "bias": header.has("blk.0.attn_qkv.bias"),
    }


def phi3(header: Header) -> dict[str, Any]:
    """Its fused tensors are in Hugging Face's order. A window of 0 is none."""
    return header.common | {
        "architectures": ["Phi3ForCausalLM"],
        "partial_rotary_factor": header.rotated_part,
        "sliding_window": header.fields.sliding_window or None,
    }


def gpt2(header: Header) -> dict[str, Any]:
    fields = header.fields
    return header.common | {
        "architectures": ["GPT2LMHeadModel"],
        "n_embd": fields.embedding_length,
        "n_layer": fields.block_count,
        "n_head": fields.head_count,
        "n_positions": fields.context_length,
        "n_inner": fields.feed_forward_length,
    }


def starcoder(header: Header) -> dict[str, Any]:
    """All heads share one key and value."""
    config = gpt2(header)
    return config | {
        "architectures": ["GPTBigCodeForCausalLM"],
        "multi_query": header.kv_heads == 1,
        "activation_function": "gelu_pytorch_tanh",
    }


ARCHITECTURES = (
    Architecture(
        "gptneox",
        gptneox,
        {
            "query_key_value": lambda spec, stored: regrouped(
                stored, spec.num_heads, (1, 1, 1), spec.head_dim
            )
        },
    ),
    Architecture(
        "falcon",
        falcon,
        {
            "query_key_value": lambda spec, stored: regrouped(
                stored,
                spec.num_kv_heads,
                (spec.num_heads // spec.num_kv_heads, 1, 1),
                spec.head_dim,
            )
        },
    ),
    Architecture("phi3", phi3),
    Architecture(
        "gpt2",
        gpt2,
        dict.fromkeys(("c_attn", "c_proj", "c_fc"), lambda spec, stored: Transpose(stored)),
    ),
    Architecture("starcoder", starcoder),
)
