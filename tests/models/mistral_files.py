"""Writes the tiny checkpoints of tests/golden in Mistral's own format."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from tests.models.pytorch_files import write_pytorch

NAMES = {
    "model.embed_tokens": "tok_embeddings",
    "model.norm": "norm",
    "lm_head": "output",
    "input_layernorm": "attention_norm",
    "post_attention_layernorm": "ffn_norm",
    **{f"self_attn.{one}_proj": f"attention.w{one}" for one in "qkvo"},
    "mlp.gate_proj": "feed_forward.w1",
    "mlp.down_proj": "feed_forward.w2",
    "mlp.up_proj": "feed_forward.w3",
    "block_sparse_moe": "feed_forward",
}


def params_of(config: Mapping[str, Any], **changes: Any) -> dict[str, Any]:
    """The params.json that says what this config.json does; None removes a field."""
    params = {
        "dim": config["hidden_size"],
        "n_layers": config["num_hidden_layers"],
        "head_dim": config.get("head_dim")
        or config["hidden_size"] // config["num_attention_heads"],
        "hidden_dim": config["intermediate_size"],
        "n_heads": config["num_attention_heads"],
        "n_kv_heads": config["num_key_value_heads"],
        "norm_eps": config["rms_norm_eps"],
        "vocab_size": config["vocab_size"],
        "rope_theta": config["rope_parameters"]["rope_theta"],
        "sliding_window": config.get("sliding_window"),
        "tied_embeddings": config["tie_word_embeddings"],
        "max_position_embeddings": config["max_position_embeddings"],
    }
    if "num_local_experts" in config:
        names = ("num_experts_per_tok", "num_local_experts")
        params["moe"] = dict(
            zip(("num_experts_per_tok", "num_experts"), (config[one] for one in names), strict=True)
        )
    return {name: one for name, one in (params | changes).items() if one is not None}


def own_name(name: str) -> str:
    """Mistral's name of a tensor."""
    module, _, kind = name.rpartition(".")
    layer = re.fullmatch(r"model\.(layers\.\d+\.)(.+)", module)
    start, inner = (layer[1], layer[2]) if layer else ("", module)
    for theirs, own in NAMES.items():
        if inner == theirs or inner.startswith(f"{theirs}."):
            return f"{start}{own}{inner.removeprefix(theirs)}.{kind}"
    return name


def paired(rows: np.ndarray, head_dim: int) -> np.ndarray:
    """Rows of q or k in the order in which Mistral's RoPE takes them: row i beside row i + D/2."""
    halves = rows.reshape(-1, 2, head_dim // 2, *rows.shape[1:])
    return np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(rows.shape)


def own_tensors(
    tensors: Mapping[str, np.ndarray], head_dim: int, *, tied: bool = False
) -> dict[str, np.ndarray]:
    """The tensors by Mistral's names, rows of q and k in its order."""
    return {
        own_name(name): paired(one, head_dim) if re.search(r"\.[qk]_proj\.", name) else one
        for name, one in tensors.items()
        if not (tied and name.startswith("lm_head"))
    }


def write_mistral(
    folder: Path, params: Mapping[str, Any], tensors: Mapping[str, np.ndarray], kind: str = "one"
) -> Path:
    """params.json and the weights: one file, "shards" with their index, or a "pickle"."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "params.json").write_text(json.dumps(params))
    if kind == "one":
        save_file(dict(tensors), folder / "consolidated.safetensors")
    elif kind == "pickle":
        items = list(tensors.items())
        for number in range(2):
            write_pytorch(folder / f"consolidated.{number:02}.pth", dict(items[number::2]))
    else:
        places = dict[str, str]()
        for number in range(2):
            part = dict(list(tensors.items())[number::2])
            file = f"consolidated-{number + 1:05}-of-00002.safetensors"
            save_file(part, folder / file)
            places |= dict.fromkeys(part, file)
        index = folder / "consolidated.safetensors.index.json"
        index.write_text(json.dumps({"metadata": {}, "weight_map": places}))
    return folder
