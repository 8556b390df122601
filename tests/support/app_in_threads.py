"""A server's app over a whole engine, both in this process: without a port or an interpreter."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from starlette.testclient import TestClient

from jax_engine import AsyncLLM
from jax_engine.serving.api.app import make_app
from jax_engine.serving.api.service import ServerSettings, Service
from tests.support.engine_in_thread import in_threads


@contextmanager
def app_in_threads(
    model: str, served: dict[str, Any] | None = None, **settings: Any
) -> Iterator[TestClient]:
    """A client of a server's app, whose engine is a thread of this process.

    Args:
        served: Settings of the server.
        settings: Settings of the engine.
    """
    with pytest.MonkeyPatch.context() as patch:
        in_threads(patch)
        llm = AsyncLLM(model, **settings)
        app = make_app(Service(llm, ServerSettings(names=("tiny",), **(served or {}))))
        with TestClient(app, raise_server_exceptions=False) as client:
            yield client
        llm.shutdown()
