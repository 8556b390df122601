"""`LLM.chat` against conversations written in plain Python: one BOS, marks, parts, options."""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jax_engine import LLM, InvalidRequestError, SamplingParams
from reference.text import decode
from tests.support.chat_oracle import (
    BOS,
    END,
    MARKS,
    TEMPLATE,
    TURN,
    VOCAB,
    WORDS,
    encoded,
    rendered,
    save_chat_tokenizer,
)
from tests.support.tiny_llama import tiny_llama

QUICK = SamplingParams(temperature=2.0, seed=1, max_tokens=2, ignore_eos=True)


@pytest.fixture(scope="module")
def llm(tmp_path_factory):
    path, _ = tiny_llama(
        tmp_path_factory.mktemp("models") / "chat", vocab_size=VOCAB, max_position_embeddings=256
    )
    save_chat_tokenizer(path)
    few_shapes = {"max_num_batched_tokens": 8, "max_num_seqs": 2}
    return LLM(str(path), block_size=8, num_gpu_blocks_override=100, **few_shapes)


texts = st.lists(st.sampled_from(["hi", "é€", " ", "\n", "{{ x }}", BOS, END, TURN, "<|", "a:b"]))
contents = texts.map("".join) | st.lists(
    texts.map(lambda words: {"type": "text", "text": "".join(words)}), max_size=2
)
messages = st.fixed_dictionaries(
    {"role": st.sampled_from(["system", "user", "assistant"]), "content": contents}
)
conversations = st.lists(messages, min_size=1, max_size=3).filter(
    lambda chat: len(encoded(rendered(chat))) < 100
)


@given(chats=st.lists(conversations, min_size=1, max_size=2), turn=st.booleans())
@example([[{"role": "user", "content": f"{BOS}hi{END}"}], [{"role": "user", "content": []}]], True)
def test_prompts_are_the_conversations_and_begin_with_one_bos(
    llm: LLM, chats: list[list[dict[str, Any]]], turn: bool
) -> None:
    """Prompts keep their order. The tokenizer writes BOS before a text, but no second one."""
    outputs = llm.chat(chats, QUICK, use_tqdm=False, add_generation_prompt=turn)
    wanted = [rendered(chat, turn=turn) for chat in chats]
    assert [output.prompt for output in outputs] == wanted
    assert [output.prompt_token_ids for output in outputs] == [encoded(text) for text in wanted]
    for output in outputs:
        (one,) = output.outputs
        assert one.text == decode(WORDS, one.token_ids, behind_prompt=True)
    (plain,) = llm.generate("hi", QUICK, use_tqdm=False)
    assert plain.prompt_token_ids == [MARKS[BOS], *b"hi"]


@given(chat=conversations, last=st.sampled_from(["well", "é", "x y"]))
def test_a_last_message_is_continued_where_it_ends(
    llm: LLM, chat: list[dict[str, Any]], last: str
) -> None:
    chat = [*chat[:2], {"role": "assistant", "content": last}]
    (output,) = llm.chat(
        chat, QUICK, False, add_generation_prompt=False, continue_final_message=True
    )
    assert output.prompt == rendered(chat, continued=True)
    assert output.prompt_token_ids == encoded(output.prompt)


def test_options_reach_the_template(llm) -> None:
    chat = [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]
    template = "{{ mood }}{% if tools %}{{ tools[0].name }}{% endif %}{{ messages[0].content }}"
    options = {"tools": [{"name": "f"}], "chat_template_kwargs": {"mood": "glad:"}}
    (one,) = llm.chat(chat, QUICK, False, chat_template=template, **options)
    assert (one.prompt, one.prompt_token_ids) == ("glad:fhi", list(b"glad:fhi"))
    listed = template.replace("messages[0].content", "messages[0].content[0].text")
    (one,) = llm.chat(chat, QUICK, False, chat_template=listed, **options)
    assert one.prompt == "glad:fhi"
    (one,) = llm.chat(
        chat, QUICK, False, chat_template=template, chat_template_content_format="openai", **options
    )
    assert "'type'" in one.prompt
    (one,) = llm.chat(chat, QUICK, False, timeout=1e-9)
    assert (one.prompt, one.outputs[0].stop_reason) == (rendered(chat), "timeout")


def test_prompts_can_be_cut(llm) -> None:
    """From the end that is said, in a conversation as in a text."""
    chat, text = [{"role": "user", "content": "hello"}], TEMPLATE[:9]
    ids = encoded(rendered(chat))
    for kwargs, wanted in [
        ({"truncate_prompt_tokens": 4}, ids[-4:]),
        ({"truncation": True, "max_length": 4}, ids[:4]),
        ({"truncation": True, "max_length": 4, "truncation_side": "left"}, ids[-4:]),
        ({"max_length": 4}, ids),
        ({"add_special_tokens": True}, [MARKS[BOS], *ids]),
    ]:
        (one,) = llm.chat(chat, QUICK, False, tokenization_kwargs=kwargs)
        assert (one.prompt, one.prompt_token_ids) == (rendered(chat), wanted)
    kwargs = {"add_special_tokens": False}
    (one,) = llm.generate(text, QUICK, use_tqdm=False, tokenization_kwargs=kwargs)
    assert one.prompt_token_ids == encoded(text)


def test_what_is_bad_is_named_and_nothing_is_started(llm) -> None:
    good = [{"role": "user", "content": "hi"}]
    for chat, options, words in [
        ([good, [{"content": "hi"}]], {}, r"conversation 1: messages\[0\] must have a role"),
        (good, {"continue_final_message": True}, "set add_generation_prompt=False"),
        (good, {"chat_template_kwargs": {"tools": [], "tokenize": True}}, "got tokenize, tools"),
        ("hi", {}, "messages must be a list of dicts"),
        (good, {"tools": 3}, "tools must be"),
    ]:
        with pytest.raises(InvalidRequestError, match=words):
            llm.chat(chat, QUICK, False, **options)
    assert not llm.llm_engine.has_unfinished_requests()
