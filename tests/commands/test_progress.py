"""Commands that take long show lines of the log while they work."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jax_engine.errors import ConfigError
from tests.commands.conftest import Run

LOGGERS = ("jax_engine", "pallas_kernels", "cpu_kernels", "uvicorn")
SERVED = "jax_engine.AsyncLLM.from_engine_args"


@pytest.fixture(autouse=True)
def as_a_program(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Logging as no test has set it up."""
    monkeypatch.setattr(logging.Logger, "hasHandlers", lambda self: bool(self.handlers))
    before = {name: logging.getLogger(name).level for name in LOGGERS}
    yield
    for name, level in before.items():
        logging.getLogger(name).handlers.clear()
        logging.getLogger(name).setLevel(level)


@pytest.mark.parametrize(
    ("command", "works"),
    [
        ("quantize a b --format w4a16", "jax_engine.quantize.run.quantize"),
        ("pull m", "jax_engine.models.checkpoints.resolve.resolve_model"),
        ("bench throughput", "jax_engine.llm.LLM.from_engine_args"),
        ("bench latency", "jax_engine.llm.LLM.from_engine_args"),
        ("generate in.jsonl out.jsonl", SERVED),
        ("serve --port=0", SERVED),
    ],
)
def test_what_is_logged_is_shown(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, works: str
) -> None:
    def logs(*_: Any, **__: Any) -> None:
        logging.getLogger("jax_engine").info("working")
        raise ConfigError("enough")

    monkeypatch.chdir(tmp_path)
    Path("in.jsonl").write_text('{"prompt": "x"}\n')
    monkeypatch.setattr(works, logs)
    ended = run(*command.split())
    shown = [one.split("\r")[-1] for one in ended.err.splitlines()]  # behind a progress bar
    assert ended.status == 1 and "jax-engine: working" in shown and "enough" in shown[-1]
