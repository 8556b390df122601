"""The tiny encoders: their checkpoints, and transformers' states and scores of one prompt.

Each tensor is drawn from its name, as in `checkpoints.py`. `encoders.json` has the configurations
and the shapes, `encoders.npz` the answers; `make_encoders.py` asks for them.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from tests.golden.families.checkpoints import HERE, draw

PROMPT = [(7 * i * i + 3 * i + 5) % 60 + 5 for i in range(40)]  # without padding tokens
SECOND = 17  # where the second text begins, if the tokens have types


def types_of(config: dict[str, Any]) -> list[int] | None:
    """The types of the prompt's tokens; None if the model has one type, or knows none."""
    known = {"bert": 2, "nomic_bert": 2, "roberta": 2, "xlm-roberta": 2}
    count = config.get("type_vocab_size", known.get(config["model_type"], 0))
    return None if count < 2 else [0] * SECOND + [count - 1] * (len(PROMPT) - SECOND)


def drawn(shapes: dict[str, Any]) -> dict[str, np.ndarray]:
    """The tensors of a checkpoint; scales of norms are around 1."""
    named = {name: name.replace("LayerNorm", "norm") for name in shapes}
    return {name: draw(named[name], tuple(shape)) for name, shape in shapes.items()}


def cases() -> dict[str, dict[str, Any]]:
    """Each case's `config` and the shapes of its `tensors`."""
    found: dict[str, dict[str, Any]] = json.loads((HERE / "encoders.json").read_text("utf-8"))
    return found


def goldens() -> dict[str, np.ndarray]:
    """`<case>.states` [n, E] and `<case>.logits`, and with `.typed` those of a pair."""
    return dict(np.load(HERE / "encoders.npz"))


def write(case: dict[str, Any], folder: Path) -> Path:
    """The checkpoint in Hugging Face layout."""
    (folder / "config.json").write_text(json.dumps(case["config"]))
    save_file(drawn(case["tensors"]), folder / "model.safetensors")
    return folder
