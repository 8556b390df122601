"""`GET /state`: one question for all who watch, and none while nobody does."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from jax_engine import EngineDeadError
from jax_engine.serving.api.app import make_app
from jax_engine.serving.api.service import ServerSettings, Service
from jax_engine.serving.api.web_page import FILES, StateWatch
from jax_engine.tokenization.tokenizer import load_tokenizer
from tests.support.patience import HANG_S
from tests.support.scripted_llm import ScriptedLLM

Make = Callable[..., tuple[Service, ScriptedLLM]]
HEX = "0123456789abcdef" * 2


def state_of(*request_ids: str | None) -> dict[str, Any]:
    return {"map": {"requests": [{"request_id": one, "name": "1"} for one in request_ids]}}


@pytest.fixture
def make(checkpoint: Path) -> Make:
    def of(settings: dict[str, Any] | None = None, **script: Any) -> tuple[Service, ScriptedLLM]:
        llm = ScriptedLLM(load_tokenizer(checkpoint), state=state_of(), **script)
        return Service(llm, ServerSettings(names=("tiny",), **(settings or {}))), llm

    return of


def test_only_ids_that_the_server_made_are_told(make: Make) -> None:
    service, llm = make()
    llm.state = state_of(f"chatcmpl-{HEX}/0#4", f"cmpl-{HEX}/3#5", "cmpl-mine/0#6", "my name", None)
    found = TestClient(make_app(service)).get("/state").json()["engine"]["map"]["requests"]
    assert [(one["request_id"], one["prompt"]) for one in found] == [
        (f"chatcmpl-{HEX}", 0), (f"cmpl-{HEX}", 3), (None, 0), (None, 0), (None, 0),
    ]  # fmt: skip


def test_requests_are_named_after_their_answers(make: Make) -> None:
    service, llm = make()
    client = TestClient(make_app(service))
    body = {"prompt": ["a", "b"], "request_id": "same"}
    ids = [client.post("/v1/completions", json=body).json()["id"] for _ in range(2)]
    hi = {"messages": [{"role": "user", "content": "hi"}]}
    ids.append(client.post("/v1/chat/completions", json=hi).json()["id"])
    given = [str(one).rpartition("#")[0] for one in llm.request_ids]
    assert given == [f"{ids[0]}/0", f"{ids[0]}/1", f"{ids[1]}/0", f"{ids[1]}/1", f"{ids[2]}/0"]
    assert ids[0] == ids[1] == "cmpl-same" and len(set(llm.request_ids)) == 5


def test_all_who_watch_share_one_question(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jax_engine.serving.api.web_page.FRESH_S", HANG_S)

    async def run() -> None:
        service, llm = make()
        watch = StateWatch(service)
        assert llm.questions == 0
        await asyncio.gather(*(watch.now() for _ in range(9)))
        await watch.now()  # fresh enough
        assert llm.questions == 1

    asyncio.run(run())


def test_a_long_step_leaves_the_last_state_and_one_question(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        service, llm = make()
        watch = StateWatch(service)
        monkeypatch.setattr("jax_engine.serving.api.web_page.FRESH_S", 0.0)
        monkeypatch.setattr("jax_engine.serving.api.web_page.WAIT_S", 0.01)
        first = await watch.now()
        llm.busy, llm.step_seconds = True, 7.5
        for _ in range(3):
            found = await watch.now()
        assert found["engine"] == first["engine"] and found["step_seconds"] == 7.5
        assert found["age"] >= 0.03 and llm.questions == 2, "the open question is waited for"

    asyncio.run(run())


def test_before_the_first_answer_there_is_no_state(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jax_engine.serving.api.web_page.WAIT_S", 0.01)
    found = TestClient(make_app(make(busy=True)[0])).get("/state").json()
    assert found["engine"] is None and found["age"] is None
    assert found["server"] == {
        "model": "tiny", "chat": True, "max_model_len": 4096, "max_num_seqs": 2,
        "num_engines": 1,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("given", "own", "skips", "can"),
    [
        (None, True, False, True),
        (None, False, False, False),
        (None, True, True, False),  # without a tokenizer
        ("{{ messages }}", False, False, True),
        ("{{ messages }}", False, True, True),
    ],
)
def test_whether_the_page_can_chat(
    make: Make,
    monkeypatch: pytest.MonkeyPatch,
    given: str | None,
    own: bool,
    skips: bool,
    can: bool,
) -> None:
    """It needs a template: the server's, or one of the model's tokenizer."""
    service, llm = make({"chat_template": given})
    llm.config.skip_tokenizer_init = skips
    if not own:
        monkeypatch.setattr(llm.tokenizer.chat, "templates", {})
    found = TestClient(make_app(service)).get("/state").json()
    assert found["server"]["chat"] == can


def test_an_engine_that_has_ended_is_503(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    service, llm = make()
    client = TestClient(make_app(service))
    assert client.get("/state").status_code == 200
    llm.errored = True
    assert client.get("/state").status_code == 503  # though what it said last is fresh
    llm.errored = False
    client = TestClient(make_app(service))

    async def ends(engine: int) -> None:
        raise EngineDeadError("killed")

    monkeypatch.setattr(llm, "get_state", ends)
    answers = [client.get("/state")]
    llm.errored = True
    answers.append(client.get("/state"))
    assert [one.status_code for one in answers] == [503, 503]
    assert {one.json()["error"]["code"] for one in answers} == {"engine_dead"}


def test_the_page_is_open_and_strict_but_the_state_needs_a_key(make: Make) -> None:
    client = TestClient(make_app(make({"api_keys": ("secret",)})[0]))
    for path in FILES:
        answer = client.get(path)
        assert answer.status_code == 200
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy
        assert "script-src 'self';" in policy and answer.headers["x-content-type-options"]
    assert client.get("/state").status_code == 401
    assert client.get("/page/other.js").status_code == 401  # as anything that does not exist
    key = {"Authorization": "Bearer secret"}
    answer = client.get("/state", headers=key)
    assert answer.status_code == 200 and answer.headers["cache-control"] == "no-store"


def test_the_files_are_of_their_types(make: Make) -> None:
    client = TestClient(make_app(make()[0]))
    kinds = {path: client.get(path).headers["content-type"] for path in FILES}
    assert kinds["/"].startswith("text/html") and kinds["/page/page.css"].startswith("text/css")
    assert kinds["/page/page.js"].startswith("text/javascript")


def test_each_engine_has_a_state_of_its_own(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    service, llm = make()
    monkeypatch.setattr(ScriptedLLM, "engines_alive", [True] * 3)

    async def state(engine: int) -> dict[str, Any]:
        return state_of() | {"number": engine}

    monkeypatch.setattr(llm, "get_state", state)
    client = TestClient(make_app(service))
    assert client.get("/state").json()["engine"]["number"] == 0
    for number in (2, 1, 0):
        found = client.get(f"/state?engine={number}").json()
        assert found["engine"]["number"] == number and found["server"]["num_engines"] == 3
    for wrong in ("3", "-1", "one", "01", ""):
        answer = client.get(f"/state?engine={wrong}")
        assert answer.status_code == 400 and answer.json()["error"]["param"] == "engine"
        assert "from 0 to 2" in answer.json()["error"]["message"]
