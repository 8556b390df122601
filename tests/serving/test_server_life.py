"""How a server's process begins and ends."""

import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.support.http_server import HttpServer
from tests.support.patience import HANG_S, until

TLS = Path(__file__).parent / "tls"  # signed by itself, for localhost, of no use elsewhere
LONG = {"prompt": ["a"] * 64, "n": 8, "max_tokens": 60, "ignore_eos": True}


@pytest.fixture(scope="module")
def servers(checkpoint: Path) -> Iterator[list[HttpServer]]:
    """Both start at once. The first answers as long as it is asked when its engine has ended."""
    talks = f"server.LAST_WORDS_S = {HANG_S}"
    flag = f"--shutdown-timeout={HANG_S}"
    found = [HttpServer.of(checkpoint, flag, first=first) for first in (talks, "")]
    yield found
    for one in found:
        one.process.kill()


@pytest.mark.slow
def test_what_cannot_start_says_why_in_one_line(checkpoint: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        bad: list[tuple[list[str], str]] = [
            ([str(checkpoint), f"--port={port}"], f"port {port} of 127.0.0.1 cannot be had"),
            ([str(checkpoint / "nowhere")], "no such file"),
            ([str(checkpoint), "--port=70000"], "--port must be in"),
            ([str(checkpoint), "--prot=1"], "did you mean --port"),
            ([str(checkpoint), "--block-size=0"], "block_size must be in"),
            ([str(checkpoint), "--max-model-len=x"], "max_model_len must be an integer"),
            ([str(checkpoint), "--max-samples=0"], "--max-samples must be at least 1"),
            ([str(checkpoint), "--ssl-keyfile=x"], "--ssl-certfile is missing"),
            ([str(checkpoint), "--ssl-certfile=/no/such.pem"], "certificate cannot be read"),
            ([str(checkpoint), "--host=nowhere.invalid"], "nowhere.invalid"),
        ]
        for flags, why in bad:
            command = [sys.executable, "-m", "jax_engine", "serve", "--port=0", *flags]
            done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S)
            assert done.returncode != 0 and why in done.stderr, done.stderr
            assert done.stderr.count("\n") == 1 and "Traceback" not in done.stderr, done.stderr


@pytest.mark.slow
def test_when_the_engine_is_killed_all_is_said(servers: list[HttpServer]) -> None:
    server = servers[0]
    url = server.url
    with httpx2.Client(base_url=url, timeout=HANG_S) as http:
        with http.stream("POST", "/v1/completions", json=LONG | {"stream": True}) as stream:
            lines = stream.iter_lines()
            assert next(lines).startswith("data: {")
            os.kill(server.engine_pid(), signal.SIGKILL)
            rest = [line for line in lines if line]
        assert '"engine_dead"' in rest[-2] and rest[-1] == "data: [DONE]"
        health = http.get("/health")
        assert (health.status_code, health.json()["error"]["code"]) == (503, "engine_dead")
        answer = http.post("/v1/completions", json={"prompt": "x"})
        assert (answer.status_code, answer.json()["error"]["type"]) == (500, "server_error")
    server.process.kill()


