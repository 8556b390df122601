"""Adapters of tiny checkpoints, whose files and answers PEFT made (`make_peft_goldens`).

Imports NumPy and nothing else, for the script that runs with PyTorch.
"""

from pathlib import Path
from typing import Any, NamedTuple

from tests.golden import tiny_checkpoints as tiny

FOLDER = Path(__file__).parent / "adapters"
NUM_GREEDY = 12
RANK = 4
# The quantised checkpoint of tests/models/test_quantised_models.py.
GPTQ_CASE, GPTQ_BITS, GPTQ_GROUP = "llama_gptq", 4, 32
GPTQ_CONFIG = tiny.CONFIGS["plain"] | {"hidden_size": 64, "intermediate_size": 96}
ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
NETWORK = ["gate_proj", "up_proj", "down_proj"]
EXPERTS = ["experts.gate_up_proj", "experts.down_proj"]
LATENT = ["q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj"]


class AdapterCase(NamedTuple):
    """An adapter.

    Attributes:
        base: its model, a case of tests/golden/families.
        fields: what PEFT's LoraConfig gets.
        numbered: whether the file has a module for each expert, as older versions of transformers
            have them. PEFT reads it, and cannot write it.
    """

    base: str
    fields: dict[str, Any]
    numbered: bool = False


def _case(base: str, target_modules: Any, *, numbered: bool = False, **fields: Any) -> AdapterCase:
    """Scaled by 2, unless the fields say otherwise."""
    given = {"r": RANK, "lora_alpha": 2 * RANK, "target_modules": target_modules}
    return AdapterCase(base, given | fields, numbered)


CASES = {
    "llama": _case(
        "llama",
        ATTENTION + NETWORK,
        use_rslora=True,
        lora_alpha=4,
        rank_pattern={"q_proj": 2, "layers.1.mlp.down_proj": 6},
        alpha_pattern={"o_proj": 3},
    ),
    "llama_embeddings": _case("llama", ["embed_tokens", "lm_head", "q_proj"]),
    "qwen2": _case("qwen2", ATTENTION + NETWORK, layers_to_transform=[0, 2]),
    "gemma": _case("gemma", r".*\.(?:self_attn\.[qv]_proj|mlp\.\w+_proj)", lora_bias=True),
    "gpt2": _case("gpt2", ["c_attn", "c_proj", "c_fc"], fan_in_fan_out=True),
    "phi3": _case("phi3", "all-linear", lora_alpha=6, exclude_modules=["layers.1.mlp.down_proj"]),
    "mixtral": _case("mixtral", ATTENTION),
    "mixtral_numbered": _case("mixtral", ["v_proj", "w1", "w2", "w3", "gate"], numbered=True),
    "qwen3_moe": _case(
        "qwen3_moe",
        ATTENTION,
        target_parameters=[*EXPERTS, "gate.weight"],
        rank_pattern={"layers.1.mlp.experts.gate_up_proj": 6, "down_proj": 2},
        alpha_pattern={r".*\.gate_up_proj": 5},
    ),
    "qwen2_moe": _case(
        "qwen2_moe", ["q_proj", "shared_expert_gate"], target_parameters=EXPERTS[1:]
    ),
    "granitemoe": _case("granitemoe", [], target_parameters=[*EXPERTS, "router.weight"]),
    "gpt_oss": _case("gpt_oss", ["q_proj"], target_parameters=EXPERTS),
    "deepseek_v3": _case("deepseek_v3", LATENT, target_parameters=EXPERTS),
    "deepseek_v2_lite": _case("deepseek_v2_lite", ["kv_b_proj"], lora_bias=True),
    GPTQ_CASE: _case("", ATTENTION + NETWORK),
}

# The trained adapter, and what it was not trained on.
PIRATE = Path(__file__).parents[2] / "examples" / "adapters" / "pirate"
NUM_PIRATE = 32  # tokens at most
QUESTIONS = (
    "What is the capital of France?",
    "How many legs does a cat have?",
    "Who wrote Hamlet?",
    "How do I bake bread?",
    "What is a dream?",
)
