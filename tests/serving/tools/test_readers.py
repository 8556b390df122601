"""Readers of calls and of reasoning: what they find, however the text is cut."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jax_engine.serving.parsers.harmony_parsers import HARMONY
from jax_engine.serving.parsers.json_scanner import JsonObject
from jax_engine.serving.parsers.parser_base import Markers, TurnDelta
from jax_engine.serving.parsers.reasoning_parser import Start
from jax_engine.serving.parsers.reasoning_styles import REASONING
from jax_engine.serving.parsers.tool_formats import TOOL_FORMATS
from jax_engine.serving.parsers.turn_parser import SpecialTokenFilter, TurnParser

Found = tuple[str, str, list[tuple[str, Any]]]
HERMES = '<tool_call>\n{"name": "f", "arguments": {"a": "}é\\""}}\n</tool_call>'
V3 = "<｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{}\n```<｜tool▁call▁end｜>"
V31 = '<｜tool▁call▁begin｜>f<｜tool▁sep｜>{"a": 1}<｜tool▁call▁end｜>'
BEGUN, ENDED = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
KIMI = '<|tool_call_begin|>functions.f:3<|tool_call_argument_begin|>{"a": 1}<|tool_call_end|>'
CODER = "<function=f>\n<parameter=a>\n1\n</parameter>\n</function>"
INVOKE = '<invoke name="f">\n<parameter name="a">1</parameter>\n</invoke>'
GLM = "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n</tool_call>"
SCHEMAS = [{}, {"properties": {"a": {"type": "string"}}}, {"properties": {"a": True}}]
MARKERS = [
    V3, V31, KIMI, CODER, INVOKE, GLM, BEGUN, ENDED, "<arg_key>",
    "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", "<parameter=a>", "</parameter>",
    "</function>", "<minimax:tool_call>", "</minimax:tool_call>", "<tool_calls>", "</tool_calls>",
    "<function_calls>", "f()\ng(a=[])", "</function_calls>", "functools", "<function_call>", "```",
    "```json", "<seed:tool_call>", "</seed:tool_call>", "<function=f>", "a</arg_key>",
    "<arg_value>", "</arg_value>", "<tool_call>f", "</invoke>", "<|tool_call_begin|>f:1",
    "<tool_call>", "</tool_call>", "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "<|python_tag|>",
    "<|tool_call|>",
    "<think>", "</think>", "<|end|>", '{"name": "f", "arguments": {}}', "[f(a=1)]", "f", "[", "]",
    '{"name": "g", "parameters": {"a": [1, {"b": null}], "c": "é\\u0041"}}', '{"a": 1}', ";", ",",
    "[g(x='a', y=[1, -2.5], z={'k': True}), h()]", " ", "\n", "<", '"', "\\", "}", "{", "'", ")",
    '{"name": "f", "arguments": null}', '{"name": "f"}', '{"name": "f", "parameters": {"a": "\n"}}',
    "[f(from='\n', class=+1)]", "[f(a=''''''')]", "[ARGS]null", "So: ",
    '[{"name": "f", "parameters": ""}]',
    '{"name": "f", "arguments": {"a": "\\ud800"}}', '{"name": "f", "arguments": {"a": 1e999}}',
]  # fmt: skip
texts = st.lists(st.sampled_from(MARKERS) | st.text(max_size=3), max_size=8).map("".join)


def turn(name: str, start: Start = "maybe", reasoning: str = "qwen3", **options: Any) -> TurnParser:
    """Harmony's messages end with a marker that is to be left out elsewhere."""
    hidden = Markers([] if "openai" in (name, reasoning[:6]) else ["<|end|>"])
    return TurnParser(
        SpecialTokenFilter(hidden),
        REASONING[reasoning].parser(start),
        TOOL_FORMATS[name].reader(**options),
    )


def together(pieces: list[TurnDelta]) -> Found:
    calls: list[list[str]] = []
    for piece in (one for said in pieces for one in said.calls):
        if piece.id is not None:
            assert piece.index == len(calls) and piece.name
            calls.append([piece.name, ""])
        calls[piece.index][1] += piece.arguments
    content = "".join(one.content for one in pieces)
    return content, "".join(one.reasoning for one in pieces), [(a, b) for a, b in calls]