@pytest.mark.slow
def test_a_line_as_vllm_s_users_write_it(checkpoint: Path, tmp_path: Path) -> None:
    """Each flag is seen in what the server does, and none is warned of that does something."""
    template = tmp_path / "chat.jinja"
    template.write_text("{{ style }}: {{ messages[-1].content }}")
    path = str(tmp_path / "socket")
    server = HttpServer.of(
        checkpoint, "-tp", "1", "-O3", "-cc.cudagraph_mode=PIECEWISE", "--max_model_len", "0.05k",
        "--uds", path, "--root-path", "/llm", "--api-key", "a", "b", "--enable-request-id-headers",
        "--enable-prompt-tokens-details", f"--chat-template={template}", "--reasoning-parser=qwen3",
        "--default-chat-template-kwargs.style=brief", "--uvicorn-log-level=warning",
        "--disable-uvicorn-access-log", "--pooler-config.pooling_type=MEAN", "--served-model-name",
        "one", "two", "--enforce-eager", "--no-enforce-eager",
    )  # fmt: skip

    def has_begun() -> bool:
        assert server.process.poll() is None, server.lines
        return "is served at http+unix:" in "".join(server.lines)

    until(has_begun, "the start of a server")
    body = {"model": "two", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}
    with httpx2.Client(transport=httpx2.HTTPTransport(uds=path), timeout=HANG_S) as http:
        for key in ("a", "b"):
            headers = {"Authorization": f"Bearer {key}", "X-Request-Id": f"mine-{key}"}
            answer = http.post("http://x/llm/v1/chat/completions", json=body, headers=headers)
            assert answer.status_code == 200, answer.text
            assert answer.headers["X-Request-Id"] == f"mine-{key}"
            usage = answer.json()["usage"]
            assert usage["prompt_tokens"] == len("brief: hi")
            assert usage["prompt_tokens_details"]["cached_tokens"] == (0 if key == "a" else 8)
        card = http.get("http://x/v1/models", headers=headers).json()["data"][0]
        assert (card["id"], card["max_model_len"]) == ("one", 50)
        vectors = http.post("http://x/v1/embeddings", json={"input": "x"}, headers=headers)
        assert vectors.status_code == 200, vectors.text
        assert http.get("http://x/v1/models").status_code == 401
    assert server.stop() == 0
    log = "".join(server.lines)
    assert "no effect" not in log and "Started server process" not in log, log


@pytest.mark.slow
def test_https_asks_for_a_certificate_of_the_client_if_told_to(checkpoint: Path) -> None:
    own, key = str(TLS / "certificate.pem"), str(TLS / "key.pem")
    server = HttpServer.of(
        checkpoint, f"--ssl-certfile={own}", f"--ssl-keyfile={key}", f"--ssl-ca-certs={own}",
        "--ssl-cert-reqs=2",
    )  # fmt: skip
    trusts = ssl.create_default_context(cafile=own)
    with pytest.raises(httpx2.HTTPError):
        httpx2.get(f"{server.url}/health", verify=trusts, timeout=HANG_S)
    trusts.load_cert_chain(own, key)
    assert server.url.startswith("https://")
    answer = httpx2.get(f"{server.url}/health", verify=trusts, timeout=HANG_S)
    assert answer.json() == {"status": "ok"}
    assert server.stop() == 0


@pytest.mark.slow
def test_sigterm_lets_open_requests_finish(servers: list[HttpServer]) -> None:
    """`test_server_ends.py` has other ends, in this process."""
    server, found = servers[1], list[Any]()
    with httpx2.Client(base_url=server.url, timeout=HANG_S) as http:
        body = {"prompt": ["a"] * 16, "n": 8, "max_tokens": 60, "ignore_eos": True, "stream": True}
        with http.stream("POST", "/v1/completions", json=body) as stream:
            lines = stream.iter_lines()
            found.append(next(lines))
            engine = server.engine_pid()
            server.process.terminate()
            found += [line for line in lines if line]
    assert found[-1] == "data: [DONE]" and not any('"error"' in one for one in found)
    assert sum('"finish_reason":"length"' in one for one in found) == 16 * 8
    assert server.process.wait(HANG_S) == 0
    assert not Path(f"/proc/{engine}").exists()


@pytest.mark.slow
def test_a_server_whose_log_nobody_reads_goes_on_and_ends(checkpoint: Path) -> None:
    """A pipe without a reader: each line that is logged fails."""
    reader, writer = os.pipe()
    with socket.create_server(("127.0.0.1", 0)) as one:
        port = one.getsockname()[1]
    command = [sys.executable, "-m", "jax_engine", "serve", str(checkpoint), f"--port={port}"]
    with subprocess.Popen([*command, "--max-model-len=64"], stderr=writer) as process:
        os.close(writer)
        os.close(reader)
        with httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=HANG_S) as http:
            while True:
                try:
                    answer = http.post("/v1/completions", json={"prompt": "x"})
                    break
                except httpx2.ConnectError:
                    time.sleep(0.1)
            assert answer.status_code == 200
            process.terminate()
            assert process.wait(HANG_S) == 0
