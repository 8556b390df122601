"""Asks PyTorch for the vectors of tiny rerankers: transformers' Qwen 3, and a projector behind it.

    /tmp/torch311/bin/python -m tests.golden.families.make_rankings

writes rankings.json and rankings.npz beside it; `make.py` says in which environment. Transformers
has no class for jina-reranker-v3: its checkpoints are Qwen 3's with two further matrices.
"""

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from safetensors.numpy import load_file, save_file

from tests.golden.families.checkpoints import HERE, draw
from tests.golden.families.rankings import DOCUMENT, PROMPT, QUERY, VOCABULARY

TINY: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 22,
    "intermediate_size": 28,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "num_key_value_heads": 1,
    "head_dim": 10,
    "max_position_embeddings": 2048,
}
# By name: the configuration, and how many numbers a vector has.
CASES: dict[str, tuple[dict[str, Any], int]] = {
    "ranking": (TINY | {"tie_word_embeddings": True}, 7),
    "ranking_all": (
        TINY
        | {"hidden_size": 34, "num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 6}
        | {"attention_bias": True, "rope_parameters": {"rope_type": "default", "rope_theta": 7e5}},
        33,
    ),
    "ranking_one": (
        TINY
        | {"num_hidden_layers": 5, "use_sliding_window": True, "sliding_window": 4}
        | {"max_window_layers": 2, "rms_norm_eps": 0.01},
        1,
    ),
}


@torch.no_grad()
def answer(name: str, folder: Path) -> tuple[dict[str, Any], np.ndarray]:
    """What rankings.json and rankings.npz keep of a case."""
    fields, size = CASES[name]
    transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**fields)).save_pretrained(folder)
    file = folder / "model.safetensors"
    shapes = {key: list(tensor.shape) for key, tensor in load_file(file).items()}
    drawn = {key: draw(key, tuple(shape)) for key, shape in shapes.items()}
    save_file(drawn, file, metadata={"format": "pt"})
    model = transformers.Qwen3ForCausalLM.from_pretrained(
        folder, attn_implementation="eager", dtype=torch.float32
    ).eval()
    width = fields["hidden_size"]
    projector = {
        "projector.0.weight": [width // 2, width],
        "projector.2.weight": [size, width // 2],
    }
    first, second = (torch.tensor(draw(key, tuple(one))) for key, one in projector.items())
    layers = torch.nn.Sequential(
        torch.nn.Linear(width, width // 2, bias=False),
        torch.nn.ReLU(),
        torch.nn.Linear(width // 2, size, bias=False),
    )
    layers[0].weight.copy_(first)
    layers[2].weight.copy_(second)
    ids = torch.tensor(PROMPT)
    states = model.model(ids[None]).last_hidden_state[0]
    places = torch.cat([torch.where(ids == mark)[0] for mark in (DOCUMENT, QUERY)])
    config = json.loads((folder / "config.json").read_text())
    config |= {"architectures": ["JinaForRanking"], "embedding_size": size}
    return {"config": config, "tensors": shapes | projector}, layers(states[places]).numpy()


def main() -> None:
    kept, arrays = {}, {}
    for name in CASES:
        with tempfile.TemporaryDirectory() as folder:
            kept[name], arrays[name] = answer(name, Path(folder))
        print(name, arrays[name].shape, flush=True)
    (HERE / "rankings.json").write_text(json.dumps(kept, indent=1) + "\n")
    np.savez_compressed(HERE / "rankings.npz", **arrays)


if __name__ == "__main__":
    main()
