"""Spans of requests: `llm_request`, with vLLM's attributes, below the client's own span."""

import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from jax_engine import AsyncLLM, SamplingParams
from jax_engine.errors import MissingPackageError
from jax_engine.outputs import RequestMetrics
from jax_engine.serving.api.app import make_app
from jax_engine.serving.api.service import ServerSettings, Service
from jax_engine.serving.tracing import Tracer
from tests.serving.test_async_llm import SETTINGS
from tests.support.engine_in_thread import in_threads

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
HEADERS = {"Traceparent": f"00-{TRACE}-{PARENT}-01"}


def test_without_the_packages_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'jax-engine\[otel\]'"):
        Tracer.to_collector("http://127.0.0.1:1/v1/traces", "tiny")


def test_a_span_has_what_is_known_of_its_request() -> None:
    export: Any = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor

    kept, provider = export.InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    tracer, params = Tracer(provider, "tiny"), SamplingParams(n=2, max_tokens=7, temperature=0.5)
    tracer("a", HEADERS, params, RequestMetrics(1.0, 2.5, 5.0, 1.25, 1.5, 4.5), (3, 14))
    tracer("b", {}, params, RequestMetrics(1.0), (3, 0))  # its client has left
    whole, left = kept.get_finished_spans()
    assert whole.name == "llm_request" and whole.end_time - whole.start_time == pytest.approx(4e9)
    assert f"{whole.context.trace_id:032x}" == TRACE and f"{whole.parent.span_id:016x}" == PARENT
    asked = {"gen_ai.response.model": "tiny", "gen_ai.usage.prompt_tokens": 3,
             "gen_ai.request.n": 2, "gen_ai.request.max_tokens": 7,
             "gen_ai.request.temperature": 0.5, "gen_ai.request.top_p": 1.0}  # fmt: skip
    assert dict(whole.attributes) == asked | {
        "gen_ai.request.id": "a", "gen_ai.usage.completion_tokens": 14,
        "gen_ai.latency.time_in_queue": 0.25, "gen_ai.latency.time_to_first_token": 1.5,
        "gen_ai.latency.e2e": 4.0, "gen_ai.latency.time_in_model_prefill": 1.0,
        "gen_ai.latency.time_in_model_decode": 2.0, "gen_ai.latency.time_in_model_inference": 3.0,
    }  # fmt: skip
    assert left.parent is None
    known = {"gen_ai.request.id": "b", "gen_ai.usage.completion_tokens": 0}
    assert dict(left.attributes) == asked | known


def test_a_server_sends_spans_to_its_collector(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    bodies: list[bytes] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *args: Any) -> None:
            pass

    collector = HTTPServer(("127.0.0.1", 0), Collector)
    threading.Thread(target=collector.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{collector.server_port}/v1/traces"
    in_threads(monkeypatch)
    llm = AsyncLLM(str(checkpoint), **SETTINGS)
    llm.tracer = tracer = Tracer.to_collector(url, "tiny")
    app = make_app(Service(llm, ServerSettings(names=("tiny",))))
    body = {"prompt": "Once", "max_tokens": 3, "request_id": "mine"}
    with TestClient(app) as client:
        assert client.post("/v1/completions", json=body, headers=HEADERS).status_code == 200
    llm.shutdown()
    tracer.close()
    collector.shutdown()
    sent = b"".join(bodies)
    assert b"llm_request" in sent and b"cmpl-mine" in sent and bytes.fromhex(TRACE) in sent
