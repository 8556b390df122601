"""Tools and reasoning over HTTP: fields, answers and streams, read by OpenAI's own client."""

import argparse
import json
from pathlib import Path
from typing import Any, Literal

import openai
import pytest
from pydantic import BaseModel

from jax_engine.commands import serve
from jax_engine.serving.api.service import ServerSettings, Service
from jax_engine.serving.api.turn_parsing import TurnFormat
from jax_engine.serving.parsers.reasoning_styles import REASONING
from jax_engine.serving.parsers.tool_formats import TOOL_FORMATS
from jax_engine.tokenization.tokenizer import load_tokenizer
from tests.serving.tools.conftest import Make
from tests.support.scripted_llm import ScriptedLLM
from tests.tokenization.test_chat import make as make_tokenizer
from tests.tokenization.test_chat_templates import IN_MESSAGE, IS_DEFINED, NOT_NONE

HI: Any = [{"role": "user", "content": "hi"}]
CALLS = (
    '<tool_call>\n{"name": "weather", "arguments": {"city": "Rom", "unit": "C"}}\n</tool_call>\n'
    '<tool_call>\n{"name": "weather", "arguments": {"city": "Ö", "unit": "F"}}\n</tool_call>'
)


class weather(BaseModel):
    """The weather of a city."""

    city: str
    unit: Literal["C", "F"]


TOOL: Any = openai.pydantic_function_tool(weather)
LAX: Any = {
    "type": "function",
    "function": {k: v for k, v in TOOL["function"].items() if k != "strict"},
}


def test_calls_as_one_answer(make: Make) -> None:
    client, llm = make("<think>Two</think>\n\n" + CALLS)
    answer = client.chat.completions.create(model="tiny", messages=HI, tools=[LAX])
    (choice,) = answer.choices
    message = choice.message
    assert choice.finish_reason == "tool_calls" and message.content is None
    assert [json.loads(one.function.arguments)["city"] for one in message.tool_calls] == [
        "Rom",
        "Ö",
    ]
    first, second = message.tool_calls
    assert first.id.startswith("call_") and first.id != second.id and first.type == "function"
    assert message.reasoning == message.reasoning_content == "Two"
    assert answer.usage.completion_tokens_details.reasoning_tokens == len("Two")
    prompt, params = llm.asked[0]
    assert prompt["prompt"].endswith("<tool_call>1[assistant]")
    assert params.structured_outputs is None and params.skip_special_tokens


@pytest.mark.parametrize("tool", [TOOL, LAX], ids=["strict", "lax"])
def test_streams_of_calls(make: Make, tool: Any) -> None:
    """Streams are as OpenAI's: the id and the name come first, then arguments."""
    client, _ = make("So:\n" + CALLS)
    stream = client.chat.completions.create(
        model="tiny", messages=HI, tools=[tool], stream=True, stream_options={"include_usage": True}
    )
    *chunks, usage = list(stream)
    assert usage.usage.completion_tokens == len(("So:\n" + CALLS).encode())
    deltas = [one.choices[0].delta for one in chunks]
    assert "".join(one.content or "" for one in deltas) == "So:\n"
    calls = [one for delta in deltas for one in delta.tool_calls or ()]
    for index, city in enumerate(("Rom", "Ö")):
        first, *others = [one for one in calls if one.index == index]
        assert first.id and first.function.name == "weather" and first.type == "function"
        assert all(one.id is None and one.function.name is None for one in others)
        arguments = "".join(one.function.arguments for one in (first, *others))
        assert json.loads(arguments)["city"] == city
        assert (len(others) > 5) == (tool is TOOL), "a call that may be malformed is given at once"
    reasons = [one.choices[0].finish_reason for one in chunks]
    assert reasons[-1] == "tool_calls" and not any(reasons[:-1])


