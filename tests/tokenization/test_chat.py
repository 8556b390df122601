"""Chat templates: contents as text or as parts, tools, and the same text as transformers'."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from jax_engine.engine.requests.prompts import chat_prompts
from jax_engine.errors import ConfigError, InvalidRequestError
from jax_engine.tokenization import chat_template as chat_module
from jax_engine.tokenization.chat_content import content_text
from jax_engine.tokenization.chat_template import load_chat_template
from jax_engine.tokenization.gguf_tokenizer import backend_from_gguf
from jax_engine.tokenization.tokenizer import Tokenizer, load_tokenizer
from tests.tokenization.conftest import byte_level_metadata, word_pieces

BOS = "{{ bos_token }}"
TURN = "{% if add_generation_prompt %}<|user|>assistant:{% endif %}"
# For text only; it prints a list as Python does.
TEXT = BOS + "{% for m in messages %}<|user|>{{ m.role }}:{{ m.content }}<|end|>{% endfor %}" + TURN
# For lists of parts only.
PARTS = (
    BOS + "{% for m in messages %}<|user|>{{ m.role }}:"
    "{% for part in m.content %}{{ part.text }}{% endfor %}<|end|>{% endfor %}" + TURN
)
# For both, and with tools.
BOTH = (
    BOS + "{% if tools %}tools:{{ tools | tojson }}{% endif %}"
    "{% for m in messages %}<|user|>{{ m.role }}:{% if m.content is string %}{{ m.content | trim }}"
    "{% else %}{% for part in m.content %}({{ part.text }}){% endfor %}{% endif %}<|end|>"
    "{% endfor %}" + TURN
)
TEMPLATES = {"text": TEXT, "parts": PARTS, "both": BOTH}
SCHEMA = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Adds two numbers.",
        "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}},
    },
}
CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "hello <|end|> there "},
    {"role": "assistant", "content": " hi "},
]


def add(a: int, b: int) -> int:
    """Adds two numbers.

    Args:
        a: The first.
        b: The second.
    """
    return a + b


def make(template: str | dict[str, str] | None = None) -> Tokenizer:
    """A tokenizer that writes BOS itself where it is asked to."""
    metadata = byte_level_metadata() | {"tokenizer.ggml.add_bos_token": True}
    special = {"bos_token": "<|bos|>", "eos_token": "<|end|>"}
    return Tokenizer(backend_from_gguf(metadata), special_tokens=special, chat_template=template)


def parts(*texts: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text} for text in texts]


def transformers_text(tokenizer: Tokenizer, messages: Any, template: str, **options: Any) -> str:
    from transformers import PreTrainedTokenizerFast

    theirs = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer.backend, bos_token="<|bos|>", eos_token="<|end|>"
    )
    return theirs.apply_chat_template(messages, chat_template=template, tokenize=False, **options)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"add_generation_prompt": True},
        {"continue_final_message": True},
        {"tools": [SCHEMA]},
        {"tools": [add, SCHEMA], "add_generation_prompt": True},
    ],
    ids=["plain", "turn", "continued", "schema", "function"],
)
@pytest.mark.parametrize("name", ["text", "both"])
def test_the_text_is_that_of_transformers(name: str, options: dict[str, Any]) -> None:
    """So is the text of contents in parts, where the template takes them."""
    template, tokenizer = TEMPLATES[name], make(TEMPLATES[name])
    wanted = transformers_text(tokenizer, CHAT, template, **options)
    assert tokenizer.apply_chat_template(CHAT, tokenize=False, **options) == wanted
    if name == "both":
        assert ("tools:" in wanted) == ("tools" in options)
        chat = [*CHAT, {"role": "user", "content": parts("a", "b")}]
        wanted = transformers_text(tokenizer, chat, template, **options)
        assert tokenizer.apply_chat_template(chat, tokenize=False, **options) == wanted


def test_contents_reach_each_template_as_it_takes_them() -> None:
    chat = [{"role": "user", "content": "hello"}, {"role": "user", "content": parts("he", "llo")}]
    texts = {
        name: make(template).apply_chat_template(chat, tokenize=False)
        for name, template in TEMPLATES.items()
    }
    assert texts == {
        "text": "<|bos|><|user|>user:hello<|end|><|user|>user:he\nllo<|end|>",
        "parts": "<|bos|><|user|>user:hello<|end|><|user|>user:hello<|end|>",
        "both": "<|bos|><|user|>user:hello<|end|><|user|>user:(he)(llo)<|end|>",
    }
    tokenizer = make(BOTH)
    forced = tokenizer.apply_chat_template(chat, tokenize=False, content_format="string")
    assert forced.endswith("user:he\nllo<|end|>")
    forced = tokenizer.apply_chat_template(chat, tokenize=False, content_format="openai")
    assert forced.startswith("<|bos|><|user|>user:(hello)")


CALLS = (
    "{% for m in messages %}{{ m.content }}{% for call in m.tool_calls %}[{{ call.function.name }}"
    "{% for name, value in call.function.arguments.items() %} {{ name }}={{ value }}{% endfor %}]"
    "{% endfor %}{% endfor %}"
)


def calling(*arguments: Any) -> dict[str, Any]:
    """An assistant's message that calls `add` with each of these."""
    calls = [{"type": "function", "function": {"name": "add", "arguments": a}} for a in arguments]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def test_arguments_of_tool_calls_reach_the_template_as_mappings() -> None:
    """OpenAI's messages carry them as text; the same as transformers makes of mappings."""
    chat = [CHAT[1], calling('{"a": 1, "b": [2]}', {"a": 3}, "", None, "{}", "[]")]
    before = json.dumps(chat)
    text = make(CALLS).apply_chat_template(chat, tokenize=False)
    assert text.endswith("[add a=1 b=[2]][add a=3][add][add][add][add]")
    assert json.dumps(chat) == before
    mappings = [CHAT[1], calling({"a": 1, "b": [2]}, {"a": 3}, {}, {}, {}, {})]
    assert text == transformers_text(make(CALLS), mappings, CALLS)


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (
            calling("{}", "{a: 1}"),
            r"messages\[1\]\['tool_calls'\]\[1\].*JSON object, got '{a: 1}': E",
        ),
        (calling("[1]"), r"messages\[1\].*JSON object"),
        (calling(7), r"messages\[1\].*JSON object, got 7"),
        (calling("7"), r"messages\[1\].*JSON object"),
        ({"role": "assistant", "tool_calls": "add"}, r"messages\[1\].* list of calls, got str"),
        ({"role": "assistant", "tool_calls": b"add"}, "list of calls, got bytes"),
        ({"role": "assistant", "tool_calls": 5}, "list of calls, got int"),
        ({"role": "assistant", "tool_calls": ["add"]}, r"messages\[1\].*'function'.*got 'add'"),
        ({"role": "assistant", "tool_calls": [{"type": "function"}]}, "'function': {'name'"),
    ],
)
def test_tool_calls_of_another_form_are_refused(message: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidRequestError, match=words):
        make(CALLS).apply_chat_template([CHAT[1], message], tokenize=False)


