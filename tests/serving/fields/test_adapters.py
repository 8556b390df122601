"""Adapters as models of a server: names, files that change, and who may change the list."""

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from jax_engine import AsyncLLM, ConfigError, InvalidRequestError, LoRARequest
from jax_engine.lora.modules import Modules
from jax_engine.serving.api.app import make_app
from jax_engine.serving.api.endpoint_requests import ChatRequest
from jax_engine.serving.api.service import ServerSettings, Service
from jax_engine.serving.parsers.tool_formats import TOOL_FORMATS
from jax_engine.serving.served_adapters import UPDATING, LoRAModule, NamedAdapter, lora_modules
from jax_engine.tokenization.tokenizer import load_tokenizer
from tests.lora.adapters import tensors_of, write_folder
from tests.serving.fields.cases import TEMPLATE
from tests.serving.fields.conftest import SETTINGS
from tests.serving.fields.test_python_fields import have_slots
from tests.support.engine_in_thread import in_threads
from tests.support.scripted_llm import ScriptedLLM

LOAD, UNLOAD = "/v1/load_lora_adapter", "/v1/unload_lora_adapter"
HI = [{"role": "user", "content": "hi"}]
ASKS: dict[str, dict[str, Any]] = {
    "/v1/completions": {"prompt": "x", "max_tokens": 1},
    "/v1/chat/completions": {"messages": HI, "max_tokens": 1},
    "/v1/responses": {"input": "x", "max_output_tokens": 1},
    "/v1/messages": {"messages": HI, "max_tokens": 1},
    "/v1/embeddings": {"input": "x"},
    "/pooling": {"input": "x"},
}
CHATS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": HI},
    "/v1/responses": {"input": "hi"},
    "/v1/messages": {"messages": HI, "max_tokens": 1},
    "/tokenize": {"messages": HI},
    "/pooling": {"messages": HI, "add_generation_prompt": True},
    "/v1/embeddings": {"messages": HI, "add_generation_prompt": True},
}


class Offered:
    """A server of adapters; `folder` has two that fit."""

    def __init__(self, checkpoint: Path, accepted: list[Any], folder: Path) -> None:
        self.llm = AsyncLLM(str(checkpoint), **SETTINGS, enable_lora=True, max_loras=2)
        settings = ServerSettings(names=("tiny", "other"), chat_template=TEMPLATE)
        self.service = Service(self.llm, settings)
        self.app, self.accepted, self.folder = make_app(self.service), accepted, folder

    def write(self, name: str, modules: Modules, seed: int) -> str:
        return str(write_folder(self.folder / name, tensors_of(of=modules, seed=seed)))


@pytest.fixture(scope="module")
def offered(
    fields_checkpoint: Path, accepted: list[Any], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Offered, TestClient, Modules]]:
    with pytest.MonkeyPatch.context() as patch:
        process = in_threads(patch)
        have_slots(patch)
        patch.setenv(UPDATING, "1")
        one = Offered(fields_checkpoint, accepted, tmp_path_factory.mktemp("adapters"))
        modules = process().engine._adapters.modules
        with TestClient(one.app, raise_server_exceptions=False) as client:
            yield one, client, modules
        one.llm.shutdown()


@pytest.fixture
def french(offered: tuple[Offered, TestClient, Modules]) -> Iterator[str]:
    one, client, modules = offered
    path = one.write("french", modules, 1)
    answer = client.post(LOAD, json={"lora_name": "french", "lora_path": path})
    assert answer.status_code == 200, answer.text
    assert answer.text == "Success: LoRA adapter 'french' added successfully."
    yield path
    client.post(UNLOAD, json={"lora_name": "french"})


@pytest.mark.parametrize("path", ASKS)
@pytest.mark.slow
def test_a_request_has_the_adapter_that_it_names(path: str, offered: Any, french: str) -> None:
    one, client, _ = offered
    one.accepted.clear()
    for model in ("french", "other"):
        client.post(path, json=ASKS[path] | {"model": model})
    adapted, plain = one.accepted
    assert adapted.lora.lora_name == "french" and plain.lora is None
    assert adapted.group.adapter is not None and plain.group.adapter is None


@pytest.mark.parametrize("path", ASKS)
def test_an_answer_has_the_name_that_was_asked_for(path: str, fields_checkpoint: Path) -> None:
    llm: Any = ScriptedLLM(load_tokenizer(fields_checkpoint))
    service = Service(llm, ServerSettings(names=("tiny", "other"), chat_template=TEMPLATE))
    service.adapters._named["french"] = NamedAdapter(LoRARequest("french", 1, "nowhere"), {})
    client = TestClient(make_app(service))
    for model, said in (("french", "french"), ("other", "tiny")):
        answer = client.post(path, json=ASKS[path] | {"model": model})
        assert answer.json()["model"] == said, answer.text


def test_the_list_of_models(offered: Any, french: str) -> None:
    _, client, _ = offered
    base, _, card = client.get("/v1/models").json()["data"]
    assert card["id"] == "french" and card["root"] == french and card["parent"] == "tiny"
    assert base["parent"] is None
    assert client.get("/v1/models/french").json() == card


