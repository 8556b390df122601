"""Grammars that make a model call tools: what they allow, and that readers read it."""

import json
from collections.abc import Sequence
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, pre_tokenizers
from tokenizers import Tokenizer as Backend
from tokenizers.models import BPE

from jax_engine import StructuredOutputsParams
from jax_engine.guided.compiler import GuideCompiler
from jax_engine.guided.guide import fill_masks
from jax_engine.serving.api.api_errors import ApiError
from jax_engine.serving.api.turn_parsing import TurnFormat, TurnPlan, choice_of, plan_of
from jax_engine.serving.parsers.harmony_parsers import HARMONY
from jax_engine.serving.parsers.marked_tool_parser import (
    DEEPSEEK_V3,
    DEEPSEEK_V31,
    KIMI_K2,
    marker_texts,
)
from jax_engine.serving.parsers.parser_base import TurnDelta
from jax_engine.serving.parsers.tool_formats import TOOL_FORMATS
from jax_engine.tokenization.tokenizer import Tokenizer
from tests.support.byte_tokenizer import EOS_TOKEN, byte_alphabet
from tests.support.json_schemas import conforms, schemas

EOS = 256
OWN = [name for name, form in TOOL_FORMATS.items() if form.grammar is not None]
FORMS = [*OWN, "pythonic", "qwen3_coder", "openai", "none"]
MARKED = {"deepseek_v3": DEEPSEEK_V3, "deepseek_v31": DEEPSEEK_V31, "kimi_k2": KIMI_K2}