def test_the_messages_given_stay_as_they_are() -> None:
    chat = [{"role": "user", "content": parts("a")}]
    before = json.dumps(chat)
    make(TEXT).apply_chat_template(chat, continue_final_message=True)
    assert json.dumps(chat) == before


def test_there_is_one_bos() -> None:
    """The template writes it, and this tokenizer would too."""
    tokenizer = make(TEXT)
    assert tokenizer.encode("x")[0] == tokenizer.bos_token_id
    assert tokenizer.apply_chat_template(CHAT).count(tokenizer.bos_token_id) == 1


def test_prompts_of_conversations_have_one_bos() -> None:
    """What `LLM.chat` runs: the tokens of the text as it is, and the text.

    `tests/engine/test_chat.py` has its options, and `test_conversations.py` what is refused.
    """
    tokenizer = make(TEXT)
    chats = [CHAT, CHAT[1:2]]
    prompts = chat_prompts(tokenizer, chats, None, add_generation_prompt=True)
    texts = [
        tokenizer.apply_chat_template(c, tokenize=False, add_generation_prompt=True) for c in chats
    ]
    ids = [tokenizer.encode(text, add_special_tokens=False) for text in texts]
    assert prompts == [
        {"prompt": text, "prompt_token_ids": one} for text, one in zip(texts, ids, strict=True)
    ]
    assert [one.count(tokenizer.bos_token_id) for one in ids] == [1, 1]
    assert ids[0] == tokenizer.apply_chat_template(CHAT, add_generation_prompt=True)
    (alone,) = chat_prompts(tokenizer, CHAT, None, add_generation_prompt=True)
    assert alone == prompts[0]
    (silent,) = chat_prompts(tokenizer, CHAT, None, add_generation_prompt=False)
    assert texts[0].startswith(silent["prompt"]) and silent["prompt"] != texts[0]


