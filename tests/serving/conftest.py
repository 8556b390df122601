"""A tiny checkpoint that speaks text, for all tests of this folder."""

from pathlib import Path

import pytest

from tests.support.byte_tokenizer import VOCAB, save_byte_tokenizer
from tests.support.tiny_llama import tiny_llama


@pytest.fixture(scope="package")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "bytes"
    path = tiny_llama(folder, vocab_size=VOCAB)[0]
    save_byte_tokenizer(path)
    return path