def whole(
    name: str, text: str, start: Start = "closed", reasoning: str = "qwen3", **options: Any
) -> Found:
    return together([turn(name, start, reasoning, **options).take(text, ended=True)])


@pytest.mark.parametrize(
    ("name", "text", "content", "calls"),
    [
        ("hermes", f"Hi {HERMES}\n{HERMES}\n", "Hi ", [{"a": '}é"'}] * 2),
        ("hermes", '<tool_call>{"name": "f"}</tool_call> Done', " Done", [{}]),
        ("hermes", '<tool_call>{"arguments": "{\\"a\\": 1}", "name": "f"}', "", [{"a": 1}]),
        ("hermes", '<tool_call>{"name": "f", "arguments": null}</tool_call>', "", [{}]),
        ("hermes", '<tool_call>{"name": "f", "arguments": " "}</tool_call>', "", [{}]),
        ("hermes", '<tool_call>{"name": "f", "arguments": "null"}</tool_call>', "", [{}]),
        ("hermes", '<tool_call>{"name": "f", "arguments": null, "parameters": {"a": 1}}', "",
         [{"a": 1}]),
        ("hermes", '<tool_call>{"name": "f", "arguments": {"a": "x\ny\t\u0000"}}</tool_call>', "",
         [{"a": "x\ny\t\0"}]),
        ("hermes", '<tool_call>{"name": "f", "arguments": "{\\"a\\": \\"x\ny\\"}"}', "",
         [{"a": "x\ny"}]),
        ("hermes", '<tool_call>{"name": "f"}\n{"name": "f"},{"name": "f"}\n</tool_call>!', "!",
         [{}] * 3),
        ("hermes", '<tool_call>\n[{"name": "f"}, {"name": "f"}]\n</tool_call>', "", [{}] * 2),
        ("hermes", '<tool_call>{"name": "f"}, x</tool_call>', ", x</tool_call>", [{}]),
        ("hermes", f"{HERMES},\n{HERMES};<tool_call>, {HERMES}, ok", ";<tool_call>, , ok",
         [{"a": '}é"'}] * 3),
        ("hermes", f"{HERMES}, <tool_call>x", ", <tool_call>x", [{"a": '}é"'}]),
        ("hermes", "a <tool_call> b", None, []),
        ("hermes", "\n a <tool", None, []),
        ("hermes", " \n", None, []),
        ("hermes", '<tool_call>{"name": "f", "arguments": {"a": x}}</tool_call>', None, []),
        ("hermes", '<tool_call>{"name": "f", "arguments": {"a": 1', None, []),
        ("hermes", '<tool_call>{"name": "f", "arguments": [1]}</tool_call>', None, []),
        ("hermes", '<tool_call>{"name": 5, "arguments": {}}</tool_call>', None, []),
        ("hermes", '<tool_call>{"name": "f", "arguments": {"a": 1e999}}', None, []),
        ("hermes", f"<tool_call> {HERMES}", "<tool_call> ", [{"a": '}é"'}]),
        ("granite", '<|tool_call|>[{"name": "f", "arguments": {"a": 1}}]', "", [{"a": 1}]),
        ("granite", '<|tool_call|> [\n {"name": "f", "arguments": {}},\n '
         '{"name": "f", "arguments": {"a": 2}}\n]\n', "", [{}, {"a": 2}]),
        ("granite", 'So <tool_call>[{"name": "f", "arguments": {"a": 1}}]', "So ", [{"a": 1}]),
        ("granite", '<tool_call>{"name": "f", "arguments": {}}</tool_call>', "", [{}]),
        ("granite", '<|tool_call|>{"name": "f"} <|tool_call|>[{"name": "f"}]', "", [{}] * 2),
        ("granite", '<|tool_call|>[{"name": "f"}] <tool_call>[{"name": "f"}]', "", [{}] * 2),
        ("granite", "<|tool_call|>[]", None, []),
        ("granite", "<|tool_call|>[1]", None, []),
        ("granite", '<|tool_call|>[{"name": "f", "arguments": {"a": 1', None, []),
        ("granite", "a <|tool_call b", None, []),
        ("llama3_json", '{"name": "f", "parameters": {"a": 1}}', "", [{"a": 1}]),
        ("llama3_json", '{"name": "f", "parameters": {}}; {"name": "f", "arguments": {"b": 2}}',
         "", [{}, {"b": 2}]),
        ("llama3_json", '<|python_tag|>{"name": "f", "parameters": {}} ok', " ok", [{}]),
        ("llama3_json", '<|python_tag|>print("x")', None, []),
        ("llama3_json", '{"name": "Ann"}', None, []),
        ("llama3_json", 'So {"name": "f", "parameters": {}}', "So ", [{}]),
        ("llama3_json", 'So {"name": "f", "parameters": {}} and [{"name": "f", "parameters": '
         '{"a": 1}}].', "So  and .", [{}, {"a": 1}]),
        ("llama3_json", 'So {"a": {"name": "f", "parameters": {}}}', None, []),
        ("llama3_json", 'So {a: {"name": "f", "parameters": {}}}', "So {a: }", [{}]),
        ("llama3_json", '{"name": "f", "parameters": {}}\n{"name": "f", "parameters": {}},\n'
         '{"name": "f", "parameters": {}}', "", [{}] * 3),
        ("llama3_json", '[{"name": "f", "parameters": {}},\n{"name": "f", "parameters": {}}]', "",
         [{}] * 2),
        ("llama3_json", '[{"name": "f", "parameters": {}}, 1]', ", 1]", [{}]),
        ("llama3_json", '[{"name": "f", "parameters": null}]\n[]', "\n[]", [{}]),
        ("llama3_json", "[{}]", None, []),
        ("llama3_json", '{"why": 1, "name": "f", "parameters": {}}', "", [{}]),
        ("llama3_json", 'So {"why": 1, "name": "f", "parameters": {}}', None, []),
        ("llama3_json", '{"name": "f", "parameters": {"a": "\\ud800\\u00e9"}}', "",
         [{"a": "\ud800é"}]),
        ("llama3_json", "[]", None, []),
        ("llama3_json", "[" + " " * 200 + '{"name": "f", "parameters": {}}]', "", [{}]),
        ("llama3_json", "[" + " " * 300 + '{"name": "f", "parameters": {}}]', "[" + " " * 300 + "]",
         [{}]),
        ("llama3_json", '{"name": "f", "parameters": {}}; x', "; x", [{}]),
        ("mistral", '[TOOL_CALLS] [{"name": "f", "arguments": {"a": 1}}, {"name": "f", '
         '"arguments": {}}]', "", [{"a": 1}, {}]),
        ("mistral", 'x[TOOL_CALLS]f[ARGS]{"a": 1}[TOOL_CALLS]f{"b":2}', "x", [{"a": 1}, {"b": 2}]),
        ("mistral", '[TOOL_CALLS]f[CALL_ID]a1b[ARGS]{"a": 1}', "", [{"a": 1}]),
        ("mistral", "[TOOL_CALLS]f[CALL_ID]a1b[ARGS]5", None, []),
        ("mistral", "[TOOL_CALLS][1]", None, []),
        ("mistral", '[TOOL_CALLS][{"name": "f", "arguments": {}}, 1]', ", 1]", [{}]),
        ("mistral", "[TOOL_CALLS]{}", None, []),
        ("mistral", '[TOOL_CALLS]{"name": "f", "arguments": null}', "", [{}]),
        ("mistral", '[TOOL_CALLS][{"name": "f"}\n{"name": "f", "arguments": " "}]', "", [{}] * 2),
        ("mistral", '[TOOL_CALLS]f{"a": 1}\nf{"b": "\n"}, f[ARGS]{}', "",
         [{"a": 1}, {"b": "\n"}, {}]),
        ("mistral", "[TOOL_CALLS]f[ARGS]null[TOOL_CALLS]f[ARGS][TOOL_CALLS]f[CALL_ID]1[ARGS]", "",
         [{}] * 3),
        ("mistral", '[TOOL_CALLS]f{"a": 1}, and so', ", and so", [{"a": 1}]),
        ("mistral", "[TOOL_CALLS]f", None, []),
        ("mistral", "[TOOL_CALLS]f{}, [TOOL_CALLS]f{};\n[TOOL_CALLS]"
         '[{"name": "f"}],[TOOL_CALLS][{"name": "f"}][TOOL_CALLS]f{}', "", [{}] * 5),
        ("mistral", "[TOOL_CALLS]f{}, [TOOL_CALLS]5", ", [TOOL_CALLS]5", [{}]),
        ("pythonic", '[f(a=1, b="]"), f(c={"x": [1, -2.5, true, None]})]', "",
         [{"a": 1, "b": "]"}, {"c": {"x": [1, -2.5, True, None]}}]),
        ("pythonic", "[f(a='it\\'s')] ok", " ok", [{"a": "it's"}]),
        ("pythonic", "[link](http://x)", None, []),
        ("pythonic", "[f(1)]", None, []),
        ("pythonic", "[f(a=b)]", None, []),
        ("pythonic", "[f(a=__import__('os').getcwd())]", None, []),
        ("pythonic", "[f(**{'a': 1})]", None, []),
        ("pythonic", "[f(a=1e999)]", None, []),
        ("pythonic", "[f(a={1: 2, 1.5: 3, True: 4, None: 5})]", "",
         [{"a": {"1": 2, "1.5": 3, "true": 4, "null": 5}}]),
        ("pythonic", "[f(a={1: 2, '1': 3})]", None, []),
        ("pythonic", "[f(a=1, a=2)]", None, []),
        ("pythonic", "[f(from='a', class='b', import=1, None=2, lambda=[])]", "",
         [{"from": "a", "class": "b", "import": 1, "None": 2, "lambda": []}]),
        ("pythonic", "[f(a=+1, b=-.5, c=+1e3, d=0x1F, e=1_000)]", "",
         [{"a": 1, "b": -0.5, "c": 1000.0, "d": 31, "e": 1000}]),
        ("pythonic", "[f(a='x\ny', b='''it's\n''', c='')]", "",
         [{"a": "x\ny", "b": "it's\n", "c": ""}]),
        ("pythonic", "[f(a='b' \"c\", d=r'\\d', e='\\x41\\u00e9\\\n', g=u'')]", "",
         [{"a": "bc", "d": "\\d", "e": "Aé", "g": ""}]),
        ("pythonic", "[f(a=(1, 2), b=(3,), c=(4), d=(), e=[5,],)]", "",
         [{"a": [1, 2], "b": [3], "c": 4, "d": [], "e": [5]}]),
        ("pythonic", "[f(a=1)\nf(a=2),\nf(a=3),]\n[f(a=4)], [f()]", "",
         [{"a": 1}, {"a": 2}, {"a": 3}, {"a": 4}, {}]),
        ("pythonic", "So:\n[f(a=1)] Done", "So:\n Done", [{"a": 1}]),
        ("pythonic", "As in [1], [f (x)] or [a](b): [f(a=[{}])]", "As in [1], [f (x)] or [a](b): ",
         [{"a": [{}]}]),
        ("pythonic", '[{"name": "f", "parameters": {"a": null}}, {"name": "f", "arguments": ""}]',
         "", [{"a": None}, {}]),
        ("pythonic", 'So {"name": "f", "parameters": {"a": [f()]}}', None, []),
        ("pythonic", '{"name": "f", "parameters": {}}, [f(a=1)]\n[{"name": "f", "parameters": {}}]',
         ", ", [{}, {"a": 1}, {}]),
        ("pythonic", "[f(a=f'b')]", None, []),
        ("pythonic", "[f(a=b'b')]", None, []),
        ("pythonic", "[f(a=1j)]", None, []),
        ("pythonic", "[f(a=--1)]", None, []),
        ("pythonic", "[f(a={[]: 1})]", None, []),
        ("pythonic", "[f(a='\\x4')]", None, []),
        ("pythonic", "[f(a='\\N{no such letter}')]", None, []),
        ("pythonic", "[f(a='" + "\\" * 2001 + "')]", None, []),
        ("pythonic", "[f()f()]", None, []),
        ("pythonic", "[f(a='''it's ]''')] ok", " ok", [{"a": "it's ]"}]),
        ("pythonic", "[f(", None, []),
        ("pythonic", "[f(a=1)][0]", "[0]", [{"a": 1}]),
        ("pythonic", "[" * 400, None, []),
        ("pythonic", "[f(a=" + "-" * 5900 + "1)]", None, []),
        ("pythonic", "[f(a=" + "-" * 9000 + "1)]", None, []),
        ("deepseek_v3", f"Hi{BEGUN}{V3}\n{V3}{ENDED} x", "Hi x", [{}] * 2),
        ("deepseek_v3", V3.replace("{}", '{"a": "```"}'), "", [{"a": "```"}]),
        ("deepseek_v3", V31, None, []),
        ("deepseek_v31", f"{BEGUN}{V31}{V31}{ENDED}", "", [{"a": 1}] * 2),
        ("deepseek_v31", f"{V31}, {BEGUN}x", f", {BEGUN}x", [{"a": 1}]),
        ("deepseek_v31", V31.removesuffix("<｜tool▁call▁end｜>"), "", [{"a": 1}]),
        ("deepseek_v31", V31[:20], None, []),
        ("kimi_k2", f"So <|tool_calls_section_begin|>{KIMI}{KIMI}<|tool_calls_section_end|>", "So ",
         [{"a": 1}] * 2),
        ("kimi_k2", KIMI.replace("functions.f:3", "f"), "", [{"a": 1}]),
        ("kimi_k2", KIMI.replace('{"a": 1}', "[1]"), None, []),
        ("qwen3_coder", "Hi " + f"<tool_call>\n{CODER}\n</tool_call>\n" * 2, "Hi ", [{"a": 1}] * 2),
        ("qwen3_coder", f"{CODER} ok", " ok", [{"a": 1}]),
        ("qwen3_coder", "<tool_call><function=f></function></tool_call>", "", [{}]),
        ("qwen3_coder", CODER.replace("1", "\n  <b>\n </b>\n"), "", [{"a": "\n  <b>\n </b>\n"}]),
        ("qwen3_coder", CODER.replace("</function>", CODER.partition(">")[2]), None, []),
        ("qwen3_coder", CODER[:-1], None, []),
        ("qwen3_coder", HERMES, None, []),
        ("seed_oss", f"<seed:tool_call>{CODER}</seed:tool_call>.", ".", [{"a": 1}]),
        ("minimax_m2", f"<minimax:tool_call>\n{INVOKE}\n{INVOKE}\n</minimax:tool_call>", "",
         [{"a": 1}] * 2),
        ("minimax_m2", f"<minimax:tool_call> {CODER}", None, []),
        ("glm45", f"So:\n{GLM}\n{GLM}", "So:\n", [{"a": 1}] * 2),
        ("glm47", "<tool_call>f<arg_key>a</arg_key><arg_value>x\n</arg_value></tool_call>", "",
         [{"a": "x\n"}]),
        ("glm45", "<tool_call>f</tool_call>", "", [{}]),
        ("glm45", "<tool_call>f<arg_key>a</arg_key>1</tool_call>", None, []),
        ("minimax", '<tool_calls>\n{"name": "f", "arguments": {}}\n{"name": "f"}\n</tool_calls>',
         "", [{}] * 2),
        ("granite-20b-fc", '<function_call> {"name": "f", "arguments": {"a": 1}}', "", [{"a": 1}]),
        ("phi4_mini_json", 'functools[{"name": "f", "arguments": {"a": 1}}, {"name": "f"}]', "",
         [{"a": 1}, {}]),
        ("phi4_mini_json", "Use functools.cache", None, []),
        ("olmo3", "a<function_calls>\nf(a=1)\nf()\n</function_calls>b", "ab", [{"a": 1}, {}]),
        ("olmo3", "<function_calls>f(a=1)", "", [{"a": 1}]),
        ("olmo3", "<function_calls>f(1)</function_calls>", None, []),
        ("xlam", '[{"name": "f", "arguments": {}}, {"name": "f", "arguments": {}}]', "", [{}] * 2),
        ("xlam", 'So:\n```json\n[{"name": "f", "arguments": {"a": 1}}]\n```\n', "So:\n",
         [{"a": 1}]),
        ("xlam", '[TOOL_CALLS][{"name": "f", "arguments": {}}]', "", [{}]),
        ("xlam", '<tool_call>{"name": "f", "arguments": {}}</tool_call>.', ".", [{}]),
        ("xlam", "```json\n[1, 2]\n``` and ```py", None, []),
    ],
)  # fmt: skip
def test_forms_of_calls(name: str, text: str, content: str | None, calls: list[Any]) -> None:
    """A content of None is all of the text: nothing of a malformed call is lost."""
    found, _, called = whole(name, text)
    assert found == (text if content is None else content)
    assert [(one, json.loads(arguments)) for one, arguments in called] == [("f", c) for c in calls]
    for _, arguments in called:
        arguments.encode()