def test_parts_of_other_names_are_text() -> None:
    """So are parts of OpenAI's other APIs, refusals, and bare strings."""
    content = [
        "a", {"type": "text", "text": "b"}, {"type": "input_text", "text": "c"},
        {"type": "output_text", "text": "d"}, {"type": "refusal", "refusal": "e"},
    ]  # fmt: skip
    for name in ("text", "both"):
        messages = [{"role": "user", "content": one} for one in (content, parts(*"abcde"))]
        odd, plain = (make(TEMPLATES[name]).apply_chat_template([m]) for m in messages)
        assert odd == plain
    assert content_text(content) == "a\nb\nc\nd\ne"
    assert (content_text(None), content_text("ab")) == ("", "ab")


def test_other_fields_of_a_part_reach_the_template() -> None:
    template = "{% for part in messages[0].content %}{{ part.text }}{{ part.mark }}{% endfor %}"
    chat = [{"role": "user", "content": [*parts("a"), {"type": "text", "text": "b", "mark": "!"}]}]
    wanted = transformers_text(make(), chat, template)
    assert make(template).apply_chat_template(chat, tokenize=False) == wanted == "ab!"


def test_few_templates_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server may be asked with another one each time."""
    monkeypatch.setattr(chat_module, "MAX_TEMPLATES", 3)
    tokenizer = make(TEXT)
    for number in range(9):
        text = tokenizer.apply_chat_template(
            [{"role": "user", "content": "x"}],
            tokenize=False,
            chat_template=f"{number}{{{{ messages[0].content }}}}",
        )
        assert text == f"{number}x" and len(tokenizer.chat._formats) <= 3


def undocumented(a: int) -> int:
    return a


def untyped(a):  # type: ignore[no-untyped-def]
    """Says nothing of its argument."""


@pytest.mark.parametrize(
    ("messages", "options", "words"),
    [
        ([], {}, "at least 1 message"),
        ("hi", {}, "must be a list of messages, got str"),
        (b"hi", {}, "must be a list of messages, got bytes"),
        (CHAT[0], {}, "must be a list of messages, got dict"),
        (iter(CHAT), {}, "must be a list of messages, got list_iterator"),
        (["hi"], {}, r"messages\[0\] must be a dict, got str"),
        ([CHAT[0], {"content": "hi"}], {}, r"messages\[1\] must have a role"),
        ([{"role": "user", "content": 5}], {}, r"\['content'\] must be text or a list"),
        ([{"role": "user", "content": b"hi"}], {}, "must be text or a list of parts, got bytes"),
        (
            [CHAT[0], {"role": "user", "content": [*parts("a"), {"type": "image_url"}]}],
            {},
            r"messages\[1\]\['content'\]\[1\] must be .* got one of type 'image_url'.*text only",
        ),
        ([{"role": "user", "content": [5]}], {}, "got one of type 'int'"),
        ([{"role": "user", "content": [{"type": ["text"], "text": "a"}]}], {}, "type \\['text'\\]"),
        ([{"role": "user", "content": [{"type": "refusal", "text": "a"}]}], {}, "type 'refusal'"),
        ([{"role": "user", "content": [{"type": "input_text", "text": 5}]}], {}, "'input_text'"),
        (
            CHAT,
            {"add_generation_prompt": True, "continue_final_message": True},
            "add_generation_prompt and continue_final_message .*add_generation_prompt=False",
        ),
        (CHAT, {"content_format": "json"}, "auto, string, openai, got 'json'"),
        (CHAT, {"tools": [3]}, r"tools\[0\] must be a JSON schema .* got int"),
        (CHAT, {"tools": [SCHEMA, undocumented]}, r"tools\[1\].*docstring"),
        (CHAT, {"tools": [untyped]}, r"tools\[0\].*type hint"),
        (CHAT, {"chat_template": "{% for %}"}, "refuses these messages"),
        (
            [{"role": "assistant", "content": None}],
            {"continue_final_message": True},
            'no "content" to continue',
        ),
    ],
)
def test_what_is_refused_says_why(messages: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidRequestError, match=words):
        make(TEXT).apply_chat_template(messages, **options)


def test_a_template_may_be_the_path_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "template.jinja"
    file.write_text("F")
    assert load_chat_template(str(file)) == load_chat_template(file) == "F"
    assert load_chat_template(None) is None
    for template in ("{{ x }}", "{%", "}", "two\nlines"):
        assert load_chat_template(template) == template
    with pytest.raises(ConfigError, match="chat_template must be Jinja or a path, got 3"):
        load_chat_template(3)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"Jinja or the path of a file, got 'none': .*No such"):
        load_chat_template("none")


def test_hugging_face_s_own_tokenizer_says_the_same() -> None:
    """What `LLM.get_tokenizer` gives: the template, the special tokens, and the text."""
    tokenizer = make(TEXT)
    tokenizer.backend.add_tokens(["<tool>"])
    theirs = tokenizer.hugging_face
    wanted = tokenizer.apply_chat_template(CHAT, tokenize=False)
    assert theirs.apply_chat_template(CHAT, tokenize=False) == wanted
    assert set(theirs.all_special_ids) == tokenizer.special_ids
    words = word_pieces()
    assert words.hugging_face.decode([1, 2, 6]) == words.decode([1, 2, 6]) == "hello !"


@pytest.mark.slow
def test_what_is_silenced_for_an_import_is_not_afterwards() -> None:
    """The process has not imported it before. `os.environ`, which all threads share, stays."""
    code = """