def test_an_unknown_name_lists_what_there_is(offered: Any, french: str) -> None:
    _, client, _ = offered
    answer = client.post("/v1/completions", json={"prompt": "x", "model": "german"})
    assert answer.status_code == 404
    assert "there is 'tiny', 'other', 'french'" in answer.json()["error"]["message"]


def test_files_that_are_replaced_are_another_adapter(offered: Any, french: str) -> None:
    one, client, modules = offered
    one.accepted.clear()
    ask = ASKS["/v1/completions"] | {"model": "french"}
    client.post("/v1/completions", json=ask)
    again = {"lora_name": "french", "lora_path": one.write("newer", modules, 2)}
    refused = client.post(LOAD, json=again)
    assert refused.status_code == 400 and "already been loaded" in refused.text
    assert client.post(LOAD, json=again | {"load_inplace": True}).status_code == 200
    client.post("/v1/completions", json=ask)
    before, after = one.accepted
    assert before.group.adapter.digest != after.group.adapter.digest


def test_an_unloaded_name_is_gone_and_its_requests_keep_it(offered: Any, french: str) -> None:
    one, client, _ = offered
    one.accepted.clear()
    ask = ASKS["/v1/completions"] | {"model": "french"}
    client.post("/v1/completions", json=ask)
    answer = client.post(UNLOAD, json={"lora_name": "french"})
    assert answer.text == "Success: LoRA adapter 'french' removed successfully."
    assert one.accepted[0].group.adapter is not None
    assert client.post("/v1/completions", json=ask).status_code == 404
    assert client.post(UNLOAD, json={"lora_name": "french"}).status_code == 404


def test_a_name_is_the_version_that_was_loaded(offered: Any, french: str) -> None:
    """Whatever becomes of its files, until it is loaded again."""
    one, client, modules = offered
    one.accepted.clear()
    ask = ASKS["/v1/completions"] | {"model": "french"}
    again = {"lora_name": "french", "lora_path": french, "load_inplace": True}
    client.post("/v1/completions", json=ask)
    one.write("french", modules, 5)
    client.post("/v1/completions", json=ask)
    assert client.post(LOAD, json=again).status_code == 200
    client.post("/v1/completions", json=ask)
    shutil.rmtree(french)
    assert client.post("/v1/completions", json=ask).status_code == 200
    assert client.post(LOAD, json=again).status_code == 400
    client.post("/v1/completions", json=ask)
    digests = [found.group.adapter.digest for found in one.accepted]
    assert digests[0] == digests[1] and len({*digests[2:]}) == 1
    assert digests[0] != digests[2] and len(digests) == 5
    assert client.get("/v1/models/french").json()["root"] == french


