"""Parsers of plugins: loading them, reading turns by them at any cut, and what they do wrong."""

import argparse
import json
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_engine.commands.parser_plugins import load_plugin, load_plugins, use_plugin_markers
from jax_engine.compat import vllm
from jax_engine.errors import ConfigError
from jax_engine.serving.api.turn_parsing import TurnFormat, TurnPlan, choice_of, plan_of
from jax_engine.serving.parsers.parser_base import ParserFailedError, TurnDelta
from jax_engine.serving.parsers.plugin_classes import (
    BaseThinkingReasoningParser,
    ChatCompletionRequest,
    DeltaMessage,
    ReasoningParserManager,
    ToolParserManager,
)
from jax_engine.serving.parsers.plugin_readers import PluginTurn, _Asked
from jax_engine.tokenization.tokenizer import Tokenizer, load_tokenizer
from tests.serving.tools import plugin
from tests.serving.tools.test_readers import Found, together
from tests.support.scripted_app import scripted_app

TOOL: dict[str, Any] = {"type": "function", "function": {"name": "f", "parameters": {}}}
SAY = [{"role": "user", "content": "x"}]
PARTS = ['<<f {"a": 1}>>', "<<f {}>>", "a", " ", "é", "/", "<b", ">>"]
texts = st.lists(st.sampled_from(PARTS), max_size=7).map("".join)


@pytest.fixture(scope="module")
def tokenizer(checkpoint: Path) -> Tokenizer:
    return load_tokenizer(checkpoint)


