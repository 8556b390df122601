"""What vLLM's first slides show runs as printed, but for the name of the package."""

import asyncio
import json
import re
import shlex
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from jax_engine import LLM, AsyncEngineArgs, AsyncLLMEngine, EngineArgs, LLMEngine, SamplingParams
from tests.meta.trees import ROOT
from tests.support.http_server import HttpServer
from tests.support.patience import HANG_S

PROMPTS = ["Hello, my name is", "The capital of France is"]


def by_llm(model: str) -> list[str]:
    llm = LLM(model=model)
    outputs = llm.generate(PROMPTS, SamplingParams(temperature=0.8, top_p=0.95, seed=1))
    return [output.outputs[0].text for output in outputs]


def by_steps(model: str) -> list[str]:
    engine = LLMEngine.from_engine_args(EngineArgs(model=model))
    waiting, texts = list(enumerate(PROMPTS)), {}
    while waiting or engine.has_unfinished_requests():
        if waiting:
            request_id, prompt = waiting.pop(0)
            sampling_params = SamplingParams(temperature=0.8, top_p=0.95, seed=1)
            engine.add_request(str(request_id), prompt, sampling_params)
        for request_output in engine.step():
            if request_output.finished:
                texts[request_output.request_id] = request_output.outputs[0].text
    return [text for _, text in sorted(texts.items())]


async def as_a_stream(model: str) -> list[str]:
    engine = AsyncLLMEngine.from_engine_args(AsyncEngineArgs(model=model))
    texts = []
    for request_id, prompt in enumerate(PROMPTS):
        sampling_params = SamplingParams(temperature=0.8, top_p=0.95, seed=1)
        final_output = None
        async for request_output in engine.generate(prompt, sampling_params, str(request_id)):
            final_output = request_output
        assert final_output is not None and final_output.finished
        texts.append(final_output.outputs[0].text)
    engine.shutdown()
    return texts


@pytest.mark.slow
def test_three_ways_to_ask_an_engine(checkpoint: Path) -> None:
    model = str(checkpoint)
    texts = by_llm(model)
    assert len(texts) == 2 and all(texts)
    assert by_steps(model) == texts
    assert asyncio.run(as_a_stream(model)) == texts


def commands() -> tuple[list[str], str]:
    """The first two of `docs/serving.md`: a server on port 8000, and `curl`."""
    page = (ROOT / "docs" / "serving.md").read_text("utf-8")
    (serve, *_) = re.findall(r"^jax-engine serve .*$", page, re.MULTILINE)
    (curl,) = re.findall(r"^curl .*?[^\\]\n", page, re.MULTILINE | re.DOTALL)
    return shlex.split(serve, comments=True), curl


@pytest.mark.slow
def test_the_commands_of_the_docs(smollm2_path: Path) -> None:
    """The commands run as printed, port and model included."""
    (program, *arguments), curl = commands()
    assert program == "jax-engine" and "http://localhost:8000/v1/completions" in curl
    with socket.socket() as probe:
        if probe.connect_ex(("127.0.0.1", 8000)) == 0:
            pytest.skip("another program listens at port 8000")
    server = HttpServer.started([sys.executable, "-m", "jax_engine", *arguments])
    assert server.url.endswith(":8000")
    done = subprocess.run(["bash", "-c", curl], capture_output=True, text=True, timeout=HANG_S)
    answer = json.loads(done.stdout)
    assert answer["choices"][0]["text"].strip() and answer["usage"]["completion_tokens"] == 7
    assert server.stop() == 0
