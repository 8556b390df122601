"""A server without a device, and what its engine accepts."""

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.testclient import TestClient
from tokenizers import Tokenizer as Backend
from tokenizers.processors import TemplateProcessing

from jax_engine import AsyncLLM
from jax_engine.serving import async_llm
from jax_engine.serving.api.app import make_app
from jax_engine.serving.api.service import ServerSettings, Service
from tests.serving.fields.cases import BOS, TEMPLATE
from tests.support.accepted import Fields, fields_of, recorded
from tests.support.byte_tokenizer import VOCAB
from tests.support.engine_in_thread import in_threads
from tests.support.heads import with_head
from tests.support.tiny_llama import byte_llama

ARRIVAL = 12.5  # by the client's clock, which stands still
SETTINGS: dict[str, Any] = {
    "block_size": 16, "max_model_len": 512, "max_num_seqs": 8, "num_gpu_blocks_override": 200,
    "scheduling_policy": "priority", "reasoning_config": {"reasoning_parser": "qwen3"},
}  # fmt: skip


class Server:
    """The app over a whole engine without a device. `llm` is the client in the app's process."""

    def __init__(self, checkpoint: Path, accepted: list[Any], template: str | None) -> None:
        self.llm = AsyncLLM(str(checkpoint), **SETTINGS)
        self.names: list[str] = []
        self.llm.request_log = lambda name, *_: self.names.append(name)  # type: ignore[assignment]
        settings = ServerSettings(
            names=("tiny", "other"),
            chat_template=template,
            tool_call_parser="hermes",
            reasoning_parser="none",
        )
        self.app = make_app(Service(self.llm, settings))
        self._accepted = accepted

    def ask(self, client: TestClient, path: str, body: dict[str, Any]) -> Fields:
        """What the engine accepts when a client asks this, which is one prompt."""
        [found] = self.ask_all(client, path, body)
        return found

    def ask_all(self, client: TestClient, path: str, body: dict[str, Any]) -> list[Fields]:
        """The same of a request for several prompts."""
        self._accepted.clear(), self.names.clear()
        answer = client.post(path, json=body)
        assert self._accepted, answer.text
        return self.taken()

    def taken(self) -> list[Fields]:
        """The requests that were accepted."""
        tokenizer = self.llm.text_tokenizer()
        return [
            fields_of(request, tokenizer) | {"name": name}
            for request, name in zip(self._accepted, self.names, strict=True)
        ]


@pytest.fixture(scope="module")
def accepted() -> Iterator[list[Any]]:
    with pytest.MonkeyPatch.context() as patch, recorded(patch) as found:
        yield found


@pytest.fixture(scope="package")
def fields_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model for embeddings of 5 numbers, too, whose tokenizer adds a token before a text."""
    folder = tmp_path_factory.mktemp("fields")
    return _for_these_tests(byte_llama(folder / "bytes", max_position_embeddings=512))


@pytest.fixture(scope="package")
def reranker_checkpoint(fields_checkpoint: Path) -> Path:
    """The same with a head of one score."""
    target = fields_checkpoint.with_name("reranker")
    return _for_these_tests(
        with_head(fields_checkpoint, target, kind="SequenceClassification", labels=1)
    )


def _for_these_tests(path: Path) -> Path:
    backend = Backend.from_file(str(path / "tokenizer.json"))
    backend.post_processor = TemplateProcessing(
        single=f"{BOS} $A", pair=f"{BOS} $A $B", special_tokens=[(BOS, VOCAB - 1)]
    )
    backend.save(str(path / "tokenizer.json"))
    options = json.loads((path / "tokenizer_config.json").read_text())
    options["chat_template"] = TEMPLATE
    (path / "tokenizer_config.json").write_text(json.dumps(options))
    config = json.loads((path / "config.json").read_text()) | {"matryoshka_dimensions": [5]}
    (path / "config.json").write_text(json.dumps(config))
    return path


@pytest.fixture(scope="module")
def server(fields_checkpoint: Path, accepted: list[Any]) -> Iterator[Server]:
    yield from _serving(fields_checkpoint, accepted, TEMPLATE)


@pytest.fixture(scope="module")
def reranker(reranker_checkpoint: Path, accepted: list[Any]) -> Iterator[Server]:
    """The server has no template, which would join pairs."""
    yield from _serving(reranker_checkpoint, accepted, None)


def _serving(checkpoint: Path, accepted: list[Any], template: str | None) -> Iterator[Server]:
    with pytest.MonkeyPatch.context() as patch:
        in_threads(patch)
        patch.setattr(async_llm, "time", SimpleNamespace(monotonic=lambda: ARRIVAL))
        server = Server(checkpoint, accepted, template)
        yield server
        server.llm.shutdown()


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[TestClient]:
    with TestClient(server.app, raise_server_exceptions=False) as client:
        yield client


@pytest.fixture(scope="module")
def reranker_client(reranker: Server) -> Iterator[TestClient]:
    with TestClient(reranker.app, raise_server_exceptions=False) as client:
        yield client
