"""The checkpoints: each tensor is drawn from its name, so that only names and shapes are kept.

`cases.json` has, for each case, the config.json that transformers writes, and the tensors that it
writes, with their shapes. `logits.npz` has the logits at some tokens of a prompt and at each of the
tokens that follow greedily. Families with latent attention, and awkward sizes, have files of their
own.
"""

import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
VOCABULARY = 61
PROMPT = [(7 * i * i + 3 * i + 5) % VOCABULARY for i in range(24)]
ROWS = [0, 5, 11, 17, 23]  # tokens of the prompt whose logits are kept
NUM_GREEDY = 20
FILES = ("", "_latent", "_awkward", "_recent", "_recent_awkward")  # endings of the files' names


def draw(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """A tensor: scales of norms around 1, the rest around 0."""
    numbers = np.random.RandomState(zlib.crc32(name.encode())).uniform(-1, 1, shape)
    if name.endswith("weight") and ("norm" in name or ".ln_" in name):
        return (1 + 0.3 * numbers).astype(np.float32)
    return np.asarray(0.35 * numbers, np.float32)


def cases() -> dict[str, dict[str, Any]]:
    """Each case's `config` and the shapes of its `tensors`."""
    found: dict[str, dict[str, Any]] = {}
    for ending in FILES:
        found |= json.loads((HERE / f"cases{ending}.json").read_text("utf-8"))
    return found


def goldens() -> dict[str, np.ndarray]:
    """`<case>.logits` and `<case>.tokens` of each case."""
    found: dict[str, np.ndarray] = {}
    for ending in FILES:
        found |= np.load(HERE / f"logits{ending}.npz")
    return found


def tensors_of(case: dict[str, Any]) -> dict[str, np.ndarray]:
    """Every tensor of a case's checkpoint."""
    return {name: draw(name, tuple(shape)) for name, shape in case["tensors"].items()}
