"""The size of a server's step where the user names none."""

from typing import Any

import pytest

from jax_engine import ConfigError, EngineConfig
from jax_engine.operations import this_device
from jax_engine.processes.placement import Place
from jax_engine.serving import engine_process
from jax_engine.serving.engine_process import served
from jax_engine.serving.messages import Settings, encode


@pytest.mark.parametrize(
    ("settings", "tokens"),
    [
        ({}, 512),
        ({"max_num_seqs": 600}, 600),
        ({"max_num_batched_tokens": 2048}, 2048),
        ({"max_num_batched_tokens": 64, "max_num_seqs": 64}, 64),
        ({"enable_chunked_prefill": False}, None),
        ({"scheduling": "sosp"}, None),
    ],
    ids=str,
)
def test_a_cpu_serves_short_steps_unless_told_otherwise(
    settings: dict[str, Any], tokens: int | None
) -> None:
    config = EngineConfig.from_settings(**settings)
    assert served(config).max_num_batched_tokens == tokens


def test_other_devices_serve_steps_as_long_as_any(monkeypatch: pytest.MonkeyPatch) -> None:
    longer = this_device()._replace(served_tokens=2048)
    monkeypatch.setattr(engine_process, "this_device", lambda: longer)
    config = served(EngineConfig())
    assert config.resolve_lengths(8192) == EngineConfig().resolve_lengths(8192) == (8192, 2048)


def test_the_engines_process_serves_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that cannot start has seen its settings."""
    seen: list[EngineConfig] = []

    def build(config: EngineConfig, place: Place) -> None:
        seen.append(config)
        raise ConfigError("enough")

    class Socket:
        sent = b""

        def recv(self) -> bytes:
            return encode(Settings({"model": "any", "max_num_seqs": 7}))

        def send(self, report: bytes) -> None:
            self.sent += report

    monkeypatch.setattr(engine_process.LLMEngine, "from_config", build)
    socket: Any = Socket()
    assert engine_process._run(socket, socket, "nowhere") == 1
    assert b"enough" in socket.sent
    assert [(one.max_num_seqs, one.max_num_batched_tokens) for one in seen] == [(7, 512)]