@pytest.mark.parametrize(
    ("start", "text", "reasoning", "content"),
    [
        ("inside", "So\n\nit is\n</think>\n\nYes <think>", "So\n\nit is", "Yes <think>"),
        ("inside", "<think>\nSo</think>Yes", "So", "Yes"),
        ("inside", "So it", "So it", ""),
        ("maybe", "\n<think>So</think> Yes", "So", "Yes"),
        ("maybe", "\nYes</think>", "", "\nYes</think>"),
        ("closed", "<think>So</think>", "", "<think>So</think>"),
        ("inside", "a<tool_call></think><|end|>b<|end", "a<tool_call>", "b<|end"),
    ],
)
def test_reasoning(start: Start, text: str, reasoning: str, content: str) -> None:
    assert whole("hermes", text, start) == (content, reasoning, [])


SO, CALLED = "<|channel|>analysis<|message|>So<|end|>", '<|message|>{"a": 1}<|call|>'
NEXT, YES = "<|start|>assistant", "<|channel|>final<|message|>Yes<|return|>"
JSON = " <|constrain|>json"


@pytest.mark.parametrize(
    ("reasoning", "start", "text", "thought", "content", "calls"),
    [
        ("openai_gptoss", "maybe", f"{SO}{NEXT}{YES}", "So", "Yes", 0),
        ("openai_gptoss", "maybe", YES.removesuffix("<|return|>"), "", "Yes", 0),
        ("openai_gptoss", "inside", f"So\n<|end|>{NEXT}{YES}", "So", "Yes", 0),
        ("openai_gptoss", "maybe", SO[:-8], "S", "", 0),
        ("openai_gptoss", "maybe", f"<|channel|>commentary to=functions.f{JSON}{CALLED}", "", "",
         1),
        ("openai_gptoss", "maybe", f"{SO}{NEXT} to=functions.f<|channel|>commentary{JSON}{CALLED}",
         "So", "", 1),
        ("openai_gptoss", "maybe", "<|channel|>commentary<|message|>I look.<|end|>"
         f"{NEXT}<|channel|>commentary to=functions.f{CALLED}", "", "I look.", 1),
        ("openai_gptoss", "maybe", f"Plain{NEXT}", "", f"Plain{NEXT}", 0),
        ("granite", "maybe", "Here is my thought process: So\n\nHere is my response: Yes", "So",
         "Yes", 0),
        ("granite", "maybe", "Here's my thought process:So Here's my response:Yes", "So", "Yes", 0),
        ("granite", "maybe", "Here is my thought.", "", "Here is my thought.", 0),
        ("ernie45", "inside", "So\n</think>\n\n<response>\nYes\n</response>\n", "So", "Yes\n", 0),
        ("ernie45", "inside", "So\n</think>\n\nYes", "So", "Yes", 0),
        ("ernie45", "closed", "<response>\nYes", "", "Yes", 0),
        ("seed_oss", "maybe", "<seed:think>So</seed:think>Yes", "So", "Yes", 0),
        ("olmo3", "inside", "So</think>Yes", "So", "Yes", 0),
        ("minimax_m2", "inside", "So</think>\n\nYes", "So", "Yes", 0),
    ],
)  # fmt: skip
def test_styles_of_reasoning(
    reasoning: str, start: Start, text: str, thought: str, content: str, calls: int
) -> None:
    found = whole("openai", text, start, reasoning)
    assert found == (content, thought, [("f", '{"a": 1}')] * calls)


