"""Adapters over HTTP, on an engine that computes them: names change while requests run."""

import asyncio
import json
import re
import shutil
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from jax_engine import AsyncLLM
from jax_engine.commands.batch_run import ask
from jax_engine.lora.modules import Modules
from jax_engine.serving.api.app import make_app
from jax_engine.serving.api.service import ServerSettings, Service
from jax_engine.serving.served_adapters import UPDATING
from tests.lora.adapters import tensors_of, write_folder
from tests.support.engine_in_thread import in_threads
from tests.support.heads import with_head
from tests.support.patience import HANG_S

SETTINGS: dict[str, Any] = {
    "block_size": 16, "max_model_len": 64, "max_num_seqs": 4, "num_gpu_blocks_override": 60,
    "enable_lora": True, "max_loras": 1, "max_cpu_loras": 4, "max_lora_rank": 4,
}  # fmt: skip
LOAD, UNLOAD = "/v1/load_lora_adapter", "/v1/unload_lora_adapter"
ADAPTED = [f"model.layers.0.{name}_proj" for name in ("self_attn.q", "self_attn.v", "mlp.down")]
COMPLETE = "/v1/completions"
# More than a block of the cache
SHORT: dict[str, Any] = {
    "prompt": 10 * "ab", "max_tokens": 12, "temperature": 0, "ignore_eos": True,
    "return_token_ids": True,
}  # fmt: skip
LONG = SHORT | {"max_tokens": 40}


class Server:
    """A server; `folder` has adapters of its model."""

    def __init__(self, checkpoint: Path, folder: Path, process: Callable[[], Any]) -> None:
        self.llm = AsyncLLM(str(checkpoint), **SETTINGS)
        self.service = Service(self.llm, ServerSettings(names=("tiny",)))
        self.app = make_app(self.service)
        self.folder, self.loop = folder, asyncio.Runner()
        self.modules: Modules = process().engine._adapters.modules

    def close(self) -> None:
        self.llm.shutdown()
        self.loop.close()

    def write(self, name: str, seed: int) -> str:
        tensors = tensors_of(ADAPTED, of=self.modules, seed=seed)
        return str(write_folder(self.folder / name, tensors))

    def digest(self, name: str) -> str:
        found = self.service.adapters.get(name)
        assert found is not None and found.lora.digest is not None
        return found.lora.digest


class Answer(NamedTuple):
    status_code: int
    text: str

    def json(self) -> Any:
        return json.loads(self.text)


class Client:
    """A client of a server."""

    def __init__(self, server: Server) -> None:
        self.server = server

    async def post(self, path: str, **body: Any) -> Answer:
        status, content = await ask(self.server.app, path, body)
        return Answer(status, content.decode())

    async def load(self, name: str, path: str, **more: Any) -> None:
        answer = await self.post(LOAD, lora_name=name, lora_path=path, **more)
        assert answer.status_code == 200, answer.text

    async def unload(self, name: str) -> None:
        answer = await self.post(UNLOAD, lora_name=name)
        assert answer.status_code == 200, answer.text

    async def says(self, model: str, body: dict[str, Any] = SHORT) -> list[int]:
        """The tokens of a completion."""
        answer = await self.post(COMPLETE, **body, model=model)
        assert answer.status_code == 200, answer.text
        tokens: list[int] = answer.json()["choices"][0]["token_ids"]
        return tokens

    async def held(self, model: str) -> "asyncio.Task[list[int]]":
        """A long completion that has begun, in an engine that steps no more until it resumes."""
        llm = self.server.llm
        while True:
            task = asyncio.create_task(self.says(model, LONG))
            while not (await llm.get_stats())["num_running"] and not task.done():
                await asyncio.sleep(0)
            await llm.pause_generation(mode="keep")
            if (await llm.get_stats())["num_running"]:
                return task
            await llm.resume_generation()
            await task

    async def info(self) -> dict[str, str]:
        """The names that are labels of vLLM's gauge of adapters."""
        page = await got(self.server.app, "/metrics")
        (line,) = [one for one in page.splitlines() if one.startswith("vllm:lora_requests_info{")]
        return dict(re.findall(r'(\w*lora\w*)="([^"]*)"', line.partition("{")[2]))

    async def slots(self) -> dict[str, float]:
        """How many requests use the adapters that have slots, by their digests."""
        page = await got(self.server.app, "/metrics")
        found = re.findall(r'^jax_engine:lora_slot_requests{.*digest="(\w+)".*} (.*)$', page, re.M)
        return {digest: float(count) for digest, count in found}


async def got(app: Any, path: str) -> str:
    """The body of a page."""
    parts: list[bytes] = []
    scope = {
        "type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "scheme": "http",
        "query_string": b"", "headers": [], "root_path": "", "http_version": "1.1",
        "client": None, "server": None,
    }  # fmt: skip

    async def receive() -> Any:
        return {"type": "http.request", "body": b""}

    async def send(message: Any) -> None:
        parts.append(message.get("body", b""))

    await app(scope, receive, send)
    return b"".join(parts).decode()


