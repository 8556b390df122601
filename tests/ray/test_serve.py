"""An application of Ray Serve, with real processes: the server's answers, and replicas that end."""

import http.client
import json
import os
import re
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from jax_engine import LLM, SamplingParams
from jax_engine.ray import LLMConfig, build_openai_app
from jax_engine.ray.openai_app import POLICY
from tests.processes.test_ray_actors import below
from tests.ray.conftest import ENGINE, alive
from tests.support.patience import HANG_S, join, until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*fork:RuntimeWarning", "ignore::DeprecationWarning"),
]
MODEL = "tiny"
LONG = "the beginning that all of these prompts share, which is long enough for some blocks: "


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@pytest.fixture(scope="module")
def port(cluster: Any, tiny: str) -> Iterator[int]:
    """The port of an application with two replicas."""
    from ray import serve

    found = free_port()
    serve.start(http_options={"host": "127.0.0.1", "port": found})
    config = LLMConfig(
        model_loading_config={"model_id": MODEL, "model_source": tiny},
        engine_kwargs=ENGINE,
        deployment_config={"num_replicas": 2, "health_check_period_s": 1.0},
    )
    serve.run(build_openai_app({"llm_configs": [config]}))
    yield found
    own = engines()
    serve.shutdown()
    until(lambda: not alive(own), "the end of the engines")


def request(port: int, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
    """The status and the body of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=HANG_S)
    content = None if body is None else json.dumps(body)
    connection.request(method, path, content, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    found = answer.status, answer.read()
    connection.close()
    return found


def complete(port: int, prompt: str, **changes: Any) -> Any:
    body = {"model": MODEL, "prompt": prompt, "max_tokens": 8, "temperature": 0.0} | changes
    status, answer = request(port, "POST", "/v1/completions", body)
    assert status == 200, answer
    return json.loads(answer)


def replicas(application: str = "default") -> list[int]:
    """The processes of the deployment with the engines."""
    found = []
    for pid in alive(below(os.getpid())):
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            name = Path(f"/proc/{pid}/cmdline").read_bytes()
            if name.startswith(f"ray::ServeReplica:{application}:LLMServer".encode()):
                found.append(pid)
    return found


def engines() -> list[int]:
    """The processes of the engines, each below a replica."""
    return [child for pid in replicas() for child in alive(below(pid))]


def events(answer: bytes) -> list[Any]:
    lines = [line for line in answer.decode().split("\n\n") if line]
    assert lines.pop() == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines]


def test_answers_are_those_of_generate(port: int, tiny: str) -> None:
    """Whole and streamed, and errors, as the server has them."""
    prompts = ["abc", "hello there", LONG]
    params = SamplingParams(temperature=0.0, max_tokens=8)
    for prompt, wanted in zip(prompts, LLM(tiny, **ENGINE).generate(prompts, params), strict=True):
        text = wanted.outputs[0].text
        assert complete(port, prompt)["choices"][0]["text"] == text
        body = {"prompt": prompt, "max_tokens": 8, "temperature": 0.0, "stream": True}
        status, answer = request(port, "POST", "/v1/completions", body)
        assert status == 200
        assert "".join(one["choices"][0]["text"] for one in events(answer)) == text
    status, answer = request(port, "POST", "/v1/completions", {"prompt": "x", "temperature": -1})
    assert (status, json.loads(answer)["error"]["param"]) == (400, "temperature")
    assert request(port, "GET", "/health")[0] == 200
    assert json.loads(request(port, "GET", "/v1/models")[1])["data"][0]["id"] == MODEL
    assert request(port, "GET", "/none")[0] == 404


def test_prompts_with_one_beginning_meet_on_one_replica(port: int) -> None:
    """By chance, eight would in one of 128 runs."""
    cached = []
    for number in range(8):
        usage = complete(port, f"{LONG}{LONG}{number}")["usage"]
        cached.append(usage["prompt_tokens_details"]["cached_tokens"])
    assert all(count >= len(LONG) for count in cached[1:]), cached


def test_a_client_that_goes_ends_its_request(port: int) -> None:
    """The metrics are asked for with the same prompt, so they are of the same replica."""
    prompt = {"prompt": f"somebody who goes: {LONG}"}
    aborted = re.compile(rb'vllm:request_success_total\{[^}]*finished_reason="abort"[^}]*\} (\S+)')

    def count() -> float:
        status, page = request(port, "GET", "/metrics", prompt)
        assert status == 200
        return sum(map(float, aborted.findall(page)))

    before = count()
    body = {**prompt, "max_tokens": 128, "ignore_eos": True, "stream": True, "n": 8}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=HANG_S)
    headers = {"Content-Type": "application/json"}
    connection.request("POST", "/v1/completions", json.dumps(body), headers)
    answer = connection.getresponse()
    assert answer.read(1)
    answer.close()
    connection.close()
    until(lambda: count() > before, "the end of the request")


def test_an_engine_or_a_replica_that_is_killed_is_replaced(port: int) -> None:
    """Meanwhile the other one answers."""
    wanted = complete(port, "abc")["choices"]

    def answers(what: str) -> None:
        def again() -> bool:
            body = {"prompt": "abc", "max_tokens": 8, "temperature": 0.0}
            status, answer = request(port, "POST", "/v1/completions", body)
            assert status in (200, 500, 503), answer
            return status == 200 and json.loads(answer)["choices"] == wanted

        until(again, f"an answer behind the end of {what}")

    for what in ("an engine", "a replica"):
        until(lambda: len(replicas()) == 2 and len(engines()) == 2, "two replicas")
        first = replicas()[0]
        own = alive(below(first))
        os.kill(own[0] if what == "an engine" else first, signal.SIGKILL)
        answers(what)
        until(lambda gone=[first, *own]: not alive(gone), f"the end behind that of {what}")
    until(lambda: len(replicas()) == 2, "two replicas")
    answers("both")


def test_replicas_come_with_full_caches_and_go_when_they_are_empty(port: int, tiny: str) -> None:
    """A second application, behind a prefix of its own. Its queue is never long."""
    from ray import serve

    policy = {"policy_function": POLICY, "policy_kwargs": {"target_kv_cache_usage": 0.02}}
    scaling = {
        "min_replicas": 1, "max_replicas": 2, "target_ongoing_requests": 1000, "policy": policy,
        "upscale_delay_s": 0, "downscale_delay_s": 0, "look_back_period_s": 1,
        "metrics_interval_s": 0.2,
    }  # fmt: skip
    config = LLMConfig(
        model_loading_config={"model_id": MODEL, "model_source": tiny},
        engine_kwargs=ENGINE,
        deployment_config={"autoscaling_config": scaling, "graceful_shutdown_wait_loop_s": 0.1},
    )
    app = build_openai_app({"llm_configs": [config]})
    serve.run(app, name="scaled", route_prefix="/scaled")
    stop = threading.Event()

    def load() -> None:
        while not stop.is_set():
            body = {"prompt": LONG, "max_tokens": 128, "ignore_eos": True, "n": 4}
            assert request(port, "POST", "/scaled/v1/completions", body)[0] == 200

    worker = threading.Thread(target=load)
    worker.start()
    try:
        assert len(replicas("scaled")) == 1
        until(lambda: len(replicas("scaled")) == 2, "a second replica")
    finally:
        stop.set()
        join(worker)
    until(lambda: len(replicas("scaled")) == 1, "one replica again")
    serve.delete("scaled")
    until(lambda: not replicas("scaled"), "none")