harmony = st.lists(
    st.sampled_from([*HARMONY, NEXT, SO, YES, CALLED, "analysis", "commentary", " to=functions.f"])
    | st.text(max_size=3),
    max_size=9,
).map("".join)


@pytest.mark.parametrize("reasoning", REASONING)
@given(text=texts | harmony, start=st.sampled_from(["inside", "maybe", "closed"]), data=st.data())
def test_pieces_of_reasoning_do_not_matter(
    reasoning: str, text: str, start: Start, data: st.DataObject
) -> None:
    one, said = turn("openai", start, reasoning), []
    cuts = data.draw(st.lists(st.integers(0, len(text)), max_size=8).map(sorted))
    for begin, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
        said.append(one.take(text[begin:end], ended=False))
    said.append(one.take("", ended=True))
    assert together(said) == whole("openai", text, start, reasoning)


@pytest.mark.parametrize("name", TOOL_FORMATS)
@given(data=st.data())
def test_pieces_do_not_matter(name: str, data: st.DataObject) -> None:
    """Any text, in any pieces; and what was said is never taken back."""
    text = data.draw(texts)
    start: Start = data.draw(st.sampled_from(["inside", "maybe", "closed"]))
    cuts = data.draw(st.lists(st.integers(0, len(text)), max_size=8).map(sorted))
    known = st.none() | st.dictionaries(st.sampled_from("fgh"), st.sampled_from(SCHEMAS))
    options = {"tools": data.draw(known), "several": data.draw(st.booleans())}
    one, said = turn(name, start, **options), []
    for begin, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
        said.append(one.take(text[begin:end], ended=False))
    said.append(one.take("", ended=True))
    found = together(said)
    assert found == whole(name, text, start, **options)
    guided = [turn(name, start, guided=True) for _ in range(2)]
    parts = [guided[0].take(char, ended=False) for char in text] + [guided[0].take("", ended=True)]
    assert together(parts) == together([guided[1].take(text, ended=True)])
    assert options["several"] or len(found[2]) < 2
    for _, arguments in found[2]:
        assert isinstance(json.loads(arguments), dict)
        arguments.encode()


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ({"type": "string"}, "1", "1"),
        ({"type": ["string", "null"]}, "null", None),
        ({"type": ["string", "null"]}, "1", "1"),
        ({"type": "integer"}, "1", 1),
        ({"type": "integer"}, "1.0", 1),
        ({"type": "integer"}, "1.5", "1.5"),
        ({"type": "integer"}, "one", "one"),
        ({"type": "number"}, " 1e3 ", 1000.0),
        ({"type": "number"}, "NaN", "NaN"),
        ({"type": "boolean"}, "True", True),
        ({"type": "array"}, "['a', (1, None)]", ["a", [1, None]]),
        ({"type": "object"}, '{"a": [1]}', {"a": [1]}),
        ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, "7", 7),
        ({"enum": ["1", "2"]}, "1", "1"),
        ({"enum": [1, 2]}, "1", 1),
        ({"type": "any"}, "[1]", [1]),
        ({}, "1", 1),
        ({}, '"1"', '"1"'),
        (None, "false", False),
        (True, "__import__('os')", "__import__('os')"),
        ({"type": "integer"}, "9" * 5000, "9" * 5000),
    ],
)
def test_schemas_tell_what_a_text_stands_for(schema: Any, text: str, value: Any) -> None:
    """What has none of its types stays a text, so that the tool can say what is wrong."""
    tools = {"f": {"properties": {"a": schema}}}
    _, _, [(_, arguments)] = whole("minimax_m2", INVOKE.replace("1", text), tools=tools)
    found = json.loads(arguments)["a"]
    assert found == value and type(found) is type(value)