import logging, os
from jax_engine.tokenization.chat_template import renderer_class
set_one, changed = os._Environ.__setitem__, []
os._Environ.__setitem__ = lambda self, *pair: (changed.append(pair[0]), set_one(self, *pair))
renderer_class()
print("TRANSFORMERS_NO_ADVISORY_WARNINGS" in changed)
logging.getLogger("transformers").warning("shown")
"""
    shows = {name: value for name, value in os.environ.items() if name != "TRANSFORMERS_VERBOSITY"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, env=shows)
    assert (done.stdout, done.stderr.count("\n")) == ("False\n", 1), done.stderr
    assert "shown" in done.stderr


@pytest.mark.model
def test_smollm2_s_own_template(smollm2_path: Path) -> None:
    tokenizer = load_tokenizer(smollm2_path)
    chat = [{"role": "user", "content": parts("What is", "2 + 2?")}]
    text = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    assert text.endswith("<|im_start|>user\nWhat is\n2 + 2?<|im_end|>\n<|im_start|>assistant\n")
    assert text.startswith("<|im_start|>system\nYou are a helpful AI assistant named SmolLM")
    answer = [*chat, {"role": "assistant", "content": "It is"}]
    text = tokenizer.apply_chat_template(answer, tokenize=False, continue_final_message=True)
    assert text.endswith("<|im_start|>assistant\nIt is")
    ids = tokenizer.apply_chat_template(chat)
    assert tokenizer.decode(ids, skip_special_tokens=False).count("<|im_start|>") == 2
