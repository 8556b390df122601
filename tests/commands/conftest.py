"""A tiny checkpoint that speaks text, and the command line in this process."""

import io
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from jax_engine.cli import main
from jax_engine.serving import engine_client
from tests.support.patience import HANG_S
from tests.support.tiny_llama import byte_llama

SETTINGS = {"block_size": 4, "max_model_len": 64, "max_num_seqs": 8, "num_gpu_blocks_override": 60}
FLAGS = [f"--{name.replace('_', '-')}={value}" for name, value in SETTINGS.items()]


class Ended(NamedTuple):
    """What a command has written, and its exit status."""

    status: Any
    out: str
    err: str


type Run = Callable[..., Ended]


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine's process that gets no core for a while is not dead."""
    monkeypatch.setattr(engine_client, "SILENCE_S", HANG_S)


@pytest.fixture(scope="package")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return byte_llama(tmp_path_factory.mktemp("models") / "bytes")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    def of(*words: object, typed: str = "") -> Ended:
        monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
        capsys.readouterr()
        before = set(threading.enumerate())
        try:
            status: Any = main([str(one) for one in words])
        except SystemExit as end:
            status = end.code
        left = [one for one in threading.enumerate() if not one.daemon and one not in before]
        assert not left, "a thread outlives its command"
        return Ended(status, *capsys.readouterr())

    return of