@pytest.fixture(autouse=True, scope="module")
def _plugins(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Both plugins are loaded; none is there afterwards."""
    folder = tmp_path_factory.mktemp("plugins")
    (folder / "tools.py").write_text(plugin.TOOLS)
    (folder / "reasoning.py").write_text(plugin.REASONING)
    flag = "--tool-parser-plugin"
    tools = load_plugin(flag, str(folder / "tools.py"), ToolParserManager)
    reasoning = load_plugin(flag, str(folder / "reasoning.py"), ReasoningParserManager)
    assert (tools, reasoning) == (["angles", "also_angles"], ["slashes", "tokens", "older"])
    yield
    ToolParserManager.parsers.clear()
    ReasoningParserManager.parsers.clear()
    vllm.uninstall()


def plan(
    tokenizer: Tokenizer, calls: str, reasoning: str, prompt: str = "", **options: Any
) -> TurnPlan:
    form = TurnFormat.of(tokenizer, None, calls, reasoning)
    choice = choice_of([TOOL], None, options.pop("several", True))
    ids = tokenizer.encode(prompt, add_special_tokens=False)
    return plan_of(form, tokenizer, choice, None, prompt, prompt_ids=ids, **options)


def read(found: TurnPlan, pieces: list[str]) -> Found:
    """What is said, of a turn that ends with the last piece or behind it."""
    turn, last = found.new_turn(), len(pieces) - 1
    said: list[TurnDelta] = [
        turn.take(piece, ended=i == last, token_ids=list(piece.encode()))
        for i, piece in enumerate(pieces)
    ]
    assert turn.calls_tools == any(one.calls for one in said)
    return together(said)


@pytest.mark.parametrize("calls", ["angles", "hermes", "none"])
@pytest.mark.parametrize("reasoning", ["slashes", "tokens", "older", "qwen3", "none"])
@given(text=texts, cuts=st.lists(st.integers(0, 60), max_size=6).map(sorted))
def test_a_turn_is_the_same_at_any_cut(
    tokenizer: Tokenizer, calls: str, reasoning: str, text: str, cuts: list[int]
) -> None:
    """Nothing is lost, beside parsers of plugins and of ours."""
    found = plan(tokenizer, calls, reasoning)
    ends = [*(cut for cut in cuts if cut < len(text)), len(text)]
    pieces = [text[a:b] for a, b in zip([0, *ends], ends, strict=False)]
    whole = read(found, [text])
    content, thoughts, called = whole
    assert read(found, pieces) == read(found, [*text, ""]) == whole
    assert calls != "angles" or all(name == "f" for name, _ in called)
    slash = "/" * (reasoning in ("slashes", "tokens", "older") and "/" in text)
    shown = "".join(f"<<{name} {arguments}>>" for name, arguments in called)
    assert sorted(thoughts + slash + content + shown) == sorted(text)


def test_reasoning_that_the_prompt_has_ended(tokenizer: Tokenizer) -> None:
    for prompt, wanted in [("", ("b", "a", [])), ("no thoughts", ("a/b", "", []))]:
        found = plan(tokenizer, "none", "slashes", prompt)
        assert read(found, ["a/b"]) == read(found, list("a/b")) == wanted


def test_a_base_class_for_two_tokens(tokenizer: Tokenizer) -> None:
    """A begin marker is left out; the last marker of a prompt counts; others are refused."""
    for prompt, text, wanted in [
        ("", "[a/b/c", ("b/c", "a", [])),
        ("", "[a", ("", "a", [])),
        ("[a/b", "c/d", ("c/d", "", [])),
        ("/[", "c/d", ("d", "c", [])),
    ]:
        found = plan(tokenizer, "none", "tokens", prompt)
        assert read(found, [text]) == read(found, list(text)) == wanted

    class Words(BaseThinkingReasoningParser):
        start_token, end_token = "<<", ">>"

    held = object.__new__(Words)
    pieces = ["<", "<a>", ">b", ">>"]
    texts = ["", *accumulate(pieces)]
    said = [
        held.extract_reasoning_streaming(a, b, c, [], [], [])
        for a, b, c in zip(texts, texts[1:], pieces, strict=False)
    ]
    assert [(one.reasoning, one.content) for one in said if one is not None] == [
        ("", None), ("a", None), ("", "b"), (None, ">>"),
    ]  # fmt: skip
    with pytest.raises(RuntimeError, match="'<<' and '>>' must be tokens of the model"):
        Words(tokenizer.hugging_face)


def test_special_tokens_that_a_parser_wants(tokenizer: Tokenizer) -> None:
    assert plan(tokenizer, "angles", "none").shows_special
    assert not plan(tokenizer, "none", "slashes").shows_special


def test_only_the_first_call(tokenizer: Tokenizer) -> None:
    found = plan(tokenizer, "angles", "none", several=False)
    assert read(found, ["<<f 1>><<f 2>>"]) == read(found, [*"<<f 1>><<f 2>>"])
    assert read(found, ["<<f 1>><<f 2>>"])[2] == [("f", "1")]


BASE = "from vllm.tool_parsers import ToolParserManager as M\n"
CLASS = "class C:\n    def extract_tool_calls(self): ...\n"
WHOLE = CLASS + "    def extract_tool_calls_streaming(self): ...\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1 / 0", r"'.*p\.py' raised ZeroDivisionError: division by zero"),
        ("import nothing_of_that_name", "raised ModuleNotFoundError: No module named 'nothing"),
        ("from vllm.worker import Worker", "raised ModuleNotFoundError: vllm.worker is not in"),
        ("def f(:", "raised SyntaxError"),
        ("raise SystemExit(3)", "raised SystemExit: 3"),
        ("x = 1", r"registers no parser: decorate a class with register_module\('NAME'\)"),
        (f"{BASE}@M.register_module('x')\n{CLASS}", "'C' has no method extract_tool_calls_strea"),
        (f"{BASE}@M.register_module('hermes')\n{WHOLE}", "'hermes' is one of jax-engine's own: re"),
        (f"{BASE}@M.register_module('none')\n{WHOLE}", "'none' is one of jax-engine's own"),
        (f"{BASE}@M.register_module('')\n{WHOLE}", "a name must be a text, got ''"),
        (f"{BASE}@M.register_module(['angles'], force=False)\n{WHOLE}", "'angles' is registered"),
    ],
)
def test_files_that_are_no_plugin(tmp_path: Path, text: str, words: str) -> None:
    before = dict(ToolParserManager.parsers)
    (tmp_path / "p.py").write_text(text)
    with pytest.raises(ConfigError, match=words):
        load_plugin("--tool-parser-plugin", str(tmp_path / "p.py"), ToolParserManager)
    assert ToolParserManager.parsers == before
    for path in ("nowhere.py", str(tmp_path)):
        with pytest.raises(ConfigError, match="--tool-parser-plugin must be a Python file, got"):
            load_plugin("--tool-parser-plugin", path, ToolParserManager)


def flags(**changes: Any) -> argparse.Namespace:
    given = dict.fromkeys(
        ["tool_call_parser", "tool_parser_plugin", "reasoning_parser", "reasoning_parser_plugin"]
    )
    return argparse.Namespace(**given | {"reasoning_config": None} | changes)


def test_flags(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "p.py").write_text(f"{BASE}{WHOLE}M.register_module('later', module=C)")
    path = str(tmp_path / "p.py")
    load_plugins(flags(tool_call_parser="later", tool_parser_plugin=path))
    load_plugins(flags(tool_call_parser="none", reasoning_parser="qwen3"))
    assert not caplog.records
    load_plugins(flags(tool_parser_plugin=path))
    assert "later is not used: name it by --tool-call-parser" in caplog.text
    for name in ("tool_call_parser", "reasoning_parser"):
        flag = f"--{name.replace('_', '-')}"
        known = "angles" if name == "tool_call_parser" else "deepseek_r1"
        with pytest.raises(ConfigError, match=f"{flag} must be one of .*{known}.*none, got 'ha'"):
            load_plugins(flags(**{name: "ha"}))
    del ToolParserManager.parsers["later"]


def test_markers_that_the_engine_is_told_of() -> None:
    """An engine knows no plugin; what it is told of one counts as if it was given."""
    told = {"reasoning_start_str": "//", "reasoning_end_str": "/"}
    for name, config, wanted in [
        ("slashes", None, (None, told)),
        ("slashes", {"reasoning_end_str": "."}, (None, {"reasoning_end_str": "."})),
        ("older", None, (None, None)),
        ("qwen3", None, ("qwen3", None)),
    ]:
        args = flags(reasoning_parser=name, reasoning_config=config, reasoning_parser_plugin="x")
        use_plugin_markers(args)
        assert (args.reasoning_parser, args.reasoning_config) == wanted
        assert args.reasoning_parser_plugin is None


def test_what_a_parser_raises(tokenizer: Tokenizer) -> None:
    found = plan(tokenizer, "angles", "none")
    turn = found.new_turn()
    turn.take("a<<g", ended=False)
    with pytest.raises(ParserFailedError, match="the tool parser 'angles' raised LookupError: th"):
        turn.take(" {}>>", ended=False)
    with pytest.raises(ParserFailedError, match="LookupError"):
        read(found, ["<<g {}>>"])


@pytest.mark.parametrize("stream", [False, True])
def test_a_failed_parser_ends_its_request_alone(
    checkpoint: Path, stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    http, llm = scripted_app(checkpoint)({"tool_call_parser": "angles"})
    body = {"messages": SAY, "tools": [TOOL], "stream": stream}
    for text, fails in [("So <<g {}>>", True), ("So <<f {}>>", False)]:
        llm.text = text
        answer = http.post("/v1/chat/completions", json=body)
        assert ("parser_failed" in answer.text) == fails
        assert answer.status_code == (500 if fails and not stream else 200)
        assert ("LookupError: the server's log" in answer.text) == fails
        assert (not stream) or answer.text.endswith("data: [DONE]\n\n")
    assert llm.open == 0
    assert "tool_calls" in answer.text


@pytest.mark.parametrize(
    "said", [DeltaMessage.model_construct(content=5, tool_calls=None), "text", 7]
)
def test_what_is_no_message(
    tokenizer: Tokenizer, said: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    cls: Any = ToolParserManager.get("angles")
    monkeypatch.setattr(cls, "extract_tool_calls_streaming", lambda *_: said)
    with pytest.raises(ParserFailedError):
        plan(tokenizer, "angles", "none").new_turn().take("a", ended=False)


def test_pieces_of_a_call(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its name may come late and its numbers may be any; an id is made where there is none."""
    pieces: list[list[dict[str, Any]]] = [
        [{"index": 3, "function": {"arguments": '{"a"'}}],
        [{"index": 3, "function": {"name": "f"}}], [{"index": 3}],
        [{"index": 3, "function": {"arguments": ": 1}"}}],
        [{"index": 1, "id": "own", "function": {"name": "g", "arguments": "{}"}}], [],
    ]  # fmt: skip
    left = iter(pieces)
    cls: Any = ToolParserManager.get("angles")
    monkeypatch.setattr(
        cls, "extract_tool_calls_streaming", lambda *_: DeltaMessage(tool_calls=next(left))
    )
    turn = plan(tokenizer, "angles", "none").new_turn()
    said = [turn.take("a", ended=False) for _ in pieces]
    calls = [call for one in said for call in one.calls]
    assert [(one.index, one.name, json.dumps(one.arguments)) for one in calls] == [
        (0, "f", '"{\\"a\\""'), (0, None, '": 1}"'), (1, "g", '"{}"'),
    ]  # fmt: skip
    assert calls[0].id is not None and calls[0].id.startswith("call_") and calls[2].id == "own"


def test_what_a_parser_is_given_of_each_piece() -> None:
    """As in vLLM: texts and tokens before the piece, with it, and its own.

    A parser of calls that begins behind the reasoning sees only what came from there on.
    """
    given: list[tuple[Any, ...]] = []
    here: Any = SimpleNamespace(hugging_face=None)
    turn = PluginTurn(ChatCompletionRequest())
    turn.take([1, 2])
    asked = _Asked("parser", lambda tokenizer: None, here)
    assert not asked.has_begun
    for text, ids in (("ab", [3, 4]), ("", []), ("c", [5])):
        turn.take(ids)
        asked.delta(lambda *args: given.append(args), text, turn, "more")
        assert asked.has_begun
    assert given == [
        ("", "ab", "ab", [], [3, 4], [3, 4], "more"),
        ("ab", "ab", "", [3, 4], [3, 4], [], "more"),
        ("ab", "abc", "c", [3, 4], [3, 4, 5], [5], "more"),
    ]


def test_a_parser_that_begins_with_the_turn_sees_its_first_token() -> None:
    given: list[tuple[Any, ...]] = []
    here: Any = SimpleNamespace(hugging_face=None)
    turn = PluginTurn(ChatCompletionRequest())
    asked = _Asked("parser", lambda tokenizer: None, here)
    for text, ids in (("a", [7]), ("b", [8, 9])):
        turn.take(ids)
        asked.delta(lambda *args: given.append(args), text, turn)
    assert given == [("", "a", "a", [], [7], [7]), ("a", "ab", "b", [7], [7, 8, 9], [8, 9])]
