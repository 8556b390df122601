"""Which of a model's templates is used, and what an empty list of tools or calls means."""

import json
from pathlib import Path
from typing import Any

import pytest

from jax_engine.errors import ConfigError, WeightsError
from jax_engine.tokenization.chat_content import checked_messages
from jax_engine.tokenization.tokenizer import Tokenizer, load_tokenizer, templates_of
from tests.models.test_gguf import write_gguf
from tests.tokenization.conftest import sentencepiece_metadata
from tests.tokenization.test_chat import SCHEMA, make, transformers_text
from tests.tokenization.test_tokenizer import write_directory

USER = {"role": "user", "content": "hello"}
PLAIN = "plain:{% for m in messages %}{{ m.content }}{% endfor %}"
TOOLS = "tools:{% for t in tools %}{{ t.function.name }}{% endfor %}"
RAG = "rag:{{ documents | length }}"
NAMED = {"default": PLAIN, "tool_use": TOOLS, "rag": RAG}


def listed(templates: dict[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "template": one} for name, one in templates.items()]


def in_config(folder: Path) -> Path:
    return write_directory(folder, chat_template=listed(NAMED))


def in_files(folder: Path) -> Path:
    """Templates in files replace those of tokenizer_config.json."""
    write_directory(folder, chat_template=listed({"default": "old", "tool_use": "old"}))
    (folder / "chat_template.jinja").write_text(PLAIN)
    (folder / "additional_chat_templates").mkdir()
    for name in ("tool_use", "rag"):
        (folder / f"additional_chat_templates/{name}.jinja").write_text(NAMED[name])
    return folder


def beside_one_in_config(folder: Path) -> Path:
    in_files(folder)
    (folder / "chat_template.jinja").unlink()
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(config | {"chat_template": PLAIN}))
    return folder


def in_gguf(folder: Path) -> Path:
    metadata = sentencepiece_metadata() | {
        "tokenizer.chat_template": PLAIN,
        "tokenizer.chat_templates": ["tool_use", "rag"],
        "tokenizer.chat_template.tool_use": TOOLS,
        "tokenizer.chat_template.rag": RAG,
    }
    return write_gguf(folder / "m.gguf", tensors={}, extra=metadata)


def text(tokenizer: Tokenizer, **options: Any) -> str:
    return tokenizer.apply_chat_template([USER], tokenize=False, **options)


@pytest.mark.parametrize("write", [in_config, in_files, beside_one_in_config, in_gguf])
def test_with_tools_it_is_the_tools_template(write: Any, tmp_path: Path) -> None:
    tokenizer = load_tokenizer(write(tmp_path))
    assert text(tokenizer) == text(tokenizer, tools=None) == text(tokenizer, tools=[])
    assert text(tokenizer) == "plain:hello"
    assert text(tokenizer, tools=[SCHEMA]) == "tools:add"
    assert text(tokenizer, chat_template="rag", documents=[{"text": "a"}]) == "rag:1"
    assert text(tokenizer, chat_template="tool_use", tools=[SCHEMA]) == "tools:add"
    assert text(tokenizer, chat_template="own", tools=[SCHEMA]) == "own"
    assert tokenizer.chat.chosen(None, with_tools=True) == TOOLS
    theirs = tokenizer.hugging_face
    for tools in (None, [SCHEMA]):
        wanted = theirs.apply_chat_template([USER], tools=tools, tokenize=False)
        assert text(tokenizer, tools=tools) == wanted


@pytest.mark.parametrize("write", [in_config, in_files])
def test_transformers_chooses_the_same(write: Any, tmp_path: Path) -> None:
    """transformers reads the files itself."""
    from transformers import PreTrainedTokenizerFast

    folder = write(tmp_path)
    ours, theirs = load_tokenizer(folder), PreTrainedTokenizerFast.from_pretrained(folder)
    for options in ({}, {"tools": [SCHEMA]}, {"chat_template": "rag", "documents": [{"a": 1}]}):
        wanted = theirs.apply_chat_template([USER], tokenize=False, **options)
        assert text(ours, **options) == wanted


