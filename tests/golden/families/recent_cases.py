"""The cases of the families of 2025 and 2026: their first ones, and further shapes of each."""

from tests.golden.families.first_cases import FULL, GEMMA2, LLAMA, SLIDING, Cases
from tests.golden.families.shapes import (
    ALL,
    BIASED,
    IN_TURN,
    LINEAR,
    LLAMA3,
    ONE,
    PLAIN,
    TIED,
    UNTIED,
    YARN,
    partly,
    rope,
)

CHUNKED = "chunked_attention"
DEEP = {"num_hidden_layers": 4}
DOTS = {
    "n_routed_experts": 8,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 24,
    "n_shared_experts": 2,
    "first_k_dense_replace": 1,
}
EXAONE = {
    "num_experts": 6,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 24,
    "sliding_window": 5,
    "head_dim": 8,
}
HUNYUAN = {"num_experts": 6, "moe_topk": 2}
ERNIE = {"moe_num_experts": 6, "moe_k": 2, "moe_intermediate_size": 24}
MINIMAX = {"num_local_experts": 6, "num_experts_per_tok": 2, "head_dim": 12}
ALPHA = {"rope_type": "dynamic", "rope_theta": 500.0, "alpha": 7.0, "factor": 1.0}
# Chunks, and layers without RoPE, within the 44 tokens of a test
LLAMA4 = {
    "head_dim": 12,
    "intermediate_size_mlp": 40,
    "num_local_experts": 4,
    "num_hidden_layers": 5,
    "attention_chunk_size": 8,
    "floor_scale": 5,
    "attn_scale": 0.4,
    "no_rope_layer_interval": 3,
}
# By name: as `first_cases.FIRST`. The last case of a family turns most switches.
RECENT: Cases = {
    "arcee": ("Arcee", LLAMA | {"head_dim": 8}),
    "seed_oss": ("SeedOss", LLAMA | {"head_dim": 12}),
    "ernie4_5": ("Ernie4_5", LLAMA | {"head_dim": 12}),
    "ernie4_5_moe": ("Ernie4_5_Moe", LLAMA | ERNIE | DEEP | {"moe_num_shared_experts": 1}),
    "dots1": ("Dots1", LLAMA | DOTS | {"norm_topk_prob": True, "routed_scaling_factor": 1.5}),
    "minimax_m2": ("MiniMaxM2", LLAMA | MINIMAX | partly(0.5)),
    "hunyuan_v1_dense": ("HunYuanDenseV1", LLAMA | {"head_dim": 12} | rope(**ALPHA)),
    "hunyuan_v1_moe": ("HunYuanMoEV1", LLAMA | HUNYUAN | {"head_dim": 12}),
    "apertus": ("Apertus", LLAMA | rope(**LLAMA3)),
    "exaone_moe": ("ExaoneMoe", LLAMA | EXAONE | {"num_hidden_layers": 5}),
    "helium": ("Helium", LLAMA | {"head_dim": 8}),
    "vaultgemma": ("VaultGemma", LLAMA | GEMMA2 | DEEP | {"attn_logit_softcapping": 5.0}),
    "llama4": ("Llama4Text", LLAMA | LLAMA4 | {"interleave_moe_layer_step": 2}),
}
RECENT_SHAPES: Cases = {
    "arcee_all": ("Arcee", ALL | TIED | BIASED | {"mlp_bias": True, "hidden_act": "gelu"}),
    "arcee_one": ("Arcee", ONE | rope(**YARN)),
    "seed_oss_all": (
        "SeedOss",
        ALL | TIED | {"head_dim": 8, "attention_bias": False, "attention_out_bias": True},
    ),
    "seed_oss_one": ("SeedOss", ONE | {"head_dim": 6, "mlp_bias": True}),
    "ernie4_5_all": ("Ernie4_5", ALL | UNTIED | {"head_dim": 8, "use_bias": True}),
    "ernie4_5_one": ("Ernie4_5", ONE | {"head_dim": 6} | rope(**YARN)),
    "ernie4_5_moe_all": (
        "Ernie4_5_Moe",
        ALL | UNTIED | ERNIE | {"moe_layer_start_index": 0, "moe_num_shared_experts": 0},
    ),
    "ernie4_5_moe_one": (
        "Ernie4_5_Moe",
        ONE
        | {"moe_num_experts": 5, "moe_k": 4, "moe_intermediate_size": 11, "num_hidden_layers": 6}
        | {"moe_layer_interval": 2, "moe_layer_start_index": 1, "moe_layer_end_index": 4},
    ),
    "dots1_all": (
        "Dots1",
        ALL
        | TIED
        | BIASED
        | DOTS
        | {"first_k_dense_replace": 0, "n_group": 4, "topk_group": 2, "n_shared_experts": 1}
        | {"sliding_window": 5, "max_window_layers": 1},
    ),
    "dots1_one": (
        "Dots1",
        ONE
        | {"n_routed_experts": 5, "num_experts_per_tok": 1, "moe_intermediate_size": 11}
        | {"n_shared_experts": 3, "first_k_dense_replace": 2, "head_dim": 12}
        | {"sliding_window": 4, "layer_types": [SLIDING] * 4},
    ),
    "minimax_m2_all": (
        "MiniMaxM2",
        ALL | TIED | {"num_local_experts": 3, "num_experts_per_tok": 3, "head_dim": 8},
    ),
    "minimax_m2_one": (
        "MiniMaxM2",
        ONE | {"num_local_experts": 4, "num_experts_per_tok": 1, "head_dim": 24} | partly(0.25),
    ),
    "hunyuan_v1_dense_all": ("HunYuanDenseV1", ALL | TIED | BIASED | {"head_dim": 8}),
    "hunyuan_v1_dense_one": ("HunYuanDenseV1", ONE | {"head_dim": 8} | rope(**LINEAR)),
    "hunyuan_v1_moe_all": (
        "HunYuanMoEV1",
        ALL | TIED | BIASED | {"num_experts": 3, "moe_topk": 3, "head_dim": 8} | rope(**ALPHA),
    ),
    "hunyuan_v1_moe_one": ("HunYuanMoEV1", ONE | HUNYUAN | {"head_dim": 6, "moe_topk": 1}),
    "exaone_moe_all": (
        "ExaoneMoe",
        ALL
        | TIED
        | EXAONE
        | {"layer_types": [FULL] * 2, "first_k_dense_replace": 0}
        | {"n_group": 3, "topk_group": 2, "norm_topk_prob": False, "num_shared_experts": 2},
    ),
    "exaone_moe_one": (
        "ExaoneMoe",
        ONE
        | EXAONE
        | {"head_dim": 6, "sliding_window": 3, "sliding_window_pattern": 2}
        | {"mlp_layer_types": ["sparse", "dense", "sparse", "sparse"], "num_experts_per_tok": 1},
    ),
    "helium_all": ("Helium", ALL | TIED | BIASED | {"head_dim": 8, "mlp_bias": True}),
    "helium_one": ("Helium", ONE | {"head_dim": 8} | rope(**LINEAR)),
    "vaultgemma_all": (
        "VaultGemma",
        ALL
        | UNTIED
        | BIASED
        | {"head_dim": 8, "query_pre_attn_scalar": 8, "sliding_window": 6}
        | {"attn_logit_softcapping": None, "final_logit_softcapping": None},
    ),
    "vaultgemma_one": (
        "VaultGemma",
        ONE
        | IN_TURN
        | {"head_dim": 16, "query_pre_attn_scalar": 16, "sliding_window": 3}
        | {"final_logit_softcapping": 9.0},
    ),
    "apertus_all": ("Apertus", ALL | TIED | BIASED | rope(**PLAIN)),
    "apertus_one": ("Apertus", ONE | {"hidden_act": "relu2"} | rope(**LLAMA3)),
    "llama4_all": (
        "Llama4Text",
        ALL
        | TIED
        | BIASED
        | LLAMA4
        | {"num_hidden_layers": 4, "moe_layers": [2], "use_qk_norm": False, "head_dim": 8}
        | {"no_rope_layers": [0, 1, 1, 1], "attn_temperature_tuning": False},
    ),
    "llama4_one": (
        "Llama4Text",
        ONE
        | LLAMA4
        | {"num_experts_per_tok": 3, "attention_chunk_size": 16, "head_dim": 6, "floor_scale": 4}
        | {"layer_types": [CHUNKED, FULL, CHUNKED, CHUNKED, CHUNKED], "no_rope_layer_interval": 2},
    ),
}
MIXTURES = (
    "ernie4_5_moe",
    "dots1",
    "minimax_m2",
    "exaone_moe",
    "hunyuan_v1_moe",
)  # beginnings of the names
