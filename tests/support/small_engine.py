"""An engine that speaks in three tokens, "A", "B" and an end, on a runner without a device."""

import functools
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from jax_engine import LLMEngine
from jax_engine.tokenization.tokenizer import Tokenizer, load_tokenizer
from tests.support.byte_tokenizer import save_letter_tokenizer
from tests.support.strategies import EOS, VOCABULARY, Settings
from tests.support.stub_engine import pair_without_device

SETTINGS = Settings(4, 40, 8, 0.0, True, 8, 64, 40, "unified", "fcfs", None, True, 0)


@functools.cache
def letters(vocabulary: int = VOCABULARY, eos: int = EOS) -> Tokenizer:
    folder = Path(tempfile.mkdtemp())
    save_letter_tokenizer(folder, vocabulary, eos)
    return load_tokenizer(folder)


def small_engine(
    *, ahead: bool = False, has_text: bool = True, behind: int = 64, **changes: Any
) -> LLMEngine:
    """An engine of its own, quickly made.

    Args:
        behind: The most tokens of prompts behind which a step is planned ahead.
        changes: Of SETTINGS: blocks of 4 tokens, sequences of 40, steps of 64.
    """
    tokenizer = letters() if has_text else None
    settings = replace(SETTINGS, **changes)
    return pair_without_device(settings, ahead=ahead, tokenizer=tokenizer, behind=behind)[0]