def test_the_clients_helpers(make: Make) -> None:
    client, llm = make(CALLS)
    asked: Any = {"model": "tiny", "messages": HI, "tools": [TOOL]}
    with client.chat.completions.stream(**asked) as stream:
        events = list(stream)
        final = stream.get_final_completion().choices[0].message
    kinds = [one.type for one in events]
    assert kinds.count("tool_calls.function.arguments.done") == 2
    assert kinds.count("tool_calls.function.arguments.delta") > 20
    parsed = client.chat.completions.parse(**asked).choices[0].message
    for message in (final, parsed):
        assert [one.function.parsed_arguments for one in message.tool_calls] == [
            weather(city="Rom", unit="C"),
            weather(city="Ö", unit="F"),
        ]
    grammar = llm.asked[0][1].structured_outputs.grammar
    assert "%json" in grammar and "tool_call" in grammar


@pytest.mark.parametrize("stream", [True, False])
def test_reasoning(make: Make, stream: bool) -> None:
    client, _ = make("So it is\n</think>\n\nYes")

    def said(**options: Any) -> tuple[str, str]:
        extra = {"chat_template_kwargs": {"think": True}} | options
        answer = client.chat.completions.create(
            model="tiny", messages=HI, stream=stream, extra_body=extra
        )
        parts = [c.choices[0].delta for c in answer] if stream else [answer.choices[0].message]
        for one in parts:
            assert getattr(one, "reasoning", None) == getattr(one, "reasoning_content", None)
        names = ("content", "reasoning")
        return tuple("".join(getattr(one, n, None) or "" for one in parts) for n in names)

    assert said() == ("Yes", "So it is")
    assert said(include_reasoning=False) == ("Yes", "")
    assert said(chat_template_kwargs={}) == ("So it is\n</think>\n\nYes", "")


def test_required_and_named(make: Make) -> None:
    text = '[{"name": "weather", "parameters": {"city": "Rom", "unit": "C"}}]'
    client, llm = make(text, tool_call_parser="none", reasoning_parser="none")
    asked: Any = {"model": "tiny", "messages": HI, "tools": [LAX]}
    choice = client.chat.completions.create(**asked, tool_choice="required").choices[0]
    assert choice.finish_reason == "tool_calls" and len(choice.message.tool_calls) == 1
    plain = client.chat.completions.create(**asked).choices[0]
    assert plain.message.content == text and plain.finish_reason == "stop"
    llm.text = '{"city": "Rom", "unit": "C"}'
    named: Any = {"type": "function", "function": {"name": "weather"}}
    for one in (asked, asked | {"stream": True}):
        answer = client.chat.completions.create(**one, tool_choice=named)
        if one is asked:
            (call,) = answer.choices[0].message.tool_calls
            assert (call.function.name, call.function.arguments) == ("weather", llm.text)
        else:
            found = [c for chunk in answer for c in chunk.choices[0].delta.tool_calls or ()]
            assert "".join(c.function.arguments for c in found) == llm.text
    kinds = [params.structured_outputs for _, params in llm.asked]
    assert kinds[0] and kinds[1] is None and kinds[2] and kinds[3]


def test_none_parses_no_calls(make: Make) -> None:
    client, _ = make(CALLS)
    answer = client.chat.completions.create(
        model="tiny", messages=HI, tools=[TOOL], tool_choice="none"
    )
    assert answer.choices[0].message.content == CALLS
    assert answer.choices[0].finish_reason == "stop"


