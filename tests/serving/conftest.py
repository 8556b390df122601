"""A tiny checkpoint that speaks text, and apps over a scripted engine, for tests of this folder."""

from pathlib import Path

import pytest

from jax_engine.serving import engine_client
from tests.support.patience import HANG_S
from tests.support.scripted_app import Make, scripted_app
from tests.support.tiny_llama import byte_llama


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine's process that gets no core for a while is not dead."""
    monkeypatch.setattr(engine_client, "SILENCE_S", HANG_S)


@pytest.fixture(scope="package")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return byte_llama(tmp_path_factory.mktemp("models") / "bytes")


@pytest.fixture
def make(checkpoint: Path) -> Make:
    return scripted_app(checkpoint)
