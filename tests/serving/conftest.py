"""A tiny checkpoint that speaks text, for all tests of this folder."""

from pathlib import Path

import pytest

from jax_engine.serving import engine_client
from tests.support.byte_tokenizer import VOCAB, save_byte_tokenizer
from tests.support.patience import HANG_S
from tests.support.tiny_llama import tiny_llama


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine's process that gets no core for a while is not dead."""
    monkeypatch.setattr(engine_client, "SILENCE_S", HANG_S)


@pytest.fixture(scope="package")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "bytes"
    path = tiny_llama(folder, vocab_size=VOCAB)[0]
    save_byte_tokenizer(path)
    return path
