"""Runs requests side by side, for as long as their client is there."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Sequence
from contextlib import aclosing
from typing import Any

from starlette.requests import Request as HttpRequest
from starlette.types import Receive


class ClientGone(Exception):
    """The client has closed its connection: nobody reads an answer."""


async def gone(receive: Receive) -> None:
    """Waits until the client has closed its connection. The body must have been read."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def for_client[T](http: HttpRequest, work: Awaitable[T]) -> T:
    """The result of work that is cancelled when its client goes away.

    Raises:
        ClientGone: it has gone away.
    """
    return await unless_gone(http.receive, work)


async def unless_gone[T](receive: Receive, work: Awaitable[T]) -> T:
    """As `for_client`."""
    task, watch = asyncio.ensure_future(work), asyncio.ensure_future(gone(receive))
    try:
        await asyncio.wait({task, watch}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientGone
        return task.result()
    finally:
        await _end([task, watch])


async def last_of[T](streams: Sequence[AsyncIterator[T]]) -> list[T]:
    """The last output of each; all are ended if one fails."""
    tasks = [asyncio.ensure_future(_last(one)) for one in streams]
    try:
        return await asyncio.gather(*tasks)
    finally:
        await _end(tasks)


async def _end(tasks: Sequence["asyncio.Future[Any]"]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _last[T](stream: AsyncIterator[T]) -> T:
    async for output in stream:
        last = output
    return last


async def merged[T](streams: Sequence[AsyncGenerator[T]]) -> AsyncGenerator[tuple[int, T]]:
    """The outputs of all as they come, each with its stream's number; all end with the reader.

    Who reads slowly holds up nothing but this: each stream keeps together what is not read.
    """
    if len(streams) == 1:
        async with aclosing(streams[0]):
            async for output in streams[0]:
                yield 0, output
        return
    queue: asyncio.Queue[tuple[int, T] | Exception | None] = asyncio.Queue(1)

    async def pass_on(number: int, stream: AsyncIterator[T]) -> None:
        try:
            async for output in stream:
                await queue.put((number, output))
        except Exception as error:
            await queue.put(error)
        else:
            await queue.put(None)

    tasks = [asyncio.ensure_future(pass_on(i, one)) for i, one in enumerate(streams)]
    left = len(tasks)
    try:
        while left:
            item = await queue.get()
            if isinstance(item, Exception):
                raise item
            if item is None:
                left -= 1
            else:
                yield item
    finally:
        await _end(tasks)
