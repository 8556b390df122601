"""A real server, asked by OpenAI's own client and by others that are less polite."""

import asyncio
import base64
import json
import random
import re
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import openai
import pytest

from examples import openai_client
from jax_engine import LLM, SamplingParams
from tests.meta.trees import ROOT
from tests.support.http_server import HttpServer
from tests.support.patience import HANG_S, until

SETTINGS = {"block_size": 4, "max_model_len": 64, "max_num_seqs": 8, "num_gpu_blocks_override": 60}
PROMPTS = ["Once", "The capital of", "é"]
SCHEMA = {
    "type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"],
    "additionalProperties": False,
}  # fmt: skip
NO_BLANKS = {"32": -100, "9": -100, "10": -100, "13": -100}  # or a grammar's may have no end
CHAT: Any = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why?"}]


@pytest.fixture(scope="module")
def server(checkpoint: Path) -> Iterator[HttpServer]:
    found = HttpServer.of(
        checkpoint, "--served-model-name", "tiny", "--max-waiting", "400", "--log-format", "json",
        "--enable-log-requests", "--log-stats-interval", "0.2",
    )  # fmt: skip
    yield found
    assert found.stop() == 0


@pytest.fixture(scope="module")
def client(server: HttpServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0) as found:
        yield found


@pytest.fixture(scope="module")
def llm(checkpoint: Path) -> LLM:
    return LLM(str(checkpoint), **SETTINGS)


def texts(answer: Any) -> list[str]:
    return [one.text for one in answer.choices]


@pytest.mark.slow
def test_completions_are_those_of_llm(client: openai.OpenAI, llm: LLM) -> None:
    params = SamplingParams(seed=3, max_tokens=9, n=2, temperature=0.7, logprobs=2, top_k=40)
    offline = llm.generate(PROMPTS, params, use_tqdm=False)
    answer = client.completions.create(
        model="tiny", prompt=PROMPTS, seed=3, max_tokens=9, n=2, temperature=0.7, logprobs=2,
        extra_body={"top_k": 40},
    )  # fmt: skip
    outputs = [one for output in offline for one in output.outputs]
    assert texts(answer) == [one.text for one in outputs]
    assert [one.finish_reason for one in answer.choices] == [one.finish_reason for one in outputs]
    for choice, output in zip(answer.choices, outputs, strict=True):
        found = choice.logprobs.token_logprobs
        pairs = zip(output.token_ids, output.logprobs or (), strict=True)
        wanted = [entry[token].logprob for token, entry in pairs]
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
        assert all(len(entry) <= 3 for entry in choice.logprobs.top_logprobs)
    ids = [llm.get_tokenizer().encode(text) for text in PROMPTS]
    same = client.completions.create(model="tiny", prompt=ids, max_tokens=9, temperature=0)
    greedy = SamplingParams(temperature=0.0, max_tokens=9)
    assert texts(same) == [
        one.outputs[0].text for one in llm.generate(PROMPTS, greedy, use_tqdm=False)
    ]
    assert same.usage.prompt_tokens == sum(map(len, ids))


@pytest.mark.slow
def test_beams_and_best_of_are_those_of_llm(client: openai.OpenAI, llm: LLM) -> None:
    beams = SamplingParams(use_beam_search=True, n=2, temperature=0.0, max_tokens=6)
    best = SamplingParams(seed=5, max_tokens=6, n=2, best_of=4)
    options: list[dict[str, Any]] = [
        {"temperature": 0, "extra_body": {"use_beam_search": True}},
        {"seed": 5, "best_of": 4},
    ]
    for params, given in zip((beams, best), options, strict=True):
        (offline,) = llm.generate("Once", params, use_tqdm=False)
        answer = client.completions.create(model="tiny", prompt="Once", max_tokens=6, n=2, **given)
        assert texts(answer) == [one.text for one in offline.outputs]
        assert [one.index for one in answer.choices] == [0, 1]


