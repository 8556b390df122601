"""`complete` and `chat`: an engine in this process, and a server that says what it is told to."""

import argparse
import json
import signal
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.client import HTTPConnection, HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from jax_engine import LLM, SamplingParams
from jax_engine.commands.answers import Server, TextDelta, event_data
from jax_engine.commands.chat import Conversation
from jax_engine.commands.local_model import LocalModel
from tests.commands.conftest import FLAGS, SETTINGS, Run


@pytest.fixture(scope="module")
def llm(checkpoint: Path) -> LLM:
    return LLM(str(checkpoint), **SETTINGS)


@pytest.mark.slow
def test_completions_are_those_of_llm(run: Run, checkpoint: Path, llm: LLM) -> None:
    params = SamplingParams(max_tokens=9, n=2, seed=3, temperature=0.7, top_k=20)
    sampling = ["--max-tokens=9", "--seed=3", "--temperature=0.7", "--top-k=20", "--n=2"]
    ended = run("complete", "--model", checkpoint, *FLAGS, *sampling, "Once", "The")
    expected = ""
    for output in llm.generate(["Once", "The"], params, use_tqdm=False):
        one, two = (sample.text for sample in output.outputs)
        expected += f"==> {output.prompt} <==\n--- 1\n{one}\n--- 2\n{two}\n"
    assert (ended.status, ended.out) == (0, expected)
    greedy = ["--temperature=0", "--max-tokens=5"]
    piped = run("complete", "--model", checkpoint, *FLAGS, *greedy, typed="Once\n")
    params = SamplingParams(max_tokens=5, temperature=0.0)
    (output,) = llm.generate("Once", params, use_tqdm=False)
    assert piped.out == f"{output.outputs[0].text}\n"


