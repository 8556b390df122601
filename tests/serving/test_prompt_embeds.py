"""Prompts that are given as embeddings, through the engine's messages and `/v1/completions`."""

import base64
import importlib
import io
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file
from starlette.testclient import TestClient

from tests.models import pytorch_files as torch_files
from tests.support.app_in_threads import app_in_threads
from tests.support.scripted_app import Make, events
from tests.support.some_embeds import some_embeds

C = "/v1/completions"
LIMIT = 40
TEXT = "Once upon"
GREEDY: dict[str, Any] = {"temperature": 0.0, "max_tokens": 6, "ignore_eos": True}


def saved(values: np.ndarray, **zipped: Any) -> bytes:
    """What `torch.save(tensor)` writes."""
    held = torch_files.storage(torch_files.STORAGES[values.dtype.name], "0", values.size)
    pickled = torch_files.tensor(held, values.shape, torch_files.contiguous(values.shape))
    data = {"0": values.tobytes()}
    return torch_files.zipped(b"\x80\x02" + pickled + torch_files.STOP, data, **zipped)


def encoded(values: np.ndarray | bytes) -> str:
    return base64.b64encode(values if isinstance(values, bytes) else saved(values)).decode()


@pytest.fixture(scope="module")
def client(checkpoint: Path) -> Iterator[TestClient]:
    settings = {
        "block_size": 4, "max_model_len": LIMIT, "num_gpu_blocks_override": 60, "max_num_seqs": 4,
    }  # fmt: skip
    with app_in_threads(str(checkpoint), **settings, enable_prompt_embeds=True) as client:
        yield client


@pytest.fixture(scope="module")
def vectors(client: TestClient, checkpoint: Path) -> np.ndarray:
    """Those of the tokens of a text."""
    table: np.ndarray = load_file(checkpoint / "model.safetensors")["model.embed_tokens.weight"]
    ids = client.post("/tokenize", json={"prompt": TEXT}).json()["tokens"]
    return table[ids]


