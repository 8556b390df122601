"""The outputs of one request, as its client reads them.

News arrive with each step, whether somebody reads or not. What arrived since the last reading is
read as one output, so a slow reader delays nobody and holds only what it has not read.
"""

import asyncio

import numpy as np

from jax_engine.engine.assembler import Assembler
from jax_engine.engine.pieces import News
from jax_engine.engine.prompts import Prompt
from jax_engine.outputs import PoolingOutput, PoolingRequestOutput, RequestOutput
from jax_engine.serving.messages import Pooled


class Stream[Output]:
    """Outputs of a request for one reader.

    Attributes:
        request_id: the client's name of the request.
        ended: whether the last output, or an error, has arrived.
    """

    def __init__(self, request_id: str) -> None:
        self.request_id = request_id
        self.ended = False
        self._arrived = asyncio.Event()
        self._error: BaseException | None = None

    def fail(self, error: BaseException) -> None:
        """Ends the stream with an error."""
        self._error, self.ended = error, True
        self._arrived.set()

    async def next(self) -> Output | None:
        """The next output; None behind the last one. Raises the error that ended the stream."""
        while True:
            if not self.ended:
                await self._arrived.wait()
            self._arrived.clear()
            if self._error is not None:
                raise self._error
            output = self.read()
            if output is not None or self.ended:
                return output

    def read(self) -> Output | None:
        """What has arrived since the last reading, as one output; None if nothing has."""
        raise NotImplementedError


class PoolingStream(Stream[PoolingRequestOutput]):
    """The one output of a pooling request."""

    def __init__(self, request_id: str, prompt: Prompt) -> None:
        super().__init__(request_id)
        self._prompt = prompt
        self._output: PoolingRequestOutput | None = None

    def take(self, pooled: Pooled) -> None:
        """Takes the output."""
        data = np.frombuffer(pooled.data, pooled.dtype).reshape(pooled.shape)
        self._output = PoolingRequestOutput(
            self.request_id, PoolingOutput(data), self._prompt.token_ids, pooled.finished
        )
        self.ended = True
        self._arrived.set()

    def read(self) -> PoolingRequestOutput | None:
        """As `Stream.read`."""
        output, self._output = self._output, None
        return output


class CompletionStream(Stream[RequestOutput]):
    """Outputs of a request that generates.

    Args:
        assembler: makes them.
        interval: of the reader: see `EngineConfig.stream_interval`.
    """

    def __init__(self, assembler: Assembler, interval: int) -> None:
        super().__init__(assembler.request_id)
        self._assembler, self._interval = assembler, interval
        self._fresh = False

    def take(self, news: News) -> None:
        """Takes what a step gave."""
        self._assembler.take(news)
        self.ended = self.ended or news.finished
        if self.ended or self._assembler.is_due(self._interval):
            self._fresh = True
            self._arrived.set()

    def read(self) -> RequestOutput | None:
        """As `Stream.read`."""
        fresh, self._fresh = self._fresh, False
        return self._assembler.read() if fresh else None