@pytest.mark.slow
def test_chats_are_those_of_llm(client: openai.OpenAI, llm: LLM) -> None:
    params = SamplingParams(seed=8, max_tokens=None, temperature=0.9, logprobs=2)
    (offline,) = llm.chat(CHAT, params, use_tqdm=False)
    asked: dict[str, Any] = {"model": "tiny", "messages": CHAT, "seed": 8, "temperature": 0.9}
    asked |= {"logprobs": True, "top_logprobs": 2}
    answer = client.chat.completions.create(**asked)
    output = offline.outputs[0]
    assert answer.choices[0].message.content == output.text
    content = answer.choices[0].logprobs.content
    mine = [bytes(one.bytes) for one in content]
    assert mine == [b"<|end|>" if one == 256 else bytes([one]) for one in output.token_ids]
    assert len(mine) > 16 or answer.choices[0].finish_reason == "stop"
    assert answer.usage.completion_tokens == len(output.token_ids)

    stream = client.chat.completions.create(
        **asked, stream=True, stream_options={"include_usage": True}
    )
    *pieces, last = stream
    assert "".join(one.choices[0].delta.content or "" for one in pieces) == output.text
    found = [
        t for one in pieces if one.choices[0].logprobs for t in one.choices[0].logprobs.content
    ]
    assert [one.logprob for one in found] == pytest.approx([one.logprob for one in content])
    assert last.usage.total_tokens == answer.usage.total_tokens


def test_responses_and_messages_are_those_of_llm(client: openai.OpenAI, llm: LLM) -> None:
    params = SamplingParams(max_tokens=12, temperature=0.0)
    (offline,) = llm.chat(CHAT, params, use_tqdm=False)
    fields: dict[str, Any] = {"model": "tiny", "temperature": 0}
    answer = client.responses.create(
        instructions=CHAT[0]["content"], input=CHAT[1]["content"], max_output_tokens=12, **fields
    )
    assert answer.output_text == offline.outputs[0].text
    assert answer.usage is not None and answer.usage.output_tokens == 12
    assert answer.status == "incomplete"
    message = fields | {"system": CHAT[0]["content"], "messages": CHAT[1:], "max_tokens": 12}
    told = client.post("/messages", body=message, cast_to=httpx2.Response).json()
    assert told["content"] == [{"type": "text", "text": answer.output_text}]
    assert told["stop_reason"] == "max_tokens"


@pytest.mark.slow
def test_a_required_tool_is_called(client: openai.OpenAI) -> None:
    answer = client.responses.create(
        model="tiny",
        input="?",
        tools=[{"type": "function", "name": "f", "parameters": SCHEMA, "strict": True}],
        tool_choice={"type": "function", "name": "f"},
        extra_body={"logit_bias": NO_BLANKS},
    )
    (call,) = answer.output
    assert call.type == "function_call" and json.loads(call.arguments)["a"] in (1, 2)


def test_answers_of_a_given_form(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model="tiny",
        messages=[{"role": "user", "content": "?"}],
        response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}},
        logit_bias=NO_BLANKS,
    )
    assert json.loads(answer.choices[0].message.content or "")["a"] in (1, 2)
    chosen = client.completions.create(
        model="tiny", prompt="x", extra_body={"guided_choice": ["yes", "no"]}
    )
    assert texts(chosen)[0] in ("yes", "no")


@pytest.mark.parametrize("stream", [True, False])
def test_tools_that_must_be_called(client: openai.OpenAI, stream: bool) -> None:
    """The model knows nothing: a grammar makes it call."""
    tool: Any = {"type": "function", "function": {"name": "f", "parameters": SCHEMA}}
    named: Any = {"type": "function", "function": {"name": "f"}}
    for choice in ("required", named):
        asked: Any = {
            "model": "tiny", "messages": [{"role": "user", "content": "?"}], "tools": [tool],
            "tool_choice": choice, "parallel_tool_calls": False,
        }  # fmt: skip
        if stream:
            chunks = [
                one.choices[0] for one in client.chat.completions.create(**asked, stream=True)
            ]
            calls = [call for one in chunks for call in one.delta.tool_calls or ()]
            name, reason = calls[0].function.name, chunks[-1].finish_reason
        else:
            answer = client.chat.completions.create(**asked).choices[0]
            calls, reason = answer.message.tool_calls or [], answer.finish_reason
            name = calls[0].function.name
            assert answer.message.content is None
        arguments = json.loads("".join(one.function.arguments for one in calls))
        assert arguments.keys() == {"a"} and arguments["a"] in (1, 2)
        assert name == "f" and reason == "tool_calls"


