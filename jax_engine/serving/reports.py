"""What is new in requests, as messages to the API's process."""

from collections.abc import Iterable

from jax_engine.engine.pieces import News
from jax_engine.engine.request import RequestNews
from jax_engine.outputs import PoolingRequestOutput
from jax_engine.serving.messages import Pooled


def messages_of(updates: Iterable[RequestNews]) -> list[News | Pooled]:
    """A message for each request: its news as they are, or the array of a pooling request."""
    return [_pooled(new) if isinstance(new, PoolingRequestOutput) else new for _, new in updates]


def _pooled(output: PoolingRequestOutput) -> Pooled:
    data = output.outputs.data
    return Pooled(
        output.request_id, data.tobytes(), list(data.shape), data.dtype.name, output.finished
    )