def test_unsound_schemas_of_clients_end_no_answer() -> None:
    """No grammar reads them where the model chooses, so nothing has refused them."""
    deep: Any = {}
    for _ in range(3000):
        deep = {"anyOf": [deep]}
    unsound: list[Any] = [{"type": [[1], {"b": 2}]}, {"type": {"x": 1}}, {"enum": [[1], {}]}, deep]
    for schema in [*unsound, {"anyOf": 5}, {"anyOf": [5, {"type": "array"}]}, 7]:
        tools = {"f": {"properties": {"a": schema}}}
        _, _, [(_, arguments)] = whole("minimax_m2", INVOKE.replace("1", "[1]"), tools=tools)
        assert json.loads(arguments) == {"a": [1]}
    _, _, [(_, arguments)] = whole("minimax_m2", INVOKE, tools={"f": {"properties": [1]}})
    assert json.loads(arguments) == {"a": 1}


def test_ids_of_a_model_s_own_stay() -> None:
    """Kimi's template repeats the id of a call, which tells the model the tool's name."""
    said = TOOL_FORMATS["kimi_k2"].reader().take(KIMI, ended=True)[1]
    assert (said[0].name, said[0].id) == ("f", "functions.f:3")


def test_one_call_is_the_first() -> None:
    for name, text in (("hermes", f"{HERMES} {HERMES}"), ("pythonic", "[f(a=1), g()]\n[h()]")):
        content, _, calls = whole(name, text, several=False)
        assert (content, [one for one, _ in calls]) == ("", ["f"])


