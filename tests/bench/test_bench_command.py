"""`jax-engine bench` as it is typed."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jax_engine.cli import main
from tests.support.byte_tokenizer import VOCAB, save_byte_tokenizer
from tests.support.http_server import HttpServer
from tests.support.patience import HANG_S
from tests.support.scripted_app import scripted_app, served
from tests.support.tiny_llama import tiny_llama

SHORT = ["--input-len=12", "--output-len=6"]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tiny_llama(tmp_path_factory.mktemp("models") / "bytes", vocab_size=VOCAB)[0]
    save_byte_tokenizer(path)
    return path


@pytest.fixture(scope="module")
def server(checkpoint: Path) -> Iterator[HttpServer]:
    found = HttpServer.of(checkpoint)
    yield found
    assert found.stop() == 0


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["openai", "openai-chat"])
def test_serve_counts_what_the_server_counts(
    backend: str, server: HttpServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ("vllm:prompt_tokens_total", "vllm:generation_tokens_total")
    before = [server.metric(name) for name in names]
    flags = [f"--backend={backend}", f"--base-url={server.url}", *SHORT, "--num-prompts=9"]
    flags += ["--save-detailed", f"--result-dir={tmp_path}", "--result-filename=r.json"]
    flags += ["--request-rate=100", "--max-concurrency=4", "--goodput", f"ttft:{1e3 * HANG_S}"]
    assert main(["bench", "serve", *flags]) == 0
    found = json.loads((tmp_path / "r.json").read_text())
    assert (found["completed"], found["failed"], found["num_prompts"]) == (9, 0, 9)
    assert found["output_lens"] == [6] * 9 and found["total_output_tokens"] == 54
    after = [server.metric(name) for name in names]
    warm = found["input_lens"][0], 6
    totals = found["total_input_tokens"], found["total_output_tokens"]
    assert [b - a for a, b in zip(before, after, strict=True)] == [
        total + one for total, one in zip(totals, warm, strict=True)
    ]
    assert found["request_goodput"] == found["request_throughput"] > 0
    assert 0 < found["mean_ttft_ms"] <= found["mean_e2el_ms"] <= 1e3 * found["duration"]
    assert len(found["itls"]) == 9 and found["mean_normalized_latency_ms"] > 0
    assert "Output token throughput (tok/s):" in capsys.readouterr().out


VARIABLES = ("JAX_ENGINE_API_KEY", "VLLM_API_KEY", "OPENAI_API_KEY")


@pytest.mark.parametrize(
    ("flags", "variables", "status"),
    [
        (["--api-key=k"], {}, 0),
        (["--api-key=k"], dict.fromkeys(VARIABLES, "wrong"), 0),
        *(([], {one: "k"}, 0) for one in VARIABLES),
        ([], dict(zip(VARIABLES, ("k", "wrong", "wrong"), strict=True)), 0),
        ([], dict(zip(VARIABLES, ("", "k", "wrong"), strict=True)), 0),
        (["--api-key=wrong"], dict.fromkeys(VARIABLES, "k"), 1),
        ([], {}, 1),
    ],
)
def test_a_key_is_a_flag_or_a_variable(
    checkpoint: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    flags: list[str],
    variables: dict[str, str],
    status: int,
) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    client, llm = scripted_app(checkpoint)({"api_keys": ("k",)})
    with served(client.app) as url:
        words = ["bench", "serve", f"--base-url={url}", *SHORT, "--num-prompts=2", *flags]
        assert main([*words, f"--tokenizer={checkpoint}"]) == status
    assert len(llm.asked) == (0 if status else 3)
    if status:
        assert "401" in capsys.readouterr().err


@pytest.mark.slow
def test_a_server_that_refuses_is_one_line(
    server: HttpServer, capsys: pytest.CaptureFixture[str]
) -> None:
    for flags, said in (
        ([f"--base-url={server.url}", "--input-len=200"], "first request failed: HTTP 400"),
        ([f"--base-url={server.url}", *SHORT, "--endpoint=/v1"], "first request failed: HTTP 404"),
        (["--port=1"], "http://127.0.0.1:1/v1/models does not say which model"),
        (["--base-url=ftp://x"], "--base-url must begin with http"),
        (["--model=m", "--tokenizer=/nowhere/x"], "no tokenizer of '/nowhere/x'"),
        (["--goodput", "x:1"], "'x:1' is not NAME:MILLISECONDS"),
    ):
        assert main(["bench", "serve", *flags]) == 1
        error = capsys.readouterr().err
        assert error.startswith("jax-engine bench serve: error: ") and error.count("\n") == 1
        assert said in error


@pytest.mark.slow
def test_throughput_and_latency(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = [f"--model={checkpoint}", f"--output-json={tmp_path / 'r.json'}", *SHORT]
    assert main(["bench", "throughput", *flags, "--num-prompts=5", "--n=2"]) == 0
    found = json.loads((tmp_path / "r.json").read_text())
    assert (found["num_requests"], found["total_num_output_tokens"]) == (5, 60)
    rates = found["tokens_per_second"] * found["elapsed_time"]
    assert rates == pytest.approx(found["total_num_tokens"])
    assert capsys.readouterr().out.startswith("Throughput: ")

    passes = ["--batch-size=2", "--num-iters=3", "--num-iters-warmup=1"]
    assert main(["bench", "latency", *flags, *passes]) == 0
    found = json.loads((tmp_path / "r.json").read_text())
    assert len(found["latencies"]) == 3 and min(found["latencies"]) > 0
    assert found["percentiles"]["50"] == sorted(found["latencies"])[1]
    assert main(["bench", "latency", "--num-iters=0"]) == 1
    assert "--num-iters must be at least 1, got 0" in capsys.readouterr().err
    assert main(["bench", "throughput", "--output-json=/nowhere/x"]) == 1
    assert "--output-json: there is no folder" in capsys.readouterr().err


def test_other_commands_do_not_pay_for_it() -> None:
    code = "import sys; from jax_engine.cli import make_parser; make_parser();"
    code += "print({'jax', 'aiohttp'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
