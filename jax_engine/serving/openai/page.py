"""`GET /`: the page that shows the engine at work, and chats with it.

Its files are served as they lie in `jax_engine/serving/page`. They load nothing from elsewhere, and
the browser is told to refuse what would.
"""

from pathlib import Path

from fastapi import FastAPI
from starlette.responses import Response

from jax_engine.checks import shown
from jax_engine.serving.openai.errors import invalid
from jax_engine.serving.openai.responses import json_response
from jax_engine.serving.openai.service import Service
from jax_engine.serving.openai.state import StateWatch

FOLDER = Path(__file__).parents[1] / "page"
# Path: file and type. They need no key; the page asks for it.
FILES = {
    "/": ("page.html", "text/html; charset=utf-8"),
    "/page/page.css": ("page.css", "text/css; charset=utf-8"),
    "/page/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/page/chat.js": ("chat.js", "text/javascript; charset=utf-8"),
    "/page/map.js": ("map.js", "text/javascript; charset=utf-8"),
}
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",  # the next version's files belong together
}


def add_page(app: FastAPI, service: Service) -> None:
    """Adds the page, and the state that it shows."""
    watches = [StateWatch(service, number) for number in range(len(service.llm.engines_alive))]

    @app.get("/state")
    async def state(engine: str = "0") -> Response:
        """What the engine of this number does at this moment."""
        if engine not in map(str, range(len(watches))):
            most = len(watches) - 1
            raise invalid("engine", f"engine must be from 0 to {most}, got {shown(engine)}")
        return json_response(await watches[int(engine)].now(), {"Cache-Control": "no-store"})

    for path, (name, kind) in FILES.items():
        _add_file(app, path, (FOLDER / name).read_bytes(), kind)


def _add_file(app: FastAPI, path: str, content: bytes, kind: str) -> None:
    @app.get(path, include_in_schema=False)
    async def file() -> Response:
        return Response(content, headers=HEADERS, media_type=kind)
