"""The tiny rerankers that read a query and its documents as one prompt, and transformers' vectors.

Each tensor is drawn from its name, as in `checkpoints.py`. `rankings.json` has the configurations
and the shapes, `rankings.npz` the vectors of `PROMPT`; `make_rankings.py` asks for them.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from tests.golden.families.checkpoints import HERE, tensors_of

DOCUMENT, QUERY = 257, 258  # behind the tokens of `byte_tokenizer`
VOCABULARY = 259
MARKS = {3: DOCUMENT, 9: DOCUMENT, 21: QUERY, 22: DOCUMENT, 40: DOCUMENT}  # the query is not last
PROMPT = [MARKS.get(i, (7 * i * i + 3 * i + 5) % 257) for i in range(43)]


def cases() -> dict[str, dict[str, Any]]:
    """Each case's `config` and the shapes of its `tensors`."""
    found: dict[str, dict[str, Any]] = json.loads((HERE / "rankings.json").read_text("utf-8"))
    return found


def goldens() -> dict[str, np.ndarray]:
    """`<case>`: the vectors of the documents, then that of the query."""
    return dict(np.load(HERE / "rankings.npz"))


def write(case: dict[str, Any], folder: Path) -> Path:
    """The checkpoint in Hugging Face layout, without a tokenizer."""
    (folder / "config.json").write_text(json.dumps(case["config"]))
    save_file(tensors_of(case), folder / "model.safetensors")
    return folder
