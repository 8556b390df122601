"""Mistral's own tokenizers and instruct formats, against the ids of Mistral's own package."""

import base64
import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_engine.errors import ConfigError, InvalidRequestError, JaxEngineError, WeightsError
from jax_engine.tokenization.mistral_templates import VERSIONS, instruct_template
from jax_engine.tokenization.mistral_tokenizers import mistral_file
from jax_engine.tokenization.tokenizer import Tokenizer, load_tokenizer
from tests.golden import tiny_mistral as tiny

GOLDENS: dict[str, dict[str, Any]] = json.loads(tiny.GOLDENS.read_text())


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tokenizer]:
    found = tiny.write_all(tmp_path_factory.mktemp("mistral"))
    return {name: load_tokenizer(file.parent) for name, file in found.items()}


@pytest.mark.parametrize("name", GOLDENS)
def test_tokens_of_texts_are_those_of_mistral_s_package(
    name: str, tokenizers: dict[str, Tokenizer]
) -> None:
    tokenizer = tokenizers[name]
    assert (tokenizer.bos_token_id, tokenizer.eos_token_ids) == (1, (2,))
    for text, expected in zip(tiny.TEXTS, GOLDENS[name]["texts"], strict=True):
        assert tokenizer.encode(text) == expected, text
        assert tokenizer.decode(expected) == text


@pytest.mark.parametrize("name", GOLDENS)
def test_tokens_of_chats_are_those_of_mistral_s_package(
    name: str, tokenizers: dict[str, Tokenizer]
) -> None:
    for chat, expected in GOLDENS[name]["chats"].items():
        messages, has_tools = tiny.CHATS[chat]
        tools = tiny.TOOLS if has_tools else None
        found = tokenizers[name].apply_chat_template(
            messages, tools=tools, add_generation_prompt=True
        )
        shown = tokenizers[name].decode(found, skip_special_tokens=False)
        assert found == expected, (chat, shown)


def test_control_tokens_and_ranks_beyond_the_vocabulary(tokenizers: dict[str, Tokenizer]) -> None:
    """As many control tokens as the file has places for; the last rank is left out."""
    for name in tiny.VERSIONS:
        tokenizer = tokenizers[name]
        assert tokenizer.vocab_size == tiny.NUM_PLACES + len(tiny.ranked_tokens())
        assert tokenizer.special_ids == frozenset(range(tiny.NUM_PLACES))
        added = tokenizer.backend.get_added_tokens_decoder().values()
        assert not any(one.normalized for one in added)  # as transformers marks them
        ids = [tokenizer.backend.token_to_id(one) for one in ("[INST]", "<SPECIAL_39>", "[ARGS]")]
        assert ids == [3, 39, 20 if name in ("v11", "v13") else None]
        assert tokenizer.backend.token_to_id(tiny.BEYOND.decode().replace(" ", "Ġ")) is None
        assert tokenizer.decode([3, 39, tiny.NUM_PLACES + ord("a")]) == "a"


def test_what_a_format_does_not_have_is_refused(tokenizers: dict[str, Tokenizer]) -> None:
    user, call = tiny.USER, tiny.CALLS
    both = call | {"content": "so"}
    for name, messages, tools in (
        ("tokenizer.model.v1", [user], tiny.TOOLS),
        ("tokenizer.model.v1", [user, call], None),
        ("tokenizer.model.v3", [user, both], None),
        ("v13", [user, {"role": "critic", "content": "no"}], None),
    ):
        with pytest.raises(InvalidRequestError, match="The chat template refuses"):
            tokenizers[name].apply_chat_template(messages, tools=tools)
    assert tokenizers["v7"].apply_chat_template([user, both, user])
    assert instruct_template(2) is None and all(map(instruct_template, VERSIONS))


def test_messages_of_one_speaker_are_joined_and_the_last_one_may_go_on(
    tokenizers: dict[str, Tokenizer],
) -> None:
    user = tiny.USER
    text = tokenizers["v7"].apply_chat_template([user, user], tokenize=False)
    assert text == "<s>[INST]hello the world\n\nhello the world[/INST]"
    text = tokenizers["v3"].apply_chat_template(
        [user, tiny.REPLY], tokenize=False, continue_final_message=True
    )
    assert text == "<s>[INST]hello the world[/INST]café hello"


@pytest.mark.parametrize("version", ["v2", "v15"])
def test_a_version_without_a_known_format_needs_a_template(version: str, tmp_path: Path) -> None:
    fields = tiny.tekken("v13")
    fields["config"]["version"] = version
    (tmp_path / "tekken.json").write_text(json.dumps(fields))
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.encode("hello")
    with pytest.raises(ConfigError, match=r"no chat template.*chat_template"):
        tokenizer.apply_chat_template([tiny.USER])
    (tmp_path / "chat_template.jinja").write_text("{{ messages[0].content }}")
    own = load_tokenizer(tmp_path).apply_chat_template([tiny.USER], tokenize=False)
    assert own == "hello the world"


@pytest.mark.parametrize(
    ("names", "wanted", "expected"),
    [
        (["tekken.json"], False, "tekken.json"),
        (["tekken.json", "tokenizer.json"], False, None),
        (["tekken.json", "tokenizer.json"], True, "tekken.json"),
        (["tekken.json", "tokenizer.json", "params.json", "config.json"], False, None),
        (
            ["tekken.json", "tokenizer.json", "params.json", "consolidated.safetensors"],
            False,
            "tekken.json",
        ),
        (["tokenizer.model.v3", "tokenizer.model.v7m1", "tokenizer.model"], True,
         "tokenizer.model.v7m1"),
        (["tokenizer.model.v11", "tokenizer.model.v3"], False, "tokenizer.model.v11"),
        (["tokenizer.model"], False, None),
        (["tokenizer.model", "params.json", "consolidated.safetensors"], False, None),
        (["tokenizer.model"], True, "tokenizer.model"),
        (["tokenizer.json"], True, None),
    ],
)  # fmt: skip
def test_which_file_is_read(names: list[str], wanted: bool, expected: str | None) -> None:
    assert mistral_file(names, wanted=wanted) == expected


