"""How far the engine's logits are from transformers', for each tiny checkpoint.

    python -m tests.golden.families.parity

runs every case of cases.json and writes parity.json, whose figures docs/families.md shows.
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import jax
import numpy as np
from safetensors.numpy import save_file

from jax_engine.models.model_loader import load_model
from tests.golden.families.checkpoints import (
    HERE,
    NUM_GREEDY,
    PROMPT,
    ROWS,
    cases,
    goldens,
    tensors_of,
)
from tests.models.paged import PagedRun

FILE = HERE / "parity.json"


def write(case: dict[str, Any], folder: Path) -> None:
    """The checkpoint in Hugging Face layout."""
    (folder / "config.json").write_text(json.dumps(case["config"]))
    save_file(tensors_of(case), folder / "model.safetensors")


def answer(path: Path) -> tuple[np.ndarray, list[int]]:
    """Logits of the kept rows and greedy tokens of the model there, as make.py asks for them.

    The prompt is fed in two equal chunks, which one program computes, then token by token.
    """
    model = load_model(str(path))
    run = PagedRun(model.config, model.graphdef, model.params)
    prompt = np.concatenate([run.feed(PROMPT[:12]), run.feed(PROMPT[12:])])
    rows, tokens = [prompt[ROWS]], [int(prompt[-1].argmax())]
    for _ in range(NUM_GREEDY):
        rows.append(run.feed(tokens[-1:]))
        tokens.append(int(rows[-1][-1].argmax()))
    return np.concatenate(rows), tokens[:NUM_GREEDY]


def difference(found: np.ndarray, expected: np.ndarray) -> float:
    """The largest difference of two logits, relative to the largest logit."""
    return float(np.abs(found - expected).max() / np.abs(expected).max())


def figures() -> dict[str, float]:
    """The difference of each case, as it was measured last."""
    found: dict[str, float] = json.loads(FILE.read_text("utf-8"))["differences"]
    return found


def main() -> None:
    """Measures all cases, or those that the command names."""
    expected, differences = goldens(), figures() if sys.argv[1:] else {}
    for name, case in cases().items():
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        with tempfile.TemporaryDirectory() as folder:
            write(case, Path(folder))
            found, _ = answer(Path(folder))
        differences[name] = float(f"{difference(found, expected[f'{name}.logits']):.1e}")
        print(f"{name}: {differences[name]:.1e}", flush=True)
    where = {"platform": jax.default_backend(), "jax": jax.__version__}
    FILE.write_text(json.dumps(where | {"differences": differences}, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