def words(*markers: str, eos: str = EOS_TOKEN) -> Tokenizer:
    """Bytes, and some markers as tokens of their own."""
    vocab = {char: byte for byte, char in byte_alphabet().items()}
    backend = Backend(BPE(vocab=vocab, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    tokens = [AddedToken(one, special=True, normalized=False) for one in (eos, *markers)]
    backend.add_special_tokens(tokens)
    return Tokenizer(backend, special_tokens={"eos_token": eos})


PLAIN = words()
SPECIAL = words(
    "<tool_call>", "</tool_call>", "<think>", "</think>", "[TOOL_CALLS]", "[ARGS]",
    "<|python_tag|>", "<|tool_call|>", "<tool_calls>", "</tool_calls>",
    *(text for one in MARKED.values() for text in marker_texts(one)),
)  # fmt: skip
# Where EOS_TOKEN ends no turn, but a message.
PLAIN_MESSAGES, MESSAGES = words(eos="<|return|>"), words(*HARMONY[:-1], eos=HARMONY[-1])
COMPILERS = {
    id(one): GuideCompiler(one, one.vocab_size, [EOS])
    for one in (PLAIN, SPECIAL, PLAIN_MESSAGES, MESSAGES)
}


def tool(name: str, schema: Any = None, strict: bool | None = None) -> dict[str, Any]:
    function = {"name": name, "parameters": schema, "strict": strict}
    return {"type": "function", "function": {k: v for k, v in function.items() if v is not None}}


A = {
    "type": "object",
    "properties": {"a": {"type": "integer"}},
    "required": ["a"],
    "additionalProperties": False,
}
TOOLS = [tool("f", A, strict=True), tool("g")]


def plan(
    tokenizer: Tokenizer,
    form: str,
    choice: Any,
    *,
    tools: Sequence[dict[str, Any]] = TOOLS,
    parallel: bool = True,
    grammar: StructuredOutputsParams | None = None,
    reasoning: str = "none",
    prompt: str = "",
) -> TurnPlan:
    turn_format = TurnFormat.of(tokenizer, None, form, reasoning)
    chosen = choice_of(tools, choice, parallel)
    return plan_of(turn_format, tokenizer, chosen, grammar, prompt)


def allows(tokenizer: Tokenizer, found: TurnPlan, text: str) -> bool:
    """Whether a text is a whole output."""
    assert found.grammar is not None
    matcher = COMPILERS[id(tokenizer)].guide(found.grammar)._start.deep_copy()
    ids = tokenizer.encode(text)
    return bool(matcher.try_consume_tokens(ids) == len(ids) and matcher.is_accepting())


F, G = '{"name": "f", "%s": {"a": 1}}', '{"name": "g", "%s": {}}'
WRONG = '{"name": "f", "%s": {"a": "x"}}'


def written(form: str, tokenizer: Tokenizer, *calls: str) -> str:
    if form == "hermes":
        parts = [f"<tool_call>\n{one % 'arguments'}\n</tool_call>" for one in calls]
        return "\n".join(parts)
    if form == "llama3_json":
        return "; ".join(one % "parameters" for one in calls)
    if form == "mistral" and tokenizer is SPECIAL:
        found = [json.loads(one % "arguments") for one in calls]
        return "".join(
            f"[TOOL_CALLS]{one['name']}[ARGS]{json.dumps(one['arguments'])}" for one in found
        )
    if form == "mistral":
        return f"[TOOL_CALLS][{', '.join(one % 'arguments' for one in calls)}]"
    if form in MARKED:
        marks, found = MARKED[form], [json.loads(one % "arguments") for one in calls]
        names = [
            f"functions.{one['name']}:0" if form == "kimi_k2" else one["name"] for one in found
        ]
        parts = [
            f"{''.join(marks.begin)}{name}{''.join(marks.between)}{json.dumps(one['arguments'])}"
            f"{''.join(marks.end)}"
            for name, one in zip(names, found, strict=True)
        ]
        return "".join([marks.section, *parts, marks.section_end])
    if form == "minimax":
        return "\n".join(["<tool_calls>", *(one % "arguments" for one in calls), "</tool_calls>"])
    if form == "granite":
        return f"<|tool_call|>[{', '.join(one % 'arguments' for one in calls)}]"
    return f"[{', '.join(one % 'parameters' for one in calls)}]"


def read(found: TurnPlan, text: str) -> tuple[TurnDelta, bool]:
    turn = found.new_turn()
    return turn.take(text, ended=True), turn.calls_tools


@pytest.mark.parametrize("tokenizer", [PLAIN, SPECIAL], ids=["plain", "special"])
@pytest.mark.parametrize("form", FORMS)
def test_required_calls(form: str, tokenizer: Tokenizer) -> None:
    found = plan(tokenizer, form, "required")
    one, two = (written(form, tokenizer, *calls) for calls in ([F], [F, G]))
    for text in (one, two):
        assert allows(tokenizer, found, text), text
        said, called = read(found, text)
        assert called and not said.content
        assert [p.name for p in said.calls if p.id] == ["f", "g"][: 1 + (text is two)]
        arguments = [p.arguments for p in said.calls if p.index == 0]
        assert "".join(arguments) == '{"a": 1}' and len(arguments) > 2, "as they come"
    assert not allows(tokenizer, found, written(form, tokenizer, WRONG))
    assert not allows(tokenizer, found, "") and not allows(tokenizer, found, "Hi " + one)
    assert not allows(tokenizer, found, written(form, tokenizer, F.replace("f", "h")))
    single = plan(tokenizer, form, "required", parallel=False)
    assert allows(tokenizer, single, one) and not allows(tokenizer, single, two)
    assert not read(found, one[: one.index("1")])[1], "a call that is cut is none"


@pytest.mark.parametrize("tokenizer", [PLAIN, SPECIAL], ids=["plain", "special"])
@pytest.mark.parametrize("form", FORMS)
def test_nothing_of_a_cut_call_is_lost(form: str, tokenizer: Tokenizer) -> None:
    """Wherever `max_tokens` cuts: before the arguments it is content, then arguments so far."""
    text = written(form, tokenizer, F.replace('"f"', '"get_f"'), G.replace('"g"', '"get_g"'))
    tools = [tool("get_f", A, strict=True), tool("get_g")]
    found = plan(tokenizer, form, "required", tools=tools)
    assert allows(tokenizer, found, text)
    begins = [text.index('{"a"'), text.rindex("{}")]
    for cut in range(1, len(text) + 1):
        said, _ = read(found, text[:cut])
        names = [piece.name for piece in said.calls if piece.id]
        known = {sum(one < cut for one in begins), sum(one <= cut for one in begins)}
        assert names == ["get_f", "get_g"][: len(names)] and len(names) in known, text[:cut]
        if not names:
            assert said.content == text[:cut]
        arguments = "".join(piece.arguments for piece in said.calls if piece.index == 0)
        assert arguments == text[begins[0] : cut][: len('{"a": 1}')]
        second = text.index("get_g")
        assert second > cut or len(names) > 1 or said.content.endswith(text[second:cut])


@pytest.mark.parametrize("form", FORMS)
def test_a_named_tool(form: str) -> None:
    found = plan(SPECIAL, form, {"type": "function", "function": {"name": "f"}})
    one = written(form, SPECIAL, F) if form in OWN else '{"a": 1}'
    assert allows(SPECIAL, found, one)
    assert not allows(SPECIAL, found, written(form, SPECIAL, F, G))
    assert not allows(SPECIAL, found, written(form, SPECIAL, G))
    said, called = read(found, one)
    assert called and "".join(p.arguments for p in said.calls) == '{"a": 1}'
    assert said.calls[0].name == "f" and not said.content


@pytest.mark.parametrize("tokenizer", [PLAIN, SPECIAL], ids=["plain", "special"])
@pytest.mark.parametrize("form", OWN)
def test_strict_tools_with_auto(form: str, tokenizer: Tokenizer) -> None:
    """Any text, but a call conforms. The tool that is not strict takes any object."""
    found = plan(tokenizer, form, "auto")
    any_g = G.replace("{}", '{"z": [1]}')
    for calls in ([F], [F, any_g]):
        text = written(form, tokenizer, *calls)
        assert allows(tokenizer, found, text)
        assert read(found, text)[1]
    wrong = written(form, tokenizer, WRONG)
    assert not allows(tokenizer, found, wrong)
    for text in ("", "Hi [TOOL <tool_cal", "é{\n"):
        assert allows(tokenizer, found, text)
        assert read(found, text)[0] == TurnDelta(text)
    if form != "llama3_json":
        assert allows(tokenizer, found, "Hi\n" + written(form, tokenizer, F))
        assert not allows(tokenizer, found, "Hi\n" + wrong)
    assert plan(tokenizer, form, "auto", tools=[tool("f", A)]).grammar is None
    assert plan(tokenizer, form, "none").grammar is None


def test_markers_spelled_out_do_not_pass_for_tokens() -> None:
    found = plan(SPECIAL, "hermes", "auto")
    assert found.grammar is not None
    matcher = COMPILERS[id(SPECIAL)].guide(found.grammar)._start.deep_copy()
    assert matcher.try_consume_tokens(list(b"x<tool_call>")) == len(b"x<tool_call")


@pytest.mark.parametrize("tokenizer", [PLAIN, SPECIAL], ids=["plain", "special"])
def test_grammars_begin_behind_reasoning(tokenizer: Tokenizer) -> None:
    call = written("hermes", tokenizer, F)
    inside = plan(tokenizer, "hermes", "required", reasoning="qwen3", prompt="x<think>\n")
    maybe = plan(tokenizer, "hermes", "required", reasoning="qwen3", prompt="x")
    closed = plan(tokenizer, "hermes", "required", reasoning="qwen3", prompt="x</think>\n\n")
    thought = f"So {{\n</think>\n\n{call}"
    for found, text, good in (
        (inside, thought, True), (inside, call, False), (maybe, call, True),
        (maybe, f"<think>{thought}", True), (maybe, thought, False), (closed, call, True),
        (closed, f"<think>{thought}", False), (inside, "</think>x", False),
    ):  # fmt: skip
        assert allows(tokenizer, found, text) == good, text
    said, called = read(inside, thought)
    assert called and said.reasoning == "So {" and not said.content


@pytest.mark.parametrize("tokenizer", [PLAIN_MESSAGES, MESSAGES], ids=["plain", "special"])
def test_an_answer_with_a_grammar_is_in_harmony_s_last_channel(tokenizer: Tokenizer) -> None:
    params = StructuredOutputsParams(choice=["yes"])
    options: Any = {"grammar": params, "reasoning": "openai_gptoss"}
    said = "So <b>\n<|end|><|start|>assistant"
    final = "<|channel|>final<|message|>yes"
    begin = "<|channel|>analysis<|message|>"
    for prompt, text, good in (
        ("x", begin + said + final, True), ("x", final, True), ("x", "yes", False),
        ("x", begin + said + "yes", False), ("x" + begin, said + final, True),
        ("x" + begin, final, False), ("x" + final.removesuffix("yes"), "yes", True),
    ):  # fmt: skip
        found = plan(tokenizer, "openai", "none", prompt=prompt, **options)
        assert allows(tokenizer, found, text) == good, (prompt, text)
        if good:
            assert read(found, text)[0].content == "yes"
    forced = plan(tokenizer, "openai", "required", reasoning="openai_gptoss", prompt="x")
    text = begin + said + final.removesuffix("yes") + written("none", tokenizer, F)
    assert allows(tokenizer, forced, text)
    found, called = read(forced, text)
    assert called and (found.reasoning, found.content) == ("So <b>", "")


@pytest.mark.parametrize(
    ("grammar", "answer"),
    [
        ({"json": A}, '{"a": 1}'),
        ({"json": json.dumps(A)}, '{"a": 1}'),
        ({"json_object": True}, '{"b": 1}'),
        ({"choice": ["a/b", 'c"']}, 'c"'),
        ({"regex": r"a/\/b\n?c"}, "a//bc"),
        ({"grammar": 'start: "x" b\nb: "y"+'}, "xyy"),
    ],
)
def test_the_answers_own_grammar(grammar: Any, answer: str) -> None:
    """Behind the reasoning; with tools, an answer that conforms or calls."""
    params = StructuredOutputsParams(**grammar)
    prompt = "<think>"
    found = plan(PLAIN, "hermes", None, tools=[], grammar=params, reasoning="qwen3", prompt=prompt)
    assert allows(PLAIN, found, f"So</think>\n\n{answer}")
    assert not allows(PLAIN, found, f"So</think>\n\n{answer}!")
    assert plan(PLAIN, "hermes", None, tools=[], grammar=params).grammar is params
    both = plan(PLAIN, "hermes", "auto", grammar=params)
    for text, good in ((answer, True), (written("hermes", PLAIN, F, G), True), ("!", False)):
        assert allows(PLAIN, both, text) == good
    assert plan(PLAIN, "pythonic", "auto", tools=[tool("f")], grammar=params).grammar is params


@pytest.mark.parametrize("form", ["hermes", "pythonic", "none"])
@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "g"}}])
def test_a_forced_call_goes_before_the_answers_grammar(form: str, choice: Any) -> None:
    """There is no answer that it could be for; so it is as if it were not given."""
    params = StructuredOutputsParams(choice=["yes"])
    alone, both = plan(PLAIN, form, choice), plan(PLAIN, form, choice, grammar=params)
    assert both.grammar is not None and both.grammar == alone.grammar
    assert not allows(PLAIN, both, "yes")