@pytest.fixture(scope="module")
def threads() -> Iterator[Callable[[], Any]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(UPDATING, "1")
        yield in_threads(patch)


@pytest.fixture(scope="module")
def server(
    checkpoint: Path, threads: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    one = Server(checkpoint, tmp_path_factory.mktemp("adapters"), threads)
    yield one
    one.close()


def run(calls: Callable[["Client"], Coroutine[Any, Any, None]], server: Server) -> None:
    """One client's calls; then no adapter has a name."""

    async def all_of() -> None:
        client = Client(server)
        try:
            await calls(client)
        finally:
            await server.llm.resume_generation()
            for one in server.service.adapters.all():
                await client.unload(one.lora.lora_name)

    server.loop.run(asyncio.wait_for(all_of(), HANG_S))


@pytest.mark.slow
def test_the_gauge_names_who_runs_and_who_waits(server: Server) -> None:
    async def calls(client: Client) -> None:
        for seed, name in enumerate(("german", "french")):
            await client.load(name, server.write(name, seed))
        kinds = [f"{who}_lora_{what}" for who in ("running", "waiting")
                 for what in ("adapters", "digests")]  # fmt: skip
        nobody = {"max_lora": "1"} | dict.fromkeys(kinds, "")
        assert await client.info() == nobody and await client.slots() == {}
        task = await client.held("french")
        other = asyncio.create_task(client.says("german"))
        plain = asyncio.create_task(client.says("tiny"))
        while server.llm.num_unfinished_requests < 3:
            await asyncio.sleep(0)
        french, german = (server.digest(name) for name in ("french", "german"))
        some = {
            "running_lora_adapters": "french", "waiting_lora_adapters": "german",
            "running_lora_digests": french, "waiting_lora_digests": german,
        }  # fmt: skip
        assert await client.info() == nobody | some
        assert await client.slots() == {french: 1.0}
        await server.llm.resume_generation()
        await asyncio.gather(task, other, plain)
        assert await client.info() == nobody
        assert await client.slots() == {german: 0.0}

    run(calls, server)


@pytest.mark.parametrize("how", ["another path", "files overwritten", "unloaded, then loaded"])
@pytest.mark.slow
def test_a_name_changes_while_its_request_is_computed(how: str, server: Server) -> None:
    """Nothing waits for the request, and its tokens are those that it has alone."""

    async def calls(client: Client) -> None:
        old = server.write("old", 1)
        await client.load("french", old)
        wanted, base = await client.says("french", LONG), await client.says("tiny", LONG)
        task = await client.held("french")
        new = server.write("old" if how == "files overwritten" else "new", 2)
        if how == "unloaded, then loaded":
            await client.unload("french")
            assert (await client.post(COMPLETE, **SHORT, model="french")).status_code == 404
            shutil.rmtree(old)
            await client.load("french", new)
        else:
            await client.load("french", new, load_inplace=True)
        assert not task.done()
        after = asyncio.create_task(client.says("french", LONG))
        await server.llm.resume_generation()
        assert await task == wanted
        later = await after
        assert later == await client.says("french", LONG)
        assert wanted != later != base != wanted
        await client.load("alone", new)
        assert await client.says("alone", LONG) == later

    run(calls, server)


@pytest.mark.parametrize("path", [COMPLETE, "/v1/chat/completions"])
def test_each_chunk_names_the_adapter(path: str, server: Server) -> None:
    async def calls(client: Client) -> None:
        await client.load("french", server.write("french", 1))
        body = SHORT if path == COMPLETE else {"messages": [{"role": "user", "content": "a"}],
                                              "max_tokens": 5, "ignore_eos": True}  # fmt: skip
        body = body | {"stream": True, "stream_options": {"include_usage": True}}
        for model in ("french", "tiny"):
            text = (await client.post(path, **body, model=model)).text
            chunks = [one.removeprefix("data: ") for one in text.split("\n\n") if one]
            assert chunks.pop() == "[DONE]" and len(chunks) > 3
            assert {json.loads(one)["model"] for one in chunks} == {model}

    run(calls, server)


BY_NAME: dict[str, dict[str, Any]] = {
    "/score": {"text_1": "ab", "text_2": ["cd", "ef"]},
    "/rerank": {"query": "ab", "documents": ["cd", "ef"]},
    "/v1/embeddings": {"input": "ab"},
    "/pooling": {"input": "ab"},
}


@pytest.mark.parametrize("path", BY_NAME)
def test_what_is_pooled_by_an_adapter_s_name(path: str, server: Server) -> None:
    async def calls(client: Client) -> None:
        await client.load("french", server.write("french", 1))
        found = []
        for model in ("french", "tiny", "french"):
            answer = await client.post(path, **BY_NAME[path], model=model)
            assert answer.status_code == 200 and answer.json()["model"] == model, answer.text
            found.append(answer.json().get("data") or answer.json()["results"])
        assert found[0] == found[2] != found[1]

    run(calls, server)


def test_tokens_are_the_model_s_whatever_the_name(server: Server) -> None:
    async def calls(client: Client) -> None:
        await client.load("french", server.write("french", 1))
        for path, body in (("/tokenize", {"prompt": "ab"}), ("/detokenize", {"tokens": [97, 98]})):
            found = [await client.post(path, **body, model=one) for one in ("french", "tiny")]
            assert found[0].status_code == 200 and found[0].json() == found[1].json()
            assert (await client.post(path, **body, model="other")).status_code == 404
        refused = [await client.post("/classify", input="ab", model=m) for m in ("french", "tiny")]
        assert refused[0].status_code == 400 and refused[0].json() == refused[1].json()

    run(calls, server)


@pytest.mark.slow
def test_classes_by_an_adapter_s_name(checkpoint: Path, threads: Any, tmp_path: Path) -> None:
    path = with_head(checkpoint, tmp_path / "head", kind="SequenceClassification", labels=3)
    one = Server(path, tmp_path, threads)

    async def calls(client: Client) -> None:
        await client.load("french", one.write("french", 1))
        found = []
        for model in ("french", "tiny", "french"):
            answer = await client.post("/classify", input=["ab"], model=model)
            assert answer.status_code == 200 and answer.json()["model"] == model, answer.text
            found.append(answer.json()["data"][0]["probs"])
        assert found[0] == found[2] != found[1]

    try:
        run(calls, one)
    finally:
        one.close()