@pytest.mark.parametrize(
    ("name", "text", "calls"),
    [
        ("llama3_json", '{"name": "now"}', 1),
        ("llama3_json", 'It is {"name": "now", "parameters": null}', 1),
        ("llama3_json", 'It is {"name": "f", "parameters": {}}', 0),
        ("llama3_json", '{"name": "f", "parameters": {}}', 1),
        ("llama3_json", '{"name": "f"}', 0),
        ("pythonic", "It is [now()]", 1),
        ("pythonic", "It is [f()]", 0),
        ("pythonic", "[f()]", 1),
        ("mistral", "[TOOL_CALLS]now", 1),
        ("mistral", "[TOOL_CALLS]now [TOOL_CALLS]now{}", 2),
        ("mistral", "[TOOL_CALLS]now{} now", 1),
        ("mistral", "[TOOL_CALLS]f", 0),
    ],
)
def test_names_of_tools_decide(name: str, text: str, calls: int) -> None:
    """They decide where a call has no arguments, or stands within prose."""
    content, _, called = whole(name, text, tools={"now": {}})
    assert len(called) == calls
    if not calls:
        assert content == text


def test_a_cut_call_does_not_lack_its_arguments() -> None:
    """`max_tokens` may have cut them off."""
    for text in ("[TOOL_CALLS]now", "[TOOL_CALLS]now[ARGS]"):
        one = turn("mistral", tools={"now": {}, "now_there": {}})
        said = one.take(text, ended=True, cut=True)
        assert said == TurnDelta(text) and not one.calls_tools


