"""Fields of requests over HTTP, through app, service, `AsyncLLM`, messages and checks.

Only the device's step is missing. A request is compared with a plain one: what a field does not
mean must stay as it was.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from jax_engine.serving.api.app import make_app
from jax_engine.serving.api.service import ServerSettings, Service
from tests.serving.fields.cases import BOS, POOLED, TEMPLATE, WAYS
from tests.serving.fields.conftest import ARRIVAL, SETTINGS, Server
from tests.support.accepted import Fields, as_wanted, changed, leaves
from tests.support.scripted_app import scripted_app

type Ask = Callable[[str, dict[str, Any]], Fields]
ALL = [(path, name) for path, way in WAYS.items() for name in way.cases]


@pytest.mark.parametrize("path", WAYS)
def test_each_field_of_a_request_has_a_case(path: str) -> None:
    way = WAYS[path]
    assert set(leaves(way.model)) == way.cases.keys()
    assert all(bool(case.engine) != bool(case.why) for case in way.cases.values())


@pytest.fixture
def ask(server: Server, client: TestClient, reranker: Server, reranker_client: TestClient) -> Ask:
    """Asks at one of the ways in."""

    def of(path: str, body: dict[str, Any]) -> Fields:
        if WAYS[path].server == "reranker":
            return reranker.ask(reranker_client, path, body)
        return server.ask(client, path, body)

    return of


@pytest.mark.parametrize(("path", "name"), ALL)
@pytest.mark.slow
def test_a_field_is_in_what_the_engine_accepts(path: str, name: str, ask: Ask) -> None:
    way = WAYS[path]
    case, plain = way.cases[name], way.plain | way.cases[name].needs
    without = ask(path, plain)
    assert without["arrival_time"] == ARRIVAL
    found = changed(ask(path, plain | case.body), without)
    if name != "request_id":
        assert found.pop("name") != without["name"]
    assert as_wanted(found, case.engine), found


@pytest.mark.parametrize("name", POOLED)
@pytest.mark.parametrize("path", ["/v1/score", "/v1/rerank"])
def test_a_field_of_texts_that_are_compared_is_in_both(
    path: str, name: str, server: Server, client: TestClient
) -> None:
    """A model without a head embeds the texts one by one."""
    case, plain = POOLED[name], WAYS[path].plain | POOLED[name].needs
    without = server.ask_all(client, path, plain)
    assert [one["task"] for one in without] == ["embed", "embed"]
    for one, before in zip(server.ask_all(client, path, plain | case.body), without, strict=True):
        found = changed(one, before)
        if name != "request_id":
            assert found.pop("name") != before["name"]
        assert as_wanted(found, case.engine), found


def test_a_field_of_a_pair_that_a_template_joins(reranker: Server) -> None:
    service = Service(reranker.llm, ServerSettings(names=("tiny",), chat_template=TEMPLATE))
    client, joined = TestClient(make_app(service)), "[query]Once[document]Twice"
    body = {"query": "Once", "documents": ["Twice"]}
    for more, prompt in (
        ({}, f"{BOS}{joined}"),
        ({"add_special_tokens": False}, joined),
        ({"truncate_prompt_tokens": 2}, "ce"),
    ):
        assert reranker.ask(client, "/rerank", body | more)["prompt"] == prompt


def test_an_embedding_is_cut_to_what_the_engine_can_take(
    server: Server, client: TestClient
) -> None:
    """-1 keeps as many tokens as the model has room for, which draws none; the text's end is kept,
    by any way of writing it."""
    most = SETTINGS["max_model_len"]
    for text in ("ab" * 400 + "c", [97, 98] * 400 + [99]):
        body = {"input": text, "truncate_prompt_tokens": -1}
        found = server.ask(client, "/v1/embeddings", body)
        assert found["prompt"] == ("ab" * 400 + "c")[-most:]


def test_an_embedding_counts_its_prompts_alone(checkpoint: Path) -> None:
    client, _ = scripted_app(checkpoint)()
    answer = client.post("/v1/embeddings", json={"input": ["ab", "c"]}).json()
    assert answer["usage"] == {"prompt_tokens": 6, "completion_tokens": 0, "total_tokens": 6}


def test_an_answer_repeats_what_a_response_was_asked_for(checkpoint: Path) -> None:
    client, _ = scripted_app(checkpoint)()
    schema = {"type": "json_schema", "name": "y", "schema": {"type": "object"}, "strict": True}
    asked = {
        "instructions": "Be brief.", "max_output_tokens": 9, "metadata": {"a": "b"}, "user": "me",
        "parallel_tool_calls": False, "prompt_cache_key": "k", "safety_identifier": "s",
        "temperature": 0.25, "top_p": 0.5, "truncation": "auto", "reasoning": {"effort": "low"},
        "text": {"format": schema},
    }  # fmt: skip
    answer = client.post("/v1/responses", json={"input": "x"} | asked).json()
    for name, value in asked.items():
        got = answer[name]
        assert (got | value if isinstance(value, dict) else value) == got, name
    plain = {"type": "json_object"}
    body = {"input": "x", "text": {"format": plain}}
    assert client.post("/v1/responses", json=body).json()["text"]["format"] == plain
