"""A tiny model of random weights with a tokenizer of single bytes, for smoke runs and soaks."""

import argparse
import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE

from jax_engine import LLM

MODEL = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 256,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
    "eos_token_id": 0,
}


def write_model(folder: Path) -> Path:
    """A folder without weights, for `load_format="dummy"`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(MODEL))
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(BPE(vocab={char: i for i, char in enumerate(alphabet)}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.save(str(folder / "tokenizer.json"))
    config = {"eos_token": alphabet[0]}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


@contextmanager
def measured_model(args: argparse.Namespace, model: str | None = None) -> Iterator[dict[str, Any]]:
    """Settings of an engine that name the model; in a smoke run, the tiny one."""
    with tempfile.TemporaryDirectory() as folder:
        if args.smoke and model is None:
            yield {
                "model": str(write_model(Path(folder))),
                "load_format": "dummy",
                "num_gpu_blocks_override": 512,
            }
        else:
            yield {"model": model}


@contextmanager
def measured_llm(
    args: argparse.Namespace, model: str | None = None, **settings: Any
) -> Iterator[LLM]:
    """An engine of it."""
    with measured_model(args, model) as named:
        yield LLM(**(settings | named))
