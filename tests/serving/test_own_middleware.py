"""ASGI middleware of the user's own around the server's app."""

from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from jax_engine.commands.own_middleware import load_middleware
from tests.support.scripted_app import Make


class Outer:
    """Adds its name to a header of each answer."""

    name = "outer"

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = (b"x-passed", self.name.encode())
                message = {**message, "headers": [*message["headers"], own]}
            await send(message)

        await self._app(scope, receive, answer)


class Inner(Outer):
    name = "inner"


async def no_secrets(request: Any, call_next: Any) -> Any:
    """Refuses a path, and says so in a header of the others."""
    from starlette.responses import PlainTextResponse

    if request.url.path == "/secret":
        return PlainTextResponse("no", status_code=418)
    answer = await call_next(request)
    answer.headers["x-checked"] = "yes"
    return answer


def test_the_last_is_the_outermost_and_all_are_outside_of_ours(make: Make) -> None:
    paths = [f"{__name__}.{name}" for name in ("Inner", "Outer", "no_secrets")]
    own = load_middleware(paths)
    assert [one.cls for one in own[:2]] == [Inner, Outer]
    client, _ = make({"middleware": own, "api_keys": ("key",)})
    answer = client.get("/v1/models")
    assert answer.status_code == 401  # our own is within
    assert answer.headers.get_list("x-passed") == ["inner", "outer"]
    assert answer.headers["x-checked"] == "yes"
    assert client.get("/secret").status_code == 418


def test_streams_pass_through(make: Make) -> None:
    client, _ = make({"middleware": load_middleware([f"{__name__}.no_secrets"])})
    text = client.post("/v1/completions", json={"prompt": "x", "stream": True}).text
    assert text.endswith("data: [DONE]\n\n")