def test_a_call_cut_by_its_length(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    client, llm = make(CALLS[:50])
    real = llm._output

    def cut(prompt: Any, params: Any, text: str, reason: str | None) -> Any:
        return real(prompt, params, text, reason and "length")

    monkeypatch.setattr(llm, "_output", cut)
    for tool, choice in ((TOOL, "required"), (LAX, "auto")):
        answer = client.chat.completions.create(
            model="tiny", messages=HI, tools=[tool], tool_choice=choice
        ).choices[0]
        assert answer.finish_reason == "length"
        if choice == "auto":
            assert answer.message.content == CALLS[:50] and not answer.message.tool_calls
        else:
            assert answer.message.tool_calls[0].function.arguments == '{"cit'


def test_conversations_with_calls(make: Make) -> None:
    """Arguments are text here and mappings in templates; reasoning has two names."""
    client, llm = make("Ok")
    call = {"id": "call_1", "type": "function"}
    function = {"name": "weather", "arguments": '{"city": "Rom"}'}
    messages: Any = [
        *HI,
        {"role": "assistant", "content": None, "tool_calls": [call | {"function": function}]},
        {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "21"}]},
        {"role": "assistant", "content": "A", "reasoning": "B"},
        {"role": "assistant", "content": "C", "reasoning_content": "D"},
    ]
    client.chat.completions.create(model="tiny", messages=messages)
    assert llm.asked[0][0]["prompt"] == (
        "[user]hi[assistant]weather:city=Rom;[tool]21call_1[assistant]ABB[assistant]CDD[assistant]"
    )


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ({}, ""),
        ({"arguments": None}, ""),
        ({"arguments": ""}, ""),
        ({"arguments": " \n"}, ""),
        ({"arguments": "null"}, ""),
        ({"arguments": "[]"}, ""),
        ({"arguments": {"a": 1}}, "a=1;"),
        ({"arguments": '{"a": "x\ny"}'}, "a=x\ny;"),
    ],
)
def test_calls_come_back_with_any_arguments(make: Make, given: Any, shown: str) -> None:
    client, llm = make("Ok")
    call = {"id": "call_1", "type": "function", "function": {"name": "f"} | given}
    message: Any = {"role": "assistant", "tool_calls": [call]}
    client.chat.completions.create(model="tiny", messages=[*HI, message])
    assert llm.asked[0][0]["prompt"] == f"[user]hi[assistant]f:{shown}[assistant]"


CALL = {"role": "assistant", "tool_calls": [{"id": "1", "type": "function", "function": {}}]}


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ({"role": "tool", "content": "21"}, "messages[1].tool_call_id"),
        ({"role": "tool", "content": "21", "tool_call_id": 5}, "messages[1].tool_call_id"),
        ({"role": "tool", "content": 21, "tool_call_id": "1"}, "messages"),
        (CALL, "messages[1].tool_calls[0].function.name"),
        ({"role": "assistant", "tool_calls": [{"id": "1"}]}, "messages"),
        ({"role": "assistant", "tool_calls": 5}, "messages"),
        ({"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]},
         "messages"),
        ({"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "[1]"}}]},
         "messages"),
        ({"role": "assistant", "content": "x", "reasoning": 5}, "messages[1].reasoning"),
    ],
)  # fmt: skip
def test_bad_messages_are_named(make: Make, message: Any, param: str) -> None:
    client, _ = make("Ok")
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="tiny", messages=[*HI, message])
    assert caught.value.param == param


def test_markers_that_are_special_tokens(make: Make) -> None:
    """Then the text shows all special tokens, and the server leaves the others out."""
    client, llm = make('Hi<|end|> [TOOL_CALLS][{"name": "f", "arguments": {}}]<|end|>')
    llm.tokenizer.backend.add_special_tokens(["[TOOL_CALLS]"])
    asked: Any = {"model": "tiny", "messages": HI, "tools": [LAX]}
    client.chat.completions.create(**asked)
    assert llm.asked[0][1].skip_special_tokens, "Hermes has no such marker here"
    other, llm_too = make(llm.text, tool_call_parser="mistral")
    llm_too.tokenizer.backend.add_special_tokens(["[TOOL_CALLS]"])
    message = other.chat.completions.create(**asked).choices[0].message
    assert not llm_too.asked[0][1].skip_special_tokens
    assert message.content == "Hi " and len(message.tool_calls[0].id) == 9
    assert "<|end|>" not in message.to_json()


