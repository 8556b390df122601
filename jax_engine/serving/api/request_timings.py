"""`--enable-per-request-metrics`: the times of a request in its answer, with vLLM's names."""

from msgspec import Struct

from jax_engine.outputs import RequestMetrics


class Timings(Struct):
    """Times of a request with one output. A field is null if what it is counted from is not known.

    Attributes:
        time_to_first_token_ms: from when it was scheduled to its first token.
        generation_time_ms: from its first token to its last.
        queue_time_ms: from when the engine accepted it to when it was scheduled.
        mean_itl_ms: between two tokens on average; null of one token.
        tokens_per_second: its tokens, over the time from when it was scheduled to its last one.
    """

    time_to_first_token_ms: float | None = None
    generation_time_ms: float | None = None
    queue_time_ms: float | None = None
    mean_itl_ms: float | None = None
    tokens_per_second: float | None = None

    @classmethod
    def of(cls, metrics: RequestMetrics, num_tokens: int) -> "Timings":
        """From times in seconds, and the number of tokens of the output."""
        first, last = metrics.first_token_time, metrics.last_token_time
        decoding = _between_ms(first, last)
        computing = _between_ms(metrics.scheduled_time, last)
        return cls(
            _between_ms(metrics.scheduled_time, first),
            decoding,
            _between_ms(metrics.queued_time, metrics.scheduled_time),
            None if decoding is None or num_tokens < 2 else decoding / (num_tokens - 1),
            1000 * num_tokens / computing if computing else None,
        )


def _between_ms(start: float | None, end: float | None) -> float | None:
    return None if start is None or end is None else 1000 * (end - start)