def asked(client: TestClient, **body: Any) -> dict[str, Any]:
    answer = client.post(C, json=GREEDY | body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def shown(choice: dict[str, Any]) -> Any:
    logprobs = choice["logprobs"]
    return choice["text"], logprobs["tokens"], logprobs["token_logprobs"]


def test_a_tensor_of_a_text_s_vectors_says_what_the_text_says(client, vectors) -> None:
    (wanted,) = asked(client, prompt=TEXT, logprobs=1)["choices"]
    answer = asked(client, prompt=None, prompt_embeds=encoded(vectors), logprobs=1)
    (found,) = answer["choices"]
    assert shown(found) == shown(wanted)
    assert answer["usage"]["prompt_tokens"] == len(vectors)


def test_several_come_before_texts(client, vectors) -> None:
    """In their order, beside a prompt of another kind; an empty text is none."""
    drawn = {"n": 2, "temperature": 1.0, "seed": 4, "return_token_ids": True}
    texts = [choice["text"] for choice in asked(client, prompt=[TEXT, "b"], **drawn)["choices"]]
    given = [encoded(vectors), encoded(vectors[None])]
    both = asked(client, prompt="b", prompt_embeds=given, **drawn)["choices"]
    assert [choice["text"] for choice in both] == [*texts[:2], *texts]
    assert both[0]["prompt_token_ids"] == [0] * len(vectors)
    alone = asked(client, prompt="", prompt_embeds=given[:1], **drawn)["choices"]
    assert [choice["text"] for choice in alone] == texts[:2]


def test_as_a_stream_and_cut(client, vectors) -> None:
    given = {"prompt_embeds": encoded(np.concatenate([some_embeds(1, 3), vectors]))}
    (wanted,) = asked(client, prompt=TEXT, logprobs=0)["choices"]
    cut = GREEDY | given | {"truncate_prompt_tokens": len(vectors), "stream": True}
    streamed = events(client.post(C, json=cut).text)
    assert (
        "".join(one["choices"][0]["text"] for one in streamed if one["choices"]) == (wanted["text"])
    )
    first = GREEDY | {"prompt_embeds": encoded(some_embeds(1, 9))}
    right = client.post(C, json=first | {"truncate_prompt_tokens": 4, "truncation_side": "right"})
    beginning = client.post(C, json=first | {"prompt_embeds": encoded(some_embeds(1, 4))})
    assert right.json()["choices"] == beginning.json()["choices"]


def test_a_tensor_of_16_bits_is_taken(client) -> None:
    values = some_embeds(1, 6).astype(ml_dtypes.bfloat16)
    whole = encoded(values.astype(np.float32))
    found = [asked(client, prompt_embeds=one)["choices"] for one in (encoded(values), whole)]
    assert found[0] == found[1]


def test_the_example(
    client: TestClient, vectors: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`examples/prompt_embeds_client.py`, with OpenAI's client; PyTorch only writes the file."""

    def save(tensor: np.ndarray, file: io.BytesIO) -> None:
        file.write(saved(tensor))

    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(save=save))
    example = importlib.import_module("examples.prompt_embeds_client")
    openai = pytest.importorskip("openai")
    one = openai.OpenAI(base_url="http://testserver/v1", api_key="none", http_client=client)
    wanted = client.post(C, json={"prompt": TEXT, "temperature": 0}).json()
    assert example.complete(one, vectors) == wanted["choices"][0]["text"]


PICKLED = b"\x80\x02" + torch_files.name("os", "getcwd") + b")R."
REPEATED = b"\x80\x02" + torch_files.tensor(
    torch_files.storage("FloatStorage", "0", 20), (1 << 20, 20), (0, 1)
) + torch_files.STOP  # fmt: skip
DICTIONARY = torch_files.zipped(*torch_files.state_dict({"w": np.zeros((2, 20), np.float32)}))
WRONG = {
    "no base64": ("%", "must be base64 of a tensor that torch.save wrote"),
    "no tensor": (encoded(b"GIF89a"), "neither as a zip archive nor as a pickle"),
    "nothing": ("", "neither as a zip archive nor as a pickle"),
    "code": (encoded(torch_files.zipped(PICKLED, {})), "must be base64 of a tensor"),
    "a dictionary": (encoded(DICTIONARY), "a dict, not a tensor"),
    "compressed": (
        encoded(saved(np.zeros((900, 20), np.float32), method=zipfile.ZIP_DEFLATED)),
        "compressed, or repeats its numbers",
    ),
    "repeated": (
        encoded(torch_files.zipped(REPEATED, {"0": bytes(80)})), "compressed, or repeats",
    ),
    "a long pickle": (
        encoded(torch_files.zipped(b"\x80\x02" + b"N" * 70_000, {})), "at most 65536 are read",
    ),
    "narrow": (encoded(np.zeros((2, 19), np.float32)), "hidden_size"),
    "a vector": (encoded(np.zeros(20, np.float32)), "must be of shape"),
    "integers": (encoded(np.zeros((2, 20), np.int64)), "floating-point"),
    "no number": (encoded(np.full((2, 20), np.nan, np.float32)), "finite"),
    "no text": (5, "must be base64 of a tensor, or a list of them"),
    "no texts": ([5], "must be base64 of a tensor, or a list of them"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_tensor_is_refused(client: TestClient, name: str) -> None:
    given, message = WRONG[name]
    answer = client.post(C, json=GREEDY | {"prompt_embeds": given})
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (400, "prompt_embeds"), error
    assert message in error["message"]


@pytest.mark.parametrize(
    ("field", "value"), [("echo", True), ("prompt_logprobs", 0), ("max_tokens", LIMIT)]
)
def test_what_needs_tokens_or_room_is_refused(client: TestClient, field: str, value: Any) -> None:
    body = GREEDY | {"prompt_embeds": encoded(some_embeds(1, 5)), field: value}
    answer = client.post(C, json=body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, field)


def test_a_server_that_was_not_asked_takes_none(make: Make) -> None:
    client, llm = make()
    llm.embeds = None
    answer = client.post(C, json={"prompt_embeds": encoded(some_embeds(1, 5))})
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (400, "prompt_embeds")
    assert "--enable-prompt-embeds" in error["message"] and not llm.asked


def test_no_prompt_at_all_is_refused(make: Make) -> None:
    client, _ = make()
    for body in ({}, {"prompt": None, "prompt_embeds": []}):
        answer = client.post(C, json=body)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "prompt")
