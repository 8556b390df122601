"""Spans of OpenTelemetry: one for each request, with vLLM's names of attributes."""

import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

from jax_engine.errors import need
from jax_engine.outputs import RequestMetrics
from jax_engine.sampling_params import SamplingParams

FLUSH_S = 2.0
_INSTALL = "'jax-engine[otel]'"


class Tracer:
    """Called with each request of `AsyncLLM.generate` that has ended.

    Args:
        provider: a `TracerProvider` of OpenTelemetry's SDK.
        model: the attribute `gen_ai.response.model`.
    """

    def __init__(self, provider: Any, model: str) -> None:
        self._provider, self._model = provider, model
        self._tracer = provider.get_tracer("jax_engine")

    @classmethod
    def to_collector(cls, endpoint: str, model: str) -> "Tracer":
        """A tracer that sends spans to a URL, such as http://localhost:4318/v1/traces.

        Raises:
            MissingPackageError: OpenTelemetry's packages are not installed.
        """
        for package in ("opentelemetry.sdk.trace", "opentelemetry.exporter.otlp.proto.http"):
            need(package, "--otlp-traces-endpoint", install=_INSTALL)
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint)))
        return cls(provider, model)

    def __call__(
        self,
        request_id: str,
        headers: Mapping[str, str],
        params: SamplingParams,
        times: RequestMetrics,
        num_tokens: tuple[int, int],
    ) -> None:
        """Makes the span.

        Args:
            headers: those of the client, whose `traceparent` names the span's parent.
            num_tokens: number of tokens of the prompt, and of all outputs.
        """
        from opentelemetry.trace import SpanKind
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        names = {name.lower(): value for name, value in headers.items()}
        parent = TraceContextTextMapPropagator().extract(names)
        now, wall = time.monotonic(), time.time_ns()
        start = wall - round(1e9 * (now - times.arrival_time))
        end = (
            wall if times.finished_time is None else wall - round(1e9 * (now - times.finished_time))
        )
        span = self._tracer.start_span("llm_request", parent, SpanKind.SERVER, start_time=start)
        span.set_attribute("gen_ai.request.id", request_id)
        span.set_attribute("gen_ai.response.model", self._model)
        span.set_attribute("gen_ai.usage.prompt_tokens", num_tokens[0])
        span.set_attribute("gen_ai.usage.completion_tokens", num_tokens[1])
        for name in ("n", "max_tokens", "temperature", "top_p"):
            value = getattr(params, name)
            if value is not None:
                span.set_attribute(f"gen_ai.request.{name}", value)
        for name, seconds in _latencies(times):
            span.set_attribute(f"gen_ai.latency.{name}", seconds)
        span.end(max(start, end))

    def close(self) -> None:
        """Sends what has not been sent, if that takes no longer than FLUSH_S seconds."""
        thread = threading.Thread(target=self._provider.force_flush, daemon=True)
        thread.start()
        thread.join(FLUSH_S)


def _latencies(times: RequestMetrics) -> Iterator[tuple[str, float]]:
    """Those whose two ends are known: who was aborted did not reach all."""
    planned, first, last = times.scheduled_time, times.first_token_time, times.last_token_time
    for name, start, end in (
        ("time_in_queue", times.queued_time, planned),
        ("time_to_first_token", times.arrival_time, first),
        ("e2e", times.arrival_time, times.finished_time),
        ("time_in_model_prefill", planned, first),
        ("time_in_model_decode", first, last),
        ("time_in_model_inference", planned, last),
    ):
        if start is not None and end is not None:
            yield name, end - start