EBNF = 'root ::= "{" x "}"\nx ::= "b" | "c" x\n'


@pytest.mark.parametrize("tokenizer", [PLAIN, SPECIAL], ids=["plain", "special"])
def test_ebnf_goes_with_reasoning_and_tools(tokenizer: Tokenizer) -> None:
    """It is written as Lark where it is a part of another grammar."""
    params = StructuredOutputsParams(grammar=EBNF)
    for prompt, begin in (("x<think>", ""), ("x", "<think>"), ("x", None)):
        before = "" if begin is None else f"{begin}So</think>\n"
        for choice in ("none", "auto"):
            found = plan(
                tokenizer, "hermes", choice, grammar=params, reasoning="qwen3", prompt=prompt
            )
            assert allows(tokenizer, found, before + "{ccb}")
            assert not allows(tokenizer, found, before + "{ccc}")
            call = allows(tokenizer, found, before + written("hermes", tokenizer, F))
            assert call == (choice == "auto")
    assert plan(tokenizer, "hermes", "none", grammar=params).grammar is params


@pytest.mark.parametrize("form", ["pythonic", "none"])
@pytest.mark.parametrize("several", [True, False])
def test_strict_tools_without_a_grammar_are_taken(form: str, several: bool) -> None:
    """Clients make tools strict by default: such a model's calls are read as it writes them."""
    found = plan(PLAIN, form, "auto", parallel=several)
    assert found.grammar is None
    text = "[f(a='x'), g(), f(a=2)]"
    said, called = read(found, text)
    turn = found.new_turn()
    pieces = [piece for char in text for piece in turn.take(char, ended=False).calls]
    for calls in (said.calls, pieces):
        names = [one.name for one in calls if one.id]
        assert names == ([] if form == "none" else ["f", "g", "f"] if several else ["f"])
    assert called == (form == "pythonic") and said.content == ("" if called else text)


