"""A server that keeps time: what a client should measure of it is known.

    python -m benchmarks.compare.servers.paced --port 8000

It answers completions, streamed, with one word an event: the first FIRST_S after the request, each
further one NEXT_S after the one before. It computes nothing, so a client has the cores for itself.
"""

import argparse
import asyncio

import msgspec
import uvloop
from aiohttp import web

FIRST_S, NEXT_S = 0.1, 0.02


def event(number: int, length: int) -> bytes:
    """An event of a stream: the word of that number, of so many."""
    reason = "length" if number == length - 1 else None
    choice = {"index": 0, "text": " word", "logprobs": None, "finish_reason": reason}
    return b"data: " + msgspec.json.encode({"id": "paced", "choices": [choice]}) + b"\n\n"


async def completions(request: web.Request) -> web.StreamResponse:
    """The stream of an answer, each event at its time."""
    clock = asyncio.get_running_loop().time
    came = clock()
    asked = msgspec.json.decode(await request.read())
    length = asked["max_tokens"]
    answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await answer.prepare(request)
    for number in range(length):
        await asyncio.sleep(came + FIRST_S + number * NEXT_S - clock())
        await answer.write(event(number, length))
    usage = {"prompt_tokens": 1, "completion_tokens": length, "total_tokens": length + 1}
    last = msgspec.json.encode({"id": "paced", "choices": [], "usage": usage})
    await answer.write(b"data: " + last + b"\n\ndata: [DONE]\n\n")
    return answer


async def models(request: web.Request) -> web.Response:
    return web.json_response({"data": [{"id": "bench", "root": "bench"}]})


async def health(request: web.Request) -> web.Response:
    return web.Response()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--port", type=int, default=8000)
    port = parser.parse_args().port
    app = web.Application()
    app.add_routes(
        [
            web.post("/v1/completions", completions),
            web.get("/v1/models", models),
            web.get("/health", health),
        ]
    )
    uvloop.install()
    web.run_app(app, host="127.0.0.1", port=port, print=None, loop=uvloop.new_event_loop())


if __name__ == "__main__":
    main()
