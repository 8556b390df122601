"""`serve` up to its server: what becomes of each flag, and what is closed at the end."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from starlette.middleware.gzip import GZipMiddleware

from jax_engine import AsyncLLM, EngineConfig
from jax_engine.commands.serve_flags import ALWAYS_ON
from jax_engine.engine.requests.prompts import Prompt
from jax_engine.sampling_params import SamplingParams
from jax_engine.serving.api import app as app_module
from jax_engine.serving.api import server as server_module
from jax_engine.serving.api.service import ServerSettings, Service
from jax_engine.serving.request_log import MAX_SHOWN, RequestLog
from jax_engine.serving.tracing import Tracer
from jax_engine.tokenization.tokenizer import load_tokenizer
from tests.commands.conftest import Run
from tests.support.scripted_llm import ScriptedLLM


class Engine(ScriptedLLM):
    """What `serve` gets for an engine."""

    request_log: RequestLog | None = None
    max_logged_output: int | None = None
    tracer: Any = None
    step_timeout = 0.0
    settings: Any = None
    is_shut = False

    def shutdown(self) -> None:
        self.is_shut = True


class Spans:
    """What it gets for a tracer."""

    is_closed = False

    def __init__(self, endpoint: str, model: str) -> None:
        self.given = endpoint, model

    def close(self) -> None:
        self.is_closed = True


class Served:
    """What the server was given, and what its engine was when it ran."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.settings = ServerSettings(names=())
        self.tracer: Any = None
        self.options: dict[str, Any] = {}
        self.ends: Callable[[], int] = lambda: 0