def test_flags_name_the_forms() -> None:
    parser = argparse.ArgumentParser(conflict_handler="resolve")
    serve.add_arguments(parser)
    choices = {one.dest: one.choices for one in parser._actions}
    assert sorted(choices["tool_call_parser"]) == sorted([*TOOL_FORMATS, "none"])
    assert sorted(choices["reasoning_parser"]) == sorted([*REASONING, "none"])


@pytest.mark.parametrize(
    ("template", "calls", "reasoning"),
    [
        (None, None, None),
        ("{{ messages }}", None, None),
        ("<tool_call></tool_call> <think></think>", "hermes", "qwen3"),
        ("[TOOL_CALLS] [ARGS] [THINK] [/THINK]", "mistral", "mistral"),
        ("<|python_tag|>", "llama3_json", None),
        ("respond only with <|tool_call|> followed by a JSON list", "granite", None),
        ("<tool_call><function=f><parameter=a>", "qwen3_coder", None),
        ("<tool_call>f<arg_key>a</arg_key> </think>", "glm45", "qwen3"),
        ("<seed:tool_call><function=f> </seed:think>", "seed_oss", "seed_oss"),
        ("<minimax:tool_call><invoke> <think></think>", "minimax_m2", "qwen3"),
        ("<tool_calls>", "minimax", None),
        ("<function_calls></function_calls>", "olmo3", None),
        ("functools[", "phi4_mini_json", None),
        ("<|tool_calls_section_begin|>", "kimi_k2", None),
        ("<｜tool▁calls▁begin｜>{{ 'function<｜tool▁sep｜>' }}", "deepseek_v3", None),
        ("<｜tool▁calls▁begin｜>{{ name + '<｜tool▁sep｜>' }}", "deepseek_v31", None),
        ("<|channel|>analysis <|channel|>commentary", "openai", "openai_gptoss"),
        ("<think></think><response></response>", None, "ernie45"),
        ("Here is my thought process: Here is my response:", None, "granite"),
    ],
)
def test_forms_are_found_in_templates(
    checkpoint: Path, template: str | None, calls: str | None, reasoning: str | None
) -> None:
    tokenizer = load_tokenizer(checkpoint)
    found = TurnFormat.of(tokenizer, template)
    assert (found.calls and found.calls.name) == calls
    assert found.reasoning is (REASONING[reasoning] if reasoning else None)
    off = TurnFormat.of(tokenizer, template, "none", "none")
    assert (off.calls, off.reasoning, off.shows_special) == (None, None, False)
    named = TurnFormat.of(tokenizer, template, "pythonic", "deepseek_r1")
    assert named.calls is TOOL_FORMATS["pythonic"] and named.reasoning is REASONING["deepseek_r1"]


@pytest.mark.parametrize("template", [IS_DEFINED, IN_MESSAGE, NOT_NONE])
def test_our_own_answer_comes_back_as_it_was(make: Make, template: str) -> None:
    """It has no calls, and an empty list of tools is none."""
    client, llm = make("Rom.", chat_template=template + "{{ 'tools' if tools is not none }}")
    answer = client.chat.completions.create(model="tiny", messages=HI, tools=[])
    message: Any = answer.choices[0].message
    assert message.content == "Rom." and message.tool_calls is None
    client.chat.completions.create(model="tiny", messages=[*HI, message, *HI], tools=[])
    assert [prompt["prompt"] for prompt, _ in llm.asked] == ["hi;", "hi;Rom.;hi;"]


def test_calls_are_read_as_the_template_for_tools_writes_them() -> None:
    """The other template, for conversations without tools, says nothing of them."""
    templates = {"default": "{{ messages[0].content }};", "tool_use": "<tool_call>"}
    llm: Any = ScriptedLLM(make_tokenizer(templates))
    service = Service(llm, ServerSettings(names=("tiny",)))
    assert service.turn_format.calls is TOOL_FORMATS["hermes"] and service.can_chat
    given = Service(llm, ServerSettings(names=("tiny",), chat_template="default"))
    assert given.turn_format.calls is None