@given(st.text(alphabet="ab <tol_cal>", max_size=30), st.sampled_from(["hermes", "mistral"]))
@example("<tool_cal", "hermes")
def test_only_what_may_be_a_marker_is_held_back(text: str, name: str) -> None:
    marker = TOOL_FORMATS[name].marker
    found = TOOL_FORMATS[name].reader().take("." + text, ended=False)[0]
    held = ("." + text).removeprefix(found)
    if marker not in text:
        assert found + held == "." + text
        assert held == "" or marker.startswith(held)


@given(texts)
def test_nothing_is_lost_without_calls(text: str) -> None:
    for name, form in TOOL_FORMATS.items():
        content, pieces = form.reader().take(text, ended=True)
        if not pieces:
            assert content == text, name


values: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=6,
)  # fmt: skip
dumps: list[Callable[[Any], str]] = [json.dumps, lambda value: json.dumps(value, indent=1)]


@given(st.dictionaries(st.text(max_size=2), values, max_size=3), st.sampled_from(dumps))
def test_json_objects_end_with_their_last_letter(value: Any, dump: Any) -> None:
    scan = JsonObject()
    *begun, last = [scan.take(char) for char in dump(value)]
    assert set(begun) == {"more"} and last == "done"


@given(st.text(alphabet='{}[]",:\\ue-+.1tru0 \n', max_size=12).map("{".__add__))
@example('{"a":01}')
@example('{"a":1,}')
@example('{"a":[1,]}')
@example('{"a":"\n"}')
@example('{"a":-}')
@example('{"\\u12":1}')
@example('{"\\u123":1}')
def test_what_is_done_is_json(text: str) -> None:
    """What is bad JSON is the beginning of no object."""
    scan = JsonObject()
    for at, char in enumerate(text):
        status = scan.take(char)
        if status == "more":
            continue
        if status == "done":
            json.loads(text[: at + 1], strict=False)
        else:
            for end in ("", "}", '"}', '":1}', ":1}", "1}", "]}", "0}"):
                with pytest.raises(ValueError):
                    json.loads(text[: at + 1] + end, strict=False)
        return
