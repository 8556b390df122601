"""Tiny random rerankers that read a query and its documents as one prompt, and that speak bytes."""

import json
from pathlib import Path
from typing import Any

from safetensors.numpy import load_file, save_file
from tokenizers import AddedToken, Tokenizer

from jax_engine.models.families.jina_ranking import DOCUMENT, QUERY
from tests.golden.families import rankings
from tests.support.byte_tokenizer import save_byte_tokenizer


def tiny_ranker(folder: Path, case: str = "ranking", **changes: Any) -> Path:
    """One of `rankings.cases`, with a tokenizer.

    Args:
        changes: Fields of config.json.
    """
    folder.mkdir()
    found = rankings.cases()[case]
    rankings.write(found | {"config": found["config"] | changes}, folder)
    save_marked_tokenizer(folder)
    return folder


def save_marked_tokenizer(folder: Path) -> None:
    """Bytes, and behind them the two tokens whose states the model's head reads."""
    save_byte_tokenizer(folder)
    file = str(folder / "tokenizer.json")
    tokenizer = Tokenizer.from_file(file)
    tokenizer.add_special_tokens([AddedToken(one, special=True) for one in (DOCUMENT, QUERY)])
    tokenizer.save(file)


def as_language_model(folder: Path, target: Path) -> Path:
    """The same decoder under the name of Qwen 3, which gives the states of its tokens."""
    config = json.loads((folder / "config.json").read_text())
    target.mkdir()
    changed = config | {"architectures": ["Qwen3ForCausalLM"], "tie_word_embeddings": True}
    (target / "config.json").write_text(json.dumps(changed))
    tensors = load_file(folder / "model.safetensors")
    kept = {name: one for name, one in tensors.items() if not name.startswith("projector")}
    save_file(kept, target / "model.safetensors")
    save_marked_tokenizer(target)
    return target
