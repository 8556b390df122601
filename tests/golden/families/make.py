"""Asks PyTorch transformers what tiny checkpoints of all families answer; writes the goldens.

Needs PyTorch, whose small CPU build installs on Python 3.11 only, so it runs apart from the tests.
This file and those that it imports keep to the syntax of Python 3.11:

    python3.11 -m venv /tmp/torch311
    /tmp/torch311/bin/pip install torch==2.13.0 transformers safetensors numpy
    /tmp/torch311/bin/python -m tests.golden.families.make

writes cases.json and logits.npz beside it. Then `python -m tests.golden.families.parity` measures
the differences; `python -m scripts.families` and `python -m scripts.figures` write the docs.
"""

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from safetensors.numpy import load_file, save_file

from tests.golden.families.checkpoints import HERE, NUM_GREEDY, PROMPT, ROWS, draw
from tests.golden.families.first_cases import FIRST
from tests.golden.families.recent_cases import MIXTURES
from tests.golden.families.shapes import EXPERTS, SHAPES

CASES = FIRST | SHAPES
MODELS = {
    "GPT2": "GPT2LMHeadModel",
    "Gemma3Text": "Gemma3ForCausalLM",
    "Llama4Text": "Llama4ForCausalLM",
}
# Of Falcon's two ways, "eager" adds ALiBi twice.
ATTENTION = {"falcon_rw": "sdpa", "falcon_rw_awkward": "sdpa"}
GROUPED = {"experts_implementation": "eager"}  # PyTorch's grouped product refuses odd widths


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
        **GROUPED if name in EXPERTS or name.startswith(MIXTURES) else {},
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