@pytest.mark.slow
def test_many_streams_at_once(server: HttpServer, llm: LLM) -> None:
    params = [SamplingParams(seed=i, max_tokens=20) for i in range(12)]
    offline = llm.generate(["Tell me"] * 12, params, use_tqdm=False)

    async def ask(client: openai.AsyncOpenAI, seed: int) -> str:
        stream = await client.completions.create(
            model="tiny", prompt="Tell me", seed=seed, max_tokens=20, stream=True
        )
        return "".join([one.choices[0].text async for one in stream])

    async def all_at_once() -> list[str]:
        url = f"{server.url}/v1"
        async with openai.AsyncOpenAI(base_url=url, api_key="any", max_retries=0) as client:
            return await asyncio.gather(*(ask(client, seed) for seed in range(12)))

    assert asyncio.run(all_at_once()) == [one.outputs[0].text for one in offline]


@pytest.mark.slow
def test_embeddings_models_and_tokens(client: openai.OpenAI, server: HttpServer, llm: LLM) -> None:
    offline = llm.embed(["One", "Two"], use_tqdm=False)
    answer = client.embeddings.create(model="tiny", input=["One", "Two"])  # asks for base64
    for mine, theirs in zip(answer.data, offline, strict=True):
        np.testing.assert_allclose(mine.embedding, theirs.outputs.embedding, rtol=1e-4, atol=1e-5)
    raw = {"input": "One", "encoding_format": "base64"}
    data = httpx2.post(f"{server.url}/v1/embeddings", json=raw, timeout=HANG_S).json()["data"][0][
        "embedding"
    ]
    np.testing.assert_allclose(
        np.frombuffer(base64.b64decode(data), "<f4"), answer.data[0].embedding, rtol=1e-6
    )
    assert [one.id for one in client.models.list()] == ["tiny"]
    assert client.models.retrieve("tiny").model_extra["max_model_len"] == 64
    for path in ("/health", "/ready", "/version"):
        assert httpx2.get(server.url + path, timeout=HANG_S).status_code == 200


def test_lines_of_the_log_are_json(server: HttpServer) -> None:
    """`test_request_log.py` and `test_stats_log.py` have the lines themselves."""
    body, headers = {"prompt": "x", "max_tokens": 5, "n": 2}, {"X-Request-Id": "abc"}
    url = f"{server.url}/v1/completions"
    answer = httpx2.post(url, json=body, headers=headers, timeout=HANG_S)
    assert answer.status_code == 200 and answer.json()["id"] == "cmpl-abc", answer.text
    until(lambda: any("Avg prompt throughput" in line for line in server.lines), "a line of stats")
    lines = [json.loads(line) for line in server.lines]
    assert all(one.keys() >= {"time", "level", "logger", "message"} for one in lines)
    (received,) = [one for one in lines if one.get("request_id") == "cmpl-abc"]
    assert received["message"].startswith("Received request") and "n=2" in received["message"]
    assert "max_tokens=5" in received["message"] and "prompt:" not in received["message"]


def test_errors_reach_the_client_by_their_type(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="does not exist"):
        client.completions.create(model="none", prompt="x")
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model="tiny", prompt="x" * 64)
    assert (caught.value.code, caught.value.param) == ("context_length_exceeded", "prompt")
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(
            model="tiny", messages=[{"role": "user", "content": "x" * 64}]
        )
    assert (caught.value.code, caught.value.param) == ("context_length_exceeded", "messages")
    with pytest.raises(openai.BadRequestError) as caught:
        client.responses.create(model="tiny", input="x" * 64)
    assert (caught.value.code, caught.value.param) == ("context_length_exceeded", "input")
    for stream in (True, False):
        with pytest.raises(openai.BadRequestError, match="max_logprobs"):
            client.completions.create(model="tiny", prompt="x", logprobs=30, stream=stream)


def test_what_the_docs_show_runs(server: HttpServer) -> None:
    """`docs/serving.md`: the curl of the slides, and OpenAI's client."""
    page = (ROOT / "docs" / "serving.md").read_text("utf-8")
    (command,) = re.findall(r"^curl .*?[^\\]\n", page, re.MULTILINE | re.DOTALL)
    command = command.replace("http://localhost:8000", server.url)
    command = command.replace("SmolLM2-135M-Instruct", "tiny")
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=HANG_S)
    answer = json.loads(done.stdout)
    assert answer["object"] == "text_completion" and answer["usage"]["completion_tokens"] == 7
    assert isinstance(openai_client.ask(server.url), str)


