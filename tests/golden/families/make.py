"""Asks PyTorch transformers what tiny checkpoints of all families answer; writes the goldens.

Needs PyTorch, whose small CPU build installs on Python 3.11 only, so it runs apart from the tests:

    python3.11 -m venv /tmp/torch311
    /tmp/torch311/bin/pip install torch==2.13.0 transformers safetensors numpy
    /tmp/torch311/bin/python -m tests.golden.families.make

writes cases.json and logits.npz beside it.
"""

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from safetensors.numpy import load_file, save_file

from tests.golden.families.checkpoints import HERE, NUM_GREEDY, PROMPT, ROWS, VOCABULARY, draw

TOKENS: dict[str, Any] = {"vocab_size": VOCABULARY, "bos_token_id": 1, "eos_token_id": 2}
LLAMA: dict[str, Any] = TOKENS | {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
}
GPT2: dict[str, Any] = TOKENS | {"n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 64}
FALCON: dict[str, Any] = TOKENS | {
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
}
HALF = {"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.5}
GRANITE = {
    "embedding_multiplier": 3.0,
    "residual_multiplier": 0.4,
    "attention_multiplier": 0.2,
    "logits_scaling": 2.5,
}
GEMMA2 = {"head_dim": 16, "query_pre_attn_scalar": 20, "sliding_window": 5}
QWEN_MOE = {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 24}


def long_rope(original: int) -> dict[str, Any]:
    """Phi-3's rope: prompts longer than `original` take the long factors."""
    rope = {
        "rope_type": "longrope",
        "rope_theta": 500.0,
        "short_factor": [1.0, 1.1],
        "long_factor": [1.5, 3.0],
        "partial_rotary_factor": 0.5,
        "original_max_position_embeddings": original,
    }
    return {"original_max_position_embeddings": original, "rope_parameters": rope}


GROWING = {
    "rope_type": "yarn",
    "rope_theta": 500.0,
    "factor": 4.0,
    "original_max_position_embeddings": 16,
    "llama_4_scaling_beta": 0.3,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
}
GLM_MOE: dict[str, Any] = LLAMA | {
    "head_dim": 8,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 24,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
    "attention_bias": True,
    "use_qk_norm": True,
    "routed_scaling_factor": 1.5,
}
# The name of the case: the beginning of transformers' names of its classes, and the configuration.
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", LLAMA | {"head_dim": 8}),
    "mistral": ("Mistral", LLAMA | {"sliding_window": 6}),
    "ministral3": (
        "Ministral3",
        LLAMA | {"sliding_window": None, "head_dim": 8, "rope_parameters": GROWING},
    ),
    "qwen2": (
        "Qwen2",
        LLAMA
        | {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1}
        | {"tie_word_embeddings": True},
    ),
    "qwen3": ("Qwen3", LLAMA | {"head_dim": 16}),
    "phi3": ("Phi3", LLAMA | {"sliding_window": 9}),
    "phi3_short": ("Phi3", LLAMA | long_rope(64)),
    "phi3_long": ("Phi3", LLAMA | long_rope(16)),
    "granite": ("Granite", LLAMA | GRANITE),
    "smollm3": ("SmolLM3", LLAMA | {"num_hidden_layers": 5, "no_rope_layer_interval": 2}),
    "olmo": ("Olmo", LLAMA | {"clip_qkv": 0.7}),
    "olmo2": ("Olmo2", LLAMA),
    "olmo3": ("Olmo3", LLAMA | {"num_hidden_layers": 5, "sliding_window": 5}),
    "stablelm": ("StableLm", LLAMA | {"use_qkv_bias": True}),
    "stablelm_parallel": (
        "StableLm",
        LLAMA | {"use_parallel_residual": True, "qk_layernorm": True, "rope_parameters": HALF},
    ),
    "starcoder2": ("Starcoder2", LLAMA | {"sliding_window": 6}),
    "phi": ("Phi", LLAMA),
    "phi_head_norms": ("Phi", LLAMA | {"qk_layernorm": True}),
    "gpt_neox": ("GPTNeoX", LLAMA),
    "gpt_neox_in_turn": (
        "GPTNeoX",
        LLAMA | {"use_parallel_residual": False, "attention_bias": False},
    ),
    "gptj": ("GPTJ", GPT2 | {"rotary_dim": 4}),
    "gpt2": ("GPT2", GPT2),
    "gpt_bigcode": ("GPTBigCode", GPT2),
    "gpt_bigcode_all_heads": ("GPTBigCode", GPT2 | {"multi_query": False}),
    "opt": (
        "OPT",
        FALCON
        | {"ffn_dim": 48, "max_position_embeddings": 64, "word_embed_proj_dim": 32}
        | {"pad_token_id": 0},
    ),
    "bloom": ("Bloom", TOKENS | {"hidden_size": 48, "n_layer": 3, "n_head": 6}),
    "mpt": (
        "Mpt",
        TOKENS
        | {"d_model": 48, "n_layers": 3, "n_heads": 6, "max_seq_len": 64}
        | {"attn_config": {"clip_qkv": 0.8}},
    ),
    "falcon_7b": ("Falcon", FALCON),
    "falcon_40b": ("Falcon", FALCON | {"num_kv_heads": 2, "new_decoder_architecture": True}),
    "falcon_rw": (
        "Falcon",
        FALCON | {"alibi": True, "multi_query": False, "parallel_attn": False, "bias": True},
    ),
    "nemotron": ("Nemotron", LLAMA),
    "cohere": ("Cohere", LLAMA),
    "cohere_head_norms": ("Cohere", LLAMA | {"use_qk_norm": True}),
    "cohere2": ("Cohere2", LLAMA | {"num_hidden_layers": 5, "sliding_window": 5}),
    "glm": ("Glm", LLAMA | {"head_dim": 8, "attention_bias": True}),
    "glm4": ("Glm4", LLAMA | {"head_dim": 8, "attention_bias": True}),
    "gemma": ("Gemma", LLAMA | {"head_dim": 16}),
    "gemma2": (
        "Gemma2",
        LLAMA
        | GEMMA2
        | {"num_hidden_layers": 4}
        | {"attn_logit_softcapping": 5.0, "final_logit_softcapping": 3.0},
    ),
    "gemma3": ("Gemma3Text", LLAMA | GEMMA2 | {"num_hidden_layers": 7}),
    "exaone4": (
        "Exaone4",
        LLAMA
        | {"num_hidden_layers": 5, "head_dim": 8, "sliding_window": 5}
        | {"sliding_window_pattern": 4},
    ),
    "mixtral": ("Mixtral", LLAMA | {"num_local_experts": 5, "num_experts_per_tok": 2}),
    "qwen2_moe": (
        "Qwen2Moe",
        LLAMA | QWEN_MOE | {"shared_expert_intermediate_size": 40, "norm_topk_prob": False},
    ),
    "qwen2_moe_in_turn": (
        "Qwen2Moe",
        LLAMA
        | QWEN_MOE
        | {"num_hidden_layers": 4, "shared_expert_intermediate_size": 40}
        | {"decoder_sparse_step": 2, "norm_topk_prob": True},
    ),
    "qwen3_moe": (
        "Qwen3Moe",
        LLAMA
        | QWEN_MOE
        | {"head_dim": 16, "num_experts_per_tok": 3, "norm_topk_prob": True}
        | {"decoder_sparse_step": 1, "mlp_only_layers": [0]},
    ),
    "olmoe": ("Olmoe", LLAMA | {"num_experts": 6, "num_experts_per_tok": 3}),
    "granitemoe": (
        "GraniteMoe",
        LLAMA | GRANITE | {"num_local_experts": 5, "num_experts_per_tok": 2},
    ),
    "granitemoe_shared": (
        "GraniteMoeShared",
        LLAMA
        | {"num_local_experts": 5, "num_experts_per_tok": 2}
        | {"shared_intermediate_size": 24},
    ),
    "glm4_moe": ("Glm4Moe", GLM_MOE | {"n_group": 1, "topk_group": 1}),
    "glm4_moe_groups": ("Glm4Moe", GLM_MOE | {"n_group": 4, "topk_group": 2}),
    "gpt_oss": (
        "GptOss",
        LLAMA
        | {"head_dim": 8, "num_hidden_layers": 4, "num_local_experts": 5}
        | {"num_experts_per_tok": 2, "sliding_window": 5},
    ),
}
MODELS = {"GPT2": "GPT2LMHeadModel", "Gemma3Text": "Gemma3ForCausalLM"}
# Of Falcon's two ways, "eager" adds ALiBi twice.
ATTENTION = {"falcon_rw": "sdpa"}


def load(name: str, folder: Path) -> tuple[Any, dict[str, Any]]:
    """The model with the drawn weights, and what cases.json keeps of it."""
    kind, fields = CASES[name]
    model_type = getattr(transformers, MODELS.get(kind, f"{kind}ForCausalLM"))
    model_type(getattr(transformers, f"{kind}Config")(**fields)).save_pretrained(folder)
    file = folder / "model.safetensors"
    shapes = {key: list(tensor.shape) for key, tensor in load_file(file).items()}
    drawn = {key: draw(key, tuple(shape)) for key, shape in shapes.items()}
    save_file(drawn, file, metadata={"format": "pt"})
    model, info = model_type.from_pretrained(
        folder,
        attn_implementation=ATTENTION.get(name, "eager"),
        dtype=torch.float32,
        output_loading_info=True,
    )
    assert not info["missing_keys"] and not info["unexpected_keys"], info
    config = json.loads((folder / "config.json").read_text())
    return model.eval(), {"config": config, "tensors": shapes}


def answer(model: Any) -> tuple[np.ndarray, list[int], float]:
    """Logits of the kept rows, the greedy tokens, and the least margin between two best logits."""
    out = model(torch.tensor([PROMPT]), use_cache=True)
    logits, tokens, margin = [out.logits[0, ROWS].numpy()], [], float("inf")
    for _ in range(NUM_GREEDY):
        best = torch.topk(out.logits[0, -1], 2)
        margin = min(margin, float(best.values[0] - best.values[1]))
        tokens.append(int(best.indices[0]))
        out = model(
            torch.tensor([tokens[-1:]]), past_key_values=out.past_key_values, use_cache=True
        )
        logits.append(out.logits[0].numpy())
    return np.concatenate(logits), tokens, margin


@torch.no_grad()
def main(suffix: str = "") -> None:
    kept, arrays = {}, {}
    for name in CASES:
        with tempfile.TemporaryDirectory() as folder:
            model, kept[name] = load(name, Path(folder))
        logits, tokens, margin = answer(model)
        arrays |= {f"{name}.logits": logits, f"{name}.tokens": np.array(tokens, np.int32)}
        print(f"{name}: least margin {margin:.4f}", flush=True)
    lines = [f"{json.dumps(name)}: {json.dumps(case)}" for name, case in kept.items()]
    (HERE / f"cases{suffix}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")
    np.savez_compressed(HERE / f"logits{suffix}.npz", **arrays)


if __name__ == "__main__":
    main()