@pytest.mark.parametrize("unload_at", ["load", "add"])
def test_a_name_that_is_unloaded_while_it_is_loaded_has_an_id(
    unload_at: str, offered: Any, french: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unload waits for no load. What is loaded in place then has an id of its own."""
    one, client, _ = offered
    adapters, load = one.service.adapters, one.llm.load_lora
    before = {adapters.get("french").lora.lora_int_id}

    async def unloaded(lora: LoRARequest) -> LoRARequest:
        if unload_at == "load":
            assert await adapters.unload("french")
        loaded: LoRARequest = await load(lora)
        if unload_at == "add":
            assert await adapters.unload("french")
        return loaded

    monkeypatch.setattr(one.llm, "load_lora", unloaded)

    async def calls() -> None:
        others = await one.llm.list_loras() - before
        assert await adapters.load(LoRAModule("french", french), inplace=True)
        number = adapters.get("french").lora.lora_int_id
        assert await one.llm.list_loras() == others | {number}
        assert await adapters.unload("french")
        assert await one.llm.list_loras() == others

    client.portal.call(calls)


@pytest.mark.parametrize(
    ("path", "body", "words"),
    [
        (LOAD, {"lora_name": "a"}, "Both 'lora_name' and 'lora_path' must be provided."),
        (LOAD, {"lora_name": "a", "lora_path": "nowhere"}, "lora_request 'a'"),
        (LOAD, {"lora_name": "tiny", "lora_path": "x"}, "must not be a name of the model"),
        (UNLOAD, {}, "'lora_name' needs to be provided"),
    ],
)
def test_bad_bodies(path: str, body: dict[str, Any], words: str, offered: Any) -> None:
    answer = offered[1].post(path, json=body)
    assert answer.status_code == 400 and words in answer.json()["error"]["message"], answer.text


def test_the_link_carries_adapters(offered: Any, french: str) -> None:
    one, client, _ = offered
    mine = LoRARequest("mine", 77, french)

    async def calls() -> None:
        assert await one.llm.add_lora(mine) and not await one.llm.add_lora(mine)
        assert 77 in await one.llm.list_loras() and await one.llm.pin_lora(77)
        assert await one.llm.remove_lora(77) and not await one.llm.remove_lora(77)
        with pytest.raises(InvalidRequestError, match="'mine'"):
            await one.llm.add_lora(LoRARequest("mine", 77, "nowhere"))
        both = [one.service.adapters.load(LoRAModule("twice", french)) for _ in range(2)]
        assert sorted(await asyncio.gather(*both)) == [False, True]
        assert await one.service.adapters.unload("twice")
        with pytest.raises(ConfigError, match="--lora-modules a=nowhere"):
            await one.service.adapters.load_all([LoRAModule("a", "nowhere")])

    client.portal.call(calls)


def test_values_of_the_flag() -> None:
    found = lora_modules(["a=b=c", '{"name": "d", "path": "e"}', '[{"name": "f", "path": "g"}]'])
    assert found == [LoRAModule("a", "b=c"), LoRAModule("d", "e"), LoRAModule("f", "g")]


@pytest.mark.parametrize(
    "value", ["a", "=b", "a=", "{", "[1]", '{"name": "a"}', '{"name": "a", "path": 1}',
              '{"name": "a", "path": "b", "rank": 4}', '{"name": null, "path": "b"}']
)  # fmt: skip
def test_wrong_values_of_the_flag(value: str) -> None:
    with pytest.raises(ConfigError, match="--lora-modules must be"):
        lora_modules([value])
    with pytest.raises(ConfigError, match="twice"):
        lora_modules(["a=b", "a=c"])


@pytest.mark.parametrize("path", CHATS)
def test_a_conversation_has_its_adapter_s_template(
    path: str, fields_checkpoint: Path, tmp_path: Path
) -> None:
    """Unless the server was started with one."""
    tokenizer, found = load_tokenizer(fields_checkpoint), []
    for template in (None, TEMPLATE):
        llm: Any = ScriptedLLM(tokenizer)
        service = Service(llm, ServerSettings(names=("tiny",), chat_template=template))
        lora = LoRARequest("french", 1, str(tmp_path))
        own = {"default": "mine {{ messages[0].content }}"}
        service.adapters._named["french"] = NamedAdapter(lora, own)
        client = TestClient(make_app(service))
        for model in ("french", "tiny"):
            answer = client.post(path, json=CHATS[path] | {"model": model})
            prompt = llm.asked[-1][0]["prompt_token_ids"] if llm.asked else answer.json()["tokens"]
            found.append(tokenizer.decode(prompt))
    assert found == ["mine hi", *3 * ["[user]hi[assistant]"]]


@pytest.mark.parametrize("path", CHATS)
def test_an_adapter_with_a_broken_template_is_named(
    path: str, fields_checkpoint: Path, tmp_path: Path
) -> None:
    llm: Any = ScriptedLLM(load_tokenizer(fields_checkpoint))
    service = Service(llm, ServerSettings(names=("tiny",)))
    lora = LoRARequest("french", 1, str(tmp_path))
    service.adapters._named["french"] = NamedAdapter(lora, {"default": "{% if %}"})
    answer = TestClient(make_app(service)).post(path, json=CHATS[path] | {"model": "french"})
    assert answer.status_code == 400
    assert "lora_request 'french': The chat template refuses" in answer.text


def test_calls_are_read_as_the_adapter_s_template_tells(fields_checkpoint: Path) -> None:
    """Unless the server was told otherwise."""
    llm: Any = ScriptedLLM(load_tokenizer(fields_checkpoint))
    request = ChatRequest(messages=HI)
    for own, wanted in (("<tool_call>", "hermes"), ("[TOOL_CALLS]", "mistral"), ("plain", None)):
        request.use(LoRARequest("french", 1, "nowhere"), {"default": own})
        for options, form in (
            ({}, wanted),
            ({"chat_template": "<tool_call>"}, "hermes"),
            ({"tool_call_parser": "hermes"}, "hermes"),
        ):
            service = Service(llm, ServerSettings(names=("tiny",), **options))
            assert service.turn_format_of(request).calls is (TOOL_FORMATS[form] if form else None)


def test_a_loaded_adapter_brings_its_template(offered: Any, tmp_path: Path) -> None:
    one, client, modules = offered
    path = one.write("mine", modules, 3)
    (Path(path) / "chat_template.jinja").write_text("mine")
    assert client.post(LOAD, json={"lora_name": "mine", "lora_path": path}).status_code == 200
    assert one.service.adapters.get("mine").templates == {"default": "mine"}
    (Path(path) / "tokenizer_config.json").write_text("{")
    again = {"lora_name": "mine", "lora_path": path, "load_inplace": True}
    refused = client.post(LOAD, json=again)
    assert refused.status_code == 400 and "is unreadable" in refused.text
    (Path(path) / "tokenizer_config.json").unlink()
    (Path(path) / "added_tokens.json").write_text('{"<new>": 400}')
    refused = client.post(LOAD, json=again)
    assert refused.status_code == 400 and "'<new>'" in refused.text
    client.post(UNLOAD, json={"lora_name": "mine"})