def test_the_mode_says_which_files_are_read(tmp_path: Path) -> None:
    (tmp_path / "tekken.json").write_text(json.dumps(tiny.tekken("v3")))
    load_tokenizer(tmp_path).backend.save(str(tmp_path / "tokenizer.json"))
    own = load_tokenizer(tmp_path, mode="mistral")
    other = load_tokenizer(tmp_path, mode="hf")
    assert own.chat.template and not other.chat.template
    assert own.encode("hello café") == other.encode("hello café")
    (tmp_path / "tekken.json").unlink()
    with pytest.raises(ConfigError, match=r'tokenizer_mode="mistral", but .* no tekken\.json'):
        load_tokenizer(tmp_path, mode="mistral")
    (tmp_path / "tokenizer.json").unlink()
    (tmp_path / "tokenizer.model").write_bytes(tiny.sentencepiece(1))
    assert load_tokenizer(tmp_path, mode="mistral").chat.template == instruct_template(1)
    assert load_tokenizer(tmp_path).chat.template is None


def _changed(**config: Any) -> dict[str, Any]:
    fields = tiny.tekken("v11")
    return fields | {"config": fields["config"] | config}


def _with_vocab(place: int, **entry: Any) -> dict[str, Any]:
    fields = tiny.tekken("v11")
    fields["vocab"][place] |= entry
    return fields


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _with_control(*tokens: tuple[int, str]) -> dict[str, Any]:
    return tiny.tekken(
        "v11", special_tokens=[{"rank": rank, "token_str": one} for rank, one in tokens]
    )


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        # A piece that is a token is not joined from others, and the pattern alone cuts pieces.
        (_with_vocab(280, token_bytes=_b64(b"(xyz")), [1, 40 + 280]),
        (_changed(default_vocab_size=40 + 256), [1, *(40 + byte for byte in b"(xyz")]),
        (_with_vocab(-1, token_bytes="?"), [1, *(40 + byte for byte in b"(xyz")]),  # it is left out
        (_with_control((0, "<unk>")), [40 + byte for byte in b"(xyz"]),
    ],
    ids=["a token without merges", "bytes only", "a damaged rank beyond", "no token begins"],
)
def test_odd_files_that_are_read(
    fields: dict[str, Any], expected: list[int], tmp_path: Path
) -> None:
    (tmp_path / "tekken.json").write_text(json.dumps(fields))
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.encode("(xyz") == expected
    assert tokenizer.decode(expected) == "(xyz"


WRONG: list[tuple[Any, str]] = [
    ({}, "config is missing"),
    ([], "must hold a JSON object"),
    (_changed(pattern=3), r"config\.pattern must be a string"),
    (_changed(pattern="(((") , "make no tokenizer"),
    (_changed(version="3"), r"config\.version '3' is not supported"),
    (_changed(default_vocab_size=0), r"config\.default_vocab_size must be"),
    (_changed(default_vocab_size=2**31 - 1), "no token of rank"),
    (_changed(default_num_special_tokens=-1), "default_num_special_tokens must be"),
    (_changed(default_num_special_tokens=5), r"above each rank of special_tokens, got 5"),
    (_changed(default_num_special_tokens=2**31 - 1), "at most default_vocab_size"),
    (_changed(default_vocab_size=100), "must have each byte"),
    (_with_vocab(0, rank=1), "no token of rank 0"),
    (_with_vocab(7, token_bytes="?"), "token 7 is damaged"),
    (_with_vocab(7, token_bytes="é"), "token 7 is damaged: .* only ASCII"),
    (_with_vocab(7, token_bytes=""), "no token of rank 7"),
    (_with_vocab(7, token_bytes="A" * 2000), "token_bytes must be"),
    (_with_vocab(280, token_bytes=_b64(b"a")), "each token once"),
    (_with_vocab(280, token_bytes=_b64(b"[INST]")), "a control token is in vocab, too"),
    (tiny.tekken("v11", special_tokens=None), "special_tokens is missing"),
    (tiny.tekken("v11", vocab=[]), "vocab must be"),
    (_with_control((0, "a"), (0, "b")), "each token and each rank once"),
    (_with_control((0, "a"), (1, "a")), "each token and each rank once"),
    (_with_control((0, "<SPECIAL_3>")), "each token and each rank once"),
]  # fmt: skip


def test_wrong_files_are_refused_by_field(tmp_path: Path) -> None:
    file = tmp_path / "tekken.json"
    for fields, message in WRONG:
        file.write_text(json.dumps(fields))
        with pytest.raises((WeightsError, ConfigError), match=message) as error:
            load_tokenizer(tmp_path)
        assert str(file) in str(error.value)


@given(st.integers(0, 30_000), st.binary(max_size=4))
def test_damaged_files_are_refused_or_read(
    tmp_path_factory: pytest.TempPathFactory, place: int, new: bytes
) -> None:
    data = bytearray(json.dumps(tiny.tekken("v11")).encode())
    data[place % len(data) : place % len(data) + len(new)] = new
    folder = tmp_path_factory.mktemp("damaged")
    (folder / "tekken.json").write_bytes(data)
    with contextlib.suppress(JaxEngineError):
        load_tokenizer(folder).encode("hello world")
