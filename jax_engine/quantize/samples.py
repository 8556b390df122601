"""Tokens to calibrate with: pieces of a text, of one length."""

from pathlib import Path

import numpy as np

from jax_engine.errors import ConfigError
from jax_engine.file_schema import read_text
from jax_engine.quantize.options import Options
from jax_engine.tokenization.tokenizer import load_tokenizer

LEAST = 8  # tokens of a text


def calibration_tokens(model: Path, options: Options, max_length: int) -> np.ndarray:
    """Token ids int32[samples, length], drawn by the seed from the pieces of the text.

    Args:
        max_length: the model's longest context.

    Raises:
        ConfigError: the text is too short.
        WeightsError: the text or the tokenizer is unreadable.
    """
    text = default_text() if options.calibration is None else read_text(Path(options.calibration))
    tokens = np.array(load_tokenizer(str(model)).encode(text), np.int32)
    return pieces(tokens, options, max_length)


def pieces(tokens: np.ndarray, options: Options, max_length: int) -> np.ndarray:
    """Pieces of a text's tokens, in the text's order. A short text is one piece."""
    if len(tokens) < LEAST:
        raise ConfigError(f"calibration: the text has {len(tokens)} tokens, at least {LEAST}.")
    length = min(options.sample_length, max_length, len(tokens))
    all_pieces = tokens[: len(tokens) // length * length].reshape(-1, length)
    count = min(options.samples, len(all_pieces))
    rng = np.random.default_rng(options.seed)
    return all_pieces[np.sort(rng.permutation(len(all_pieces))[:count])]


def default_text() -> str:
    """The topics of Python's help: half a megabyte of English that every Python brings."""
    try:
        from pydoc_data.topics import topics
    except ImportError:
        raise ConfigError(
            "calibration: this Python has no help topics to calibrate with; name a file of text."
        ) from None
    return "\n\n".join(topics[name] for name in sorted(topics))