def test_one_template_serves_both() -> None:
    both = "{% if tools %}T{% else %}N{% endif %}"
    assert text(make(both), tools=[SCHEMA]) == "T"
    assert text(make(both), tools=[]) == text(make(both)) == "N"


def test_named_templates_without_a_default(tmp_path: Path) -> None:
    named = {"tool_use": TOOLS, "rag": RAG}
    tokenizer = load_tokenizer(write_directory(tmp_path, chat_template=listed(named)))
    assert text(tokenizer, tools=[SCHEMA]) == "tools:add"
    with pytest.raises(ConfigError, match=r"none called 'default'.*\(rag, tool_use\)"):
        text(tokenizer)


def test_files_of_templates_have_the_order_of_their_names(tmp_path: Path) -> None:
    """Whatever order the file system has."""
    (tmp_path / "additional_chat_templates").mkdir()
    for name in "hdbgcafe":
        (tmp_path / f"additional_chat_templates/{name}.jinja").write_text("")
    assert [*templates_of(tmp_path)] == [*"abcdefgh"]


def test_a_template_of_a_gguf_file_that_is_no_text(tmp_path: Path) -> None:
    extra = sentencepiece_metadata() | {"tokenizer.chat_template.tool_use": 5}
    with pytest.raises(WeightsError, match=r"m\.gguf: .*must be a string"):
        load_tokenizer(write_gguf(tmp_path / "m.gguf", tensors={}, extra=extra))


# What templates ask: whether the field is there at all, or whether it holds anything.
IS_DEFINED = (
    "{% for m in messages %}{% if m.tool_calls is defined %}"
    "{% if m.tool_calls | length == 0 %}{{ raise_exception('no calls') }}{% endif %}"
    "call {{ m.tool_calls[0].function.name }}{% else %}{{ m.content }}{% endif %};{% endfor %}"
)
IN_MESSAGE = (
    "{% for m in messages %}{% if 'tool_calls' in m %}{% for c in m.tool_calls %}"
    "call {{ c.function.name }}{% endfor %}{% else %}{{ m.content }}{% endif %};{% endfor %}"
)
NOT_NONE = (
    "{% for m in messages %}{% if m.tool_calls is defined and m.tool_calls is not none %}"
    "call {{ m.tool_calls[0].function.name }}{% elif m.function_call is defined %}old"
    "{% else %}{{ m.content }}{% endif %};{% endfor %}"
)
# An answer of a server, as the openai client writes it back.
ANSWER = {
    "role": "assistant", "content": "hi", "refusal": None, "annotations": None, "audio": None,
    "function_call": None, "tool_calls": [],
}  # fmt: skip


@pytest.mark.parametrize("template", [IS_DEFINED, IN_MESSAGE, NOT_NONE])
@pytest.mark.parametrize("calls", [[], None, (), "absent"])
def test_no_calls_are_as_if_the_field_were_absent(template: str, calls: Any) -> None:
    answer = {**ANSWER, "tool_calls": calls}
    if calls == "absent":
        del answer["tool_calls"]
    before = dict(answer)
    chat = [USER, answer, USER]
    assert make(template).apply_chat_template(chat, tokenize=False) == "hello;hi;hello;"
    assert checked_messages(chat)[1] == {"role": "assistant", "content": "hi"}
    assert answer == before
    plain = [USER, {"role": "assistant", "content": "hi"}, USER]
    assert transformers_text(make(template), plain, template) == "hello;hi;hello;"


@pytest.mark.parametrize("template", [IS_DEFINED, IN_MESSAGE, NOT_NONE])
def test_calls_are_there_if_there_are_some(template: str) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "add", "arguments": "{}"}}
    chat = [USER, {"role": "assistant", "content": None, "tool_calls": [call]}]
    assert make(template).apply_chat_template(chat, tokenize=False) == "hello;call add;"


@pytest.mark.parametrize("name", ["tools", "documents"])
def test_an_empty_list_is_none(name: str) -> None:
    """The template may ask in any way."""
    template = (
        f"{{% if {name} is not none and {name} is defined %}}some{{% else %}}none{{% endif %}}"
    )
    for value in ([], None):
        assert text(make(template), **{name: value}) == "none"
    assert text(make(template), **{name: [SCHEMA]}) == "some"