def test_the_process_has_no_jax(server: HttpServer) -> None:
    """After chats and all else: what is mapped, not only what a module imports."""
    maps = Path(f"/proc/{server.process.pid}/maps").read_text()
    assert "tokenizers" in maps and "jaxlib" not in maps and "llvmlite" not in maps
    assert "jaxlib" in Path(f"/proc/{server.engine_pid()}/maps").read_text()


@pytest.mark.parametrize("stream", [True, False])
def test_i22_who_leaves_frees_everything(server: HttpServer, stream: bool) -> None:
    aborted = 'vllm:request_success_total{engine="0",finished_reason="abort"'
    assert server.idle()
    page = httpx2.get(f"{server.url}/metrics", timeout=HANG_S).text
    assert aborted in page
    name = "vllm:request_success_total"
    before = server.metric(name)
    body = {"prompt": ["a", "b", "c", "d"] * 16, "n": 8, "max_tokens": 60, "ignore_eos": True}
    _send_and_leave(server, body | {"stream": stream}, wait_for_answer=stream)
    assert server.idle()
    assert server.metric(name) - before == 64
    after = httpx2.get(f"{server.url}/metrics", timeout=HANG_S).text
    count = [
        float(line.rpartition(" ")[2])
        for text in (page, after)
        for line in text.splitlines()
        if line.startswith(aborted)
    ]
    assert count[1] - count[0] >= 20, count


def _send_and_leave(server: HttpServer, body: dict[str, Any], *, wait_for_answer: bool) -> None:
    host, port = server.url.removeprefix("http://").split(":")
    content = json.dumps(body).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(content)}\r\n"
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(head.encode() + b"Content-Type: application/json\r\n\r\n" + content)
        if wait_for_answer:
            assert b"200 OK" in connection.recv(1000)
        else:
            until(lambda: server.metric("jax_engine:num_requests_open"), "an open request")
            connection.setblocking(False)
            with pytest.raises(BlockingIOError):
                connection.recv(1000)


@pytest.mark.slow
def test_malformed_bodies_never_break_the_server(server: HttpServer) -> None:
    """Two hundred; whatever is refused is refused in the same shape."""
    rng = random.Random(0)
    seeds: list[tuple[str, dict[str, Any]]] = [
        ("/v1/completions", {"prompt": "x", "max_tokens": 2, "n": 1, "logprobs": 1, "stop": "a"}),
        ("/v1/chat/completions", {"messages": CHAT, "max_tokens": 2, "temperature": 0.5}),
        ("/v1/responses", {"input": "x", "max_output_tokens": 2, "stream": True}),
        ("/v1/messages", {"model": "tiny", "messages": CHAT, "max_tokens": 2}),
        ("/v1/embeddings", {"input": "x", "encoding_format": "float"}),
        ("/tokenize", {"prompt": "x"}),
        ("/detokenize", {"tokens": [1, 2]}),
    ]
    strange: list[Any] = [
        None, True, -1, 2**70, 1e308, "", "\ud800", "x" * 300, [], [[]], {}, {"a": {}}, [None],
        [1, "a"], [-5], ["a", None], [[1], "b"], float("nan"), float("inf"), [10**6], {"type": 5},
    ]  # fmt: skip
    fields = ["prompt", "messages", "n", "stop", "temperature", "stream", "logit_bias", "tools",
              "response_format", "structured_outputs", "input", "tokens", "seed", "best_of", "zzz",
              "stream_options", "logprobs", "max_tokens", "guided_json", "cache_salt", "priority",
              "chat_template_kwargs", "truncate_prompt_tokens", "allowed_token_ids",
              "prediction"]  # fmt: skip
    statuses = []
    with httpx2.Client(base_url=server.url, timeout=HANG_S) as http:
        for _ in range(200):
            path, body = rng.choice(seeds)
            body = body | {rng.choice([*fields, *body]): rng.choice(strange)}
            content = json.dumps(body).encode()
            if rng.random() < 0.3:
                at = rng.randrange(len(content))
                content = content[:at] + rng.choice([b"", b"\xff", b"{", b'"']) + content[at + 2 :]
            answer = http.post(path, content=content, headers={"Content-Type": "application/json"})
            statuses.append(answer.status_code)
            assert answer.status_code in (200, 400, 404), (content, answer.text)
            if answer.status_code != 200:
                keys = {"message", "type", *([] if path == "/v1/messages" else ["param", "code"])}
                assert answer.json()["error"].keys() == keys
    assert statuses.count(400) > 60 and statuses.count(200) > 5
    assert server.idle()