@pytest.mark.parametrize(
    ("command", "flag"),
    [
        ("complete", "--max-tokens=-1"),
        ("complete", "--top-p=2"),
        ("complete", "--n=0"),
        ("chat", "--temperature=-0.5"),
        ("chat", "--top-k=-2"),
    ],
)
def test_a_wrong_sampling_flag_is_told_before_a_model_is_loaded(
    run: Run, command: str, flag: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(*_: object) -> None:
        pytest.fail("the model was loaded")

    monkeypatch.setattr(LocalModel, "__init__", load)
    ended = run(command, flag, typed="Once\n")
    name = flag.removeprefix("--").partition("=")[0].replace("-", "_")
    assert (ended.status, ended.out) == (1, "")
    assert name in ended.err and len(ended.err.splitlines()) == 1


@pytest.mark.slow
def test_a_chat_goes_on(run: Run, checkpoint: Path, llm: LLM) -> None:
    """Each line is said in turn; what is too long or unknown is one line, and no end."""
    words = ["chat", "--model", checkpoint, *FLAGS, "--max-tokens=4", "--temperature=0"]
    typed = f"Hi\nAnd?\n/reset\n/system Be brief.\n\nHi\n/what\n{'x' * 80}\n/exit\nlost\n"
    ended = run(*words, typed=typed)
    params = SamplingParams(max_tokens=4, temperature=0.0)

    def answer(*messages: tuple[str, str]) -> str:
        said: Any = [{"role": role, "content": text} for role, text in messages]
        return llm.chat(said, params, use_tqdm=False)[0].outputs[0].text

    first = answer(("user", "Hi"))
    second = answer(("user", "Hi"), ("assistant", first), ("user", "And?"))
    third = answer(("system", "Be brief."), ("user", "Hi"))
    assert ended.out == f"{first}\n{second}\n{third}\n"
    unknown, long = ended.err.splitlines()[-2:]
    assert "/what is not a command" in unknown and "max_model_len" in long
    assert ended.status == 1
    quick = run(*words, "-q", "Hi")
    assert (quick.status, quick.out) == (0, f"{first}\n")


class Script:
    """A source that says what it is told to."""

    def __init__(self, *pieces: Any) -> None:
        self.pieces, self.asked = pieces, []

    def chat(self, messages: Any, fields: Any) -> Iterator[TextDelta]:
        self.asked.append(messages)
        for one in self.pieces:
            if isinstance(one, BaseException):
                raise one
            yield TextDelta(0, one)


def test_what_was_said_until_ctrl_c_is_kept() -> None:
    source = Script("Hel", KeyboardInterrupt())
    chat = Conversation(source, {}, "Be kind.")
    for text in ("one", "two"):
        with pytest.raises(KeyboardInterrupt):
            chat.send(text)
    roles = [(one["role"], one["content"]) for one in source.asked[1]]
    assert roles == [("system", "Be kind."), ("user", "one"), ("assistant", "Hel"), ("user", "two")]
    source.pieces = (KeyboardInterrupt(),)
    with pytest.raises(KeyboardInterrupt):
        chat.send("three")
    assert len(chat.turns) == 4  # without an answer nothing was said


def test_ctrl_c_ends_an_answer_and_not_the_chat(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Script("Hel", KeyboardInterrupt())
    monkeypatch.setattr("jax_engine.commands.chat.make_source", lambda args, template: source)
    ended = run("chat", typed="a\nb\n")
    assert ended.out == "Hel\nHel\n" and len(source.asked) == 2 and ended.status == 0
    assert run("chat", "-q", "a").status == 130
    monkeypatch.setattr("builtins.input", lambda prompt: (_ for _ in ()).throw(KeyboardInterrupt))
    assert run("chat").status == 0


def test_ctrl_c_ends_a_local_answer_and_waits_for_that(checkpoint: Path) -> None:
    model = LocalModel(argparse.Namespace(model=str(checkpoint), **SETTINGS))
    engine, run_step = model._engine, model._engine.run_step
    fields = {"max_tokens": 40, "ignore_eos": True, "temperature": 0.0}

    def pressed() -> None:
        """A step amid which the main thread, which waits for it, gets the signal."""
        engine.run_step = run_step  # type: ignore[method-assign]
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        run_step()

    pieces = model.complete("Once", fields)
    next(pieces)
    engine.run_step = pressed  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        list(pieces)
    assert not engine.has_unfinished_requests()
    assert engine.stats().num_used_blocks == 0
    assert len(list(model.complete("Once", fields))) > 5
    next(model.complete("Once", fields))  # a reader that leaves
    assert not engine.has_unfinished_requests()


def test_events_are_read_as_the_standard_says() -> None:
    lines = (
        b': hello\ndata: {"a":\ndata: 1}\r\n\r\nevent: x\ndata:  2\n\n\ndata: [DONE]\n\ndata: 3\n\n'
    )
    assert list(event_data(lines.splitlines(keepends=True))) == ['{"a":\n1}', " 2"]


class Handler(BaseHTTPRequestHandler):
    asked: ClassVar[list[tuple[str, Any, Any]]] = []
    events: ClassVar[list[Any]] = []

    def do_GET(self) -> None:
        self._send(200, json.dumps({"data": [{"id": "theirs"}]}).encode())

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.asked.append((self.path, body, self.headers["Authorization"]))
        if body.get("temperature") == 9:
            error = {"error": {"message": "temperature\nis 9"}}
            self._send(400, json.dumps(error).encode())
            return
        lines = [f"data: {json.dumps(one)}\n\n" for one in self.events]
        self._send(200, "".join([*lines, "data: [DONE]\n\n"]).encode())

    def _send(self, status: int, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        with suppress(BrokenPipeError):  # who asked has left
            self.wfile.write(content)

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def url() -> Iterator[str]:
    Handler.asked, Handler.events = [], []
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def test_a_server_answers(run: Run, url: str) -> None:
    Handler.events = (
        [{"choices": [{"index": 0, "delta": {"role": "assistant"}}]}]
        + [{"choices": [{"index": 0, "delta": {"content": one}}]} for one in ("Hé", "llo")]
        + [{"choices": [], "usage": {}}]
    )
    ended = run("chat", "--url", url, "-q", "Hi", "--api-key", "k", "--stop", "x", "--seed", "2")
    assert (ended.status, ended.out) == (0, "Héllo\n")
    path, body, key = Handler.asked[0]
    assert (path, key) == ("/v1/chat/completions", "Bearer k")
    assert body == {
        "model": "theirs", "stream": True, "messages": [{"role": "user", "content": "Hi"}],
        "stop": ["x"], "seed": 2,
    }  # fmt: skip
    Handler.events = [{"choices": [{"index": 0, "text": "abc"}]}]
    ended = run("complete", "--url", f"{url}/v1/", "--model-name", "mine", "Hi")
    assert ended.out == "abc\n" and Handler.asked[1][1]["model"] == "mine"


def test_a_server_s_key_may_be_a_variable(
    run: Run, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server's own, vLLM's, or none; what is given counts more."""
    Handler.events = [{"choices": [{"index": 0, "text": "abc"}]}]
    ask = ["complete", "--url", url, "--model-name", "mine", "Hi"]
    for ours, theirs, given, key in (
        ("a", "b", ["--api-key=c"], "Bearer c"), ("a", "b", [], "Bearer a"),
        ("", "b", [], "Bearer b"), ("", "", [], None),
    ):  # fmt: skip
        monkeypatch.setenv("JAX_ENGINE_API_KEY", ours)
        monkeypatch.setenv("VLLM_API_KEY", theirs)
        assert run(*ask, *given).status == 0 and Handler.asked[-1][2] == key


def test_ctrl_c_ends_a_server_s_answer_wherever_it_is(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it is waited for, and in the middle of it; the next one can be asked for."""
    Handler.events = [{"choices": [{"index": 0, "text": one}]} for one in "abc"]
    server = Server(url, "mine", None)

    def pressed(*_: Any) -> None:
        raise KeyboardInterrupt

    for owner, place in (
        (HTTPConnection, "connect"), (HTTPConnection, "getresponse"), (HTTPResponse, "readline"),
    ):  # fmt: skip
        pieces = server.complete("Hi", {})
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            if place == "readline":
                assert next(pieces) == TextDelta(0, "a")
            patch.setattr(owner, place, pressed)
            next(pieces)
    assert "".join(one.text for one in server.complete("Hi", {})) == "abc"


def test_errors_of_a_server_are_one_line(run: Run, url: str) -> None:
    for words, problem in (
        (["--url", url, "--temperature", "9"], "status 400: temperature is 9"),
        (["--url", "http://127.0.0.1:1"], "cannot be asked"),
        (["--url", "127.0.0.1:8000"], "--url must be like"),
        (["--url", "http://a:99999"], "--url"),
        (["--api-key", "k"], "--api-key needs --url"),
    ):
        ended = run("complete", *words, "Hi")
        assert ended.status == 1 and problem in ended.err and ended.err.count("\n") == 1
    Handler.events = [{"choices": [{"delta": {"content": "a"}}]}, {"error": {"message": "dead"}}]
    ended = run("chat", "--url", url, "-q", "Hi")
    assert ended.status == 1 and ended.out == "a" and "dead" in ended.err
    assert "there is no prompt" in run("complete", "--url", url).err