@pytest.fixture
def served(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> Served:
    found = Served(Engine(load_tokenizer(checkpoint)))

    def build(args: Any, step_timeout: float) -> Engine:
        found.engine.step_timeout, found.engine.is_shut = step_timeout, False
        found.engine.settings = args
        return found.engine

    def make_app(service: Service) -> Service:
        found.settings = service.settings
        return service

    def run(app: Any, llm: Any, listening: Any, timeout: float, **options: Any) -> int:
        assert app.llm is llm is found.engine and not llm.is_shut
        found.tracer = llm.tracer
        asyncio.run(options.pop("prepare")())
        place = listening.getsockname()
        host, port = (place, None) if isinstance(place, str) else place
        found.options = {"host": host, "timeout": timeout} | options
        assert port != 0
        return found.ends()

    monkeypatch.setattr(AsyncLLM, "from_engine_args", build)
    monkeypatch.setattr(app_module, "make_app", make_app)
    monkeypatch.setattr(server_module, "run", run)
    monkeypatch.setattr(Tracer, "to_collector", Spans)
    for variable in ("JAX_ENGINE_API_KEY", "VLLM_API_KEY"):
        monkeypatch.delenv(variable, raising=False)
    return found


def test_without_flags_all_is_as_the_help_says(run: Run, served: Served) -> None:
    assert run("serve", "--port=0").status == 0
    assert served.settings == ServerSettings(names=("SmolLM2-135M-Instruct",))
    assert served.options == {
        "host": "127.0.0.1", "timeout": 30.0, "tls": None, "log_stats_interval": 10.0,
        "log_level": "info",
    }  # fmt: skip
    engine = served.engine
    assert (engine.step_timeout, engine.request_log, engine.tracer) == (300.0, None, None)
    assert engine.is_shut


@pytest.mark.parametrize(
    ("flags", "settings"),
    [
        (["my/model"], {"names": ("my/model",)}),
        (["--model=my/model"], {"names": ("my/model",)}),
        (["my/model", "--served-model-name", "a", "b"], {"names": ("a", "b")}),
        (["--chat-template={{ 1 }}"], {"chat_template": "{{ 1 }}"}),
        (["--trust-request-chat-template"], {"trust_request_chat_template": True}),
        (["--tool-call-parser=hermes"], {"tool_call_parser": "hermes"}),
        (["--reasoning-parser=qwen3"], {"reasoning_parser": "qwen3"}),
        (["--api-key=a", "--api-key", "b"], {"api_keys": ("a", "b")}),
        (["--allowed-origins", "https://a", "*"], {"allowed_origins": ("https://a", "*")}),
        (["--max-body-size=7"], {"max_body_bytes": 7}),
        (["--max-waiting=0"], {"max_waiting": 0}),
        (["--max-samples=1"], {"max_samples": 1}),
        (["--request-timeout=0.5"], {"request_timeout": 0.5}),
        (["--root-path=/a/b/"], {"root_path": "/a/b"}),
        (["--root-path=/"], {"root_path": ""}),
        (["--enable-request-id-headers"], {"request_id_headers": True}),
        (["--enable-force-include-usage"], {"force_include_usage": True}),
        (["--return-tokens-as-token-ids"], {"return_tokens_as_token_ids": True}),
        (["--sse-keep-alive-interval=15"], {"sse_keep_alive_s": 15.0}),
        (["--enable-per-request-metrics"], {"per_request_metrics": True}),
        ([*ALWAYS_ON], {}),
        (["--api-key", "a", "b", "--port=0"], {"api_keys": ("a", "b")}),
        (['--allowed-origins=["https://a", "*"]'], {"allowed_origins": ("https://a", "*")}),
        (["--allowed-methods", "GET", "PUT"], {"allowed_methods": ("GET", "PUT")}),
        (['--allowed-headers=["X-Y"]'], {"allowed_headers": ("X-Y",)}),
        (["--allow-credentials"], {"allow_credentials": True}),
        (["--disable-fastapi-docs"], {"has_docs": False}),
        (["--max-body-size=4k"], {"max_body_bytes": 4000}),
        (["--max-num-queued-reqs=3"], {"max_waiting": 3}),
        (['--default-chat-template-kwargs={"a": 1}'], {"chat_template_kwargs": {"a": 1}}),
        (["--default-chat-template-kwargs.a.b=1"], {"chat_template_kwargs": {"a": {"b": 1}}}),
        (["--chat-template-content-format=string"], {"content_format": "string"}),
        (['--reasoning-effort-map={"high": "max"}'], {"reasoning_efforts": {"high": "max"}}),
        (["--exclude-tools-when-tool-choice-none"], {"exclude_forbidden_tools": True}),
    ],
    ids=str,
)
def test_what_a_flag_is_for_requests(
    run: Run, served: Served, flags: list[str], settings: dict[str, Any]
) -> None:
    assert run("serve", "--port=0", *flags).status == 0
    expected: dict[str, Any] = {"names": ("SmolLM2-135M-Instruct",)} | settings
    assert served.settings == ServerSettings(**expected)


def test_a_key_may_be_a_variable(run: Run, served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours, vLLM's, or both."""
    for ours, theirs, flags, keys in (
        ("v", "", [], ("v",)), ("v", "w", ["--api-key=f"], ("f",)), ("", "", [], ()),
        ("", "w", [], ("w",)), ("v", "w", [], ("v", "w")),
    ):  # fmt: skip
        monkeypatch.setenv("JAX_ENGINE_API_KEY", ours)
        monkeypatch.setenv("VLLM_API_KEY", theirs)
        assert run("serve", "--port=0", *flags).status == 0
        assert served.settings.api_keys == keys


def test_a_path_is_listened_at(run: Run, served: Served, tmp_path: Path) -> None:
    path = tmp_path / "socket"
    assert run("serve", f"--uds={path}").status == 0
    assert served.options["host"] == str(path) and not path.exists()
    ended = run("serve", "--root-path=a")
    assert ended.status == 1 and "--root-path must begin with a slash, got 'a'" in ended.err


def test_what_is_logged_and_traced(
    run: Run, served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    flags = ["--enable-log-requests", "--max-log-len=4", "--disable-log-stats"]
    flags += ["--step-timeout=9", "--shutdown-timeout=2", "--served-model-name=tiny"]
    flags += ["--otlp-traces-endpoint=http://x/v1/traces", "--host=localhost"]
    flags += ["--uvicorn-log-level=warning", "--reasoning-parser=qwen3"]
    assert run("serve", "--port=0", *flags).status == 0
    assert served.options == {
        "host": "127.0.0.1", "timeout": 2.0, "tls": None, "log_stats_interval": None,
        "log_level": "warning",
    }  # fmt: skip
    assert served.tracer.given == ("http://x/v1/traces", "tiny") and served.tracer.is_closed
    assert served.engine.step_timeout == 9.0
    assert served.engine.request_log is not None
    with caplog.at_level(logging.INFO, "jax_engine"):
        served.engine.request_log("a", Prompt("abcdefgh", [1, 2]), SamplingParams())
    assert "prompt: 'abcd', prompt tokens: 2" in caplog.text
    assert served.engine.settings.create_engine_config() == EngineConfig()
    assert "no effect" not in caplog.text  # of what the server itself does
    assert run("serve", "--port=0", "--log-stats-interval=3").status == 0
    assert served.options["log_stats_interval"] == 3.0


@pytest.mark.parametrize(
    ("flags", "prompt", "output"),
    [
        ([], "", None),
        (["--enable-log-outputs"], "", MAX_SHOWN),
        (["--enable-log-outputs", "--max-log-len=0"], "", 0),
        (["--enable-log-outputs", "--max-log-len=4"], "prompt: 'abcd', ", 4),
    ],
)
def test_how_much_of_prompts_and_outputs_is_logged(
    run: Run,
    served: Served,
    caplog: pytest.LogCaptureFixture,
    flags: list[str],
    prompt: str,
    output: int | None,
) -> None:
    assert run("serve", "--port=0", "--enable-log-requests", *flags).status == 0
    assert served.engine.max_logged_output == output and served.engine.request_log is not None
    with caplog.at_level(logging.INFO, "jax_engine"):
        served.engine.request_log("a", Prompt("abcdefgh", [1, 2]), SamplingParams())
    assert f"Received request a: {prompt}prompt tokens" in caplog.text


def test_middleware_is_found_in_order(run: Run, served: Served) -> None:
    words = ["--middleware", f"{__name__}.own_answer", "--middleware=starlette.middleware.gzip"]
    assert run("serve", "--port=0", *words[:2], f"{words[2]}.GZipMiddleware").status == 0
    first, second = served.settings.middleware
    assert first.kwargs == {"dispatch": own_answer} and second.cls is GZipMiddleware


async def own_answer(request: Any, call_next: Any) -> Any:
    return await call_next(request)


@pytest.mark.parametrize("flags", [["--enforce-eager"], []])
def test_a_slow_way_of_stepping_is_said_to_be(
    run: Run, served: Served, caplog: pytest.LogCaptureFixture, flags: list[str]
) -> None:
    with caplog.at_level(logging.WARNING, "jax_engine"):
        assert run("serve", "--port=0", *flags).status == 0
    assert ("--enforce-eager is slow" in caplog.text) == bool(flags)


def test_the_log_says_how_calls_and_reasoning_are_read(
    run: Run,
    served: Served,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As the template tells, unless flags do."""
    caplog.set_level(logging.INFO, "jax_engine")
    template = "--chat-template={{ '<tool_call></think>' }}"
    for flags, calls, reasoning in (
        (["--chat-template={{ 1 }}"], "none", "none"),
        ([template], "hermes", "qwen3"),
        ([template, "--tool-call-parser=qwen3_coder"], "qwen3_coder", "qwen3"),
        ([template, "--tool-call-parser=none", "--reasoning-parser=glm45"], "none", "glm45"),
        ([template, "--reasoning-parser=none"], "hermes", "none"),
    ):
        caplog.clear()
        assert run("serve", "--port=0", *flags).status == 0
        assert f"tool calls are read as {calls}, reasoning as {reasoning}" in caplog.messages
    caplog.clear()
    monkeypatch.setattr(served.engine.config, "skip_tokenizer_init", True)
    assert run("serve", "--port=0", template).status == 0
    assert "tool calls" not in caplog.text


@pytest.mark.parametrize(
    ("flag", "status", "problem"),
    [
        ("--default-chat-template-kwargs=[1]", 2, "must be an object in JSON, got '[1]'"),
        ("--default-chat-template-kwargs=x", 2, "must be an object in JSON, got 'x'"),
        (
            '--default-chat-template-kwargs={"tools": 1}',
            1,
            "options of the template only, got tools",
        ),
        (
            '--reasoning-effort-map={"high": 1}',
            1,
            "--reasoning-effort-map must hold names of efforts",
        ),
        ("--allowed-origins=[1]", 1, "--allowed-origins must be names, or a list of them in JSON"),
        ("--allowed-headers=[", 1, "--allowed-headers must be names, or a list of them in JSON"),
        ("--max-body-size=4x", 2, "must be an integer, got '4x'"),
        ("--max-log-len=1.5K", 2, "must be an integer, got '1.5K'"),
        ("--uvicorn-log-level=loud", 2, "invalid choice: 'loud'"),
        ("--ssl-ciphers=x", 1, "--ssl-certfile is missing"),
        ("--enable-ssl-refresh", 1, "--enable-ssl-refresh needs --ssl-certfile"),
        ("--enable-log-outputs", 1, "--enable-log-outputs needs --enable-log-requests"),
        ("--sse-keep-alive-interval=-1", 1, "--sse-keep-alive-interval must be at least 0"),
        ("--sse-keep-alive-interval=inf", 1, "--sse-keep-alive-interval must be at least 0"),
        ("--middleware=", 1, "--middleware must not be empty"),
        ("--middleware=Mine", 1, "--middleware must be MODULE.NAME, got 'Mine'"),
        ("--middleware=json.Mine", 1, "--middleware json.Mine: module json has no Mine"),
        ("--middleware=no_such.Mine", 1, "No module named 'no_such'"),
        ("--middleware=json.dumps", 1, "must be a class or an async function, got a function"),
        ("--max-num-queued-reqs=-1", 1, "--max-waiting must be at least 0"),
    ],
)
def test_a_wrong_flag_of_the_server_is_one_line(
    run: Run, flag: str, status: int, problem: str
) -> None:
    ended = run("serve", "--port=0", flag)
    assert ended.status == status and problem in ended.err and ended.err.count("\n") == 1


def test_whatever_ends_it_the_engine_is_shut_down(run: Run, served: Served) -> None:
    served.ends = lambda: 1
    assert run("serve", "--port=0").status == 1 and served.engine.is_shut

    def pressed() -> int:
        raise KeyboardInterrupt

    served.ends = pressed
    ended = run("serve", "--port=0", "--otlp-traces-endpoint=http://x")
    assert ended.status == 130 and served.engine.is_shut and served.tracer.is_closed