UNIQUE = {
    "type": "object",
    "properties": {"a": {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}},
    "required": ["a"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("form", OWN)
def test_what_no_grammar_holds_does_not_constrain_with_auto(form: str) -> None:
    """The rest of the schema does."""
    found = plan(PLAIN, form, "auto", tools=[tool("f", UNIQUE, strict=True)])
    for arguments, good in (("[1, 1]", True), ('["x"]', False), ("5", False)):
        text = written(form, PLAIN, F.replace('{"a": 1}', f'{{"a": {arguments}}}'))
        assert allows(PLAIN, found, text) == good, text


@pytest.mark.parametrize(
    ("tools", "choice", "parallel", "param", "why"),
    [
        ([tool("f"), tool("f")], None, True, "tools[1].function.name", "two tools are called"),
        ([{"type": "function", "function": {}}], None, True, "tools[0].function.name", "letters"),
        ([tool("a b")], None, True, "tools[0].function.name", "letters"),
        ([{"type": "function"}], None, True, "tools[0].function", "'name'"),
        ([{"type": "custom"}], None, True, "tools[0].type", "'function'"),
        ([tool("f", {"type": "string"})], None, True, "tools[0].function.parameters", "'object'"),
        ([tool("f", [1])], None, True, "tools[0].function.parameters", "'object'"),
        ([tool("f", {"properties": {"a": {"type": "foo"}}})], "required", True,
         "tools[0].function.parameters", "tool 'f' cannot be one: Invalid type: foo"),
        ([tool("f"), tool("g", UNIQUE)], "required", True,
         "tools[1].function.parameters", "tool 'g' cannot be one: Unimplemented keys: [\"unique"),
        ([tool("f"), tool("g", UNIQUE)], {"type": "function", "function": {"name": "g"}}, True,
         "tools[1].function.parameters", "tool 'g' cannot be one: Unimplemented keys: [\"unique"),
        ([tool("f", strict="yes")], None, True, "tools[0].function.strict", "boolean"),
        (TOOLS, {"type": "function", "function": {"name": "h"}}, True, "tool_choice", "(f, g)"),
        (TOOLS, {"type": "function"}, True, "tool_choice", "{'name': ..}"),
        (TOOLS, {"type": "allowed_tools"}, True, "tool_choice", "{'name': ..}"),
        (TOOLS, "f", True, "tool_choice", "'required'"),
        ([], "required", True, "tool_choice", "there are no tools"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(
    tools: Any, choice: Any, parallel: bool, param: str, why: str
) -> None:
    with pytest.raises(ApiError) as caught:
        plan(PLAIN, "pythonic", choice, tools=tools, parallel=parallel)
    assert caught.value.param == param and why in caught.value.message, caught.value.message


def random_output(tokenizer: Tokenizer, found: TurnPlan, rng: Random) -> str | None:
    """What a model would say that knows nothing; None: it would not end."""
    assert found.grammar is not None
    matcher = COMPILERS[id(tokenizer)].guide(found.grammar)._start.deep_copy()
    mask = np.zeros((1, (tokenizer.vocab_size + 31) // 32), np.uint32)
    ids: list[int] = []
    while len(ids) < 600:
        fill_masks([(matcher, 0)], mask)
        bits = np.unpackbits(mask.view(np.uint8), bitorder="little")[: tokenizer.vocab_size]
        allowed = np.flatnonzero(bits).tolist()
        token = EOS if EOS in allowed and rng.random() < 0.5 else rng.choice(allowed)
        if token == EOS:
            return tokenizer.decode(ids, skip_special_tokens=False)
        ids.append(token)
        matcher.consume_tokens([token])
    return None


@settings(max_examples=40, deadline=None)
@given(
    st.lists(schemas.filter(lambda one: one.get("type") == "object"), min_size=1, max_size=2),
    st.sampled_from(FORMS), st.sampled_from([PLAIN, SPECIAL]), st.integers(0, 99),
)  # fmt: skip
def test_arguments_conform(
    objects: list[dict[str, Any]], form: str, tokenizer: Tokenizer, seed: int
) -> None:
    tools = [tool(f"f{i}", schema) for i, schema in enumerate(objects)]
    found = plan(tokenizer, form, "required", tools=tools)
    text = random_output(tokenizer, found, Random(seed))
    if text is None:
        return
    said, called = read(found, text)
    assert called and not said.content
    for index in {one.index for one in said.calls}:
        pieces = [one for one in said.calls if one.index == index]
        schema = objects[int((pieces[0].name or "")[1:])]
        assert conforms(json.loads("".join(one.arguments for one in pieces)), schema)
