"""Tokenizers from files: special tokens, BOS, chat templates, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from jax_engine.errors import ConfigError, InvalidRequestError, ModelNotFoundError, WeightsError
from jax_engine.models.checkpoints.gguf import open_gguf
from jax_engine.tokenization.gguf_pre_tokenizers import PRE_TOKENIZERS
from jax_engine.tokenization.gguf_tokenizer import backend_from_gguf
from jax_engine.tokenization.tokenizer import Tokenizer, load_tokenizer
from tests.models.test_gguf import write_gguf
from tests.tokenization.conftest import byte_level_metadata, sentencepiece_metadata

TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'bad' %}"
    "{{ raise_exception('no such role') }}{% endif %}[{{ m['role'] }}]{{ m['content'] }}"
    "{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"
)
USER = [{"role": "user", "content": "hello"}]


def write_directory(directory: Path, **config: Any) -> Path:
    backend_from_gguf(byte_level_metadata()).save(str(directory / "tokenizer.json"))
    (directory / "tokenizer_config.json").write_text(json.dumps(config))
    return directory


def test_special_tokens_are_found_in_text(tokenizer: Tokenizer) -> None:
    if not tokenizer.special_ids:
        return
    special = min(tokenizer.special_ids)
    mark = tokenizer.backend.id_to_token(special)
    ids = tokenizer.encode(f"he{mark}ll", add_special_tokens=False)
    assert ids.count(special) == 1
    assert tokenizer.is_special(special) and not tokenizer.is_special(ids[0])
    assert mark in tokenizer.decode(ids, skip_special_tokens=False)
    assert mark not in tokenizer.decode(ids)


def test_digits_are_cut_as_the_pre_tokenizer_says() -> None:
    one_by_one = Tokenizer(backend_from_gguf(byte_level_metadata("smollm")))
    in_groups = Tokenizer(backend_from_gguf(byte_level_metadata("llama-bpe")))
    assert len(one_by_one.encode("1212")) == 4
    assert len(in_groups.encode("1212", add_special_tokens=False)) == 3  # 121 and 2: "12", "1", "2"
    assert len(Tokenizer(backend_from_gguf(byte_level_metadata("gpt2"))).encode("1212")) == 2
    assert len(Tokenizer(backend_from_gguf(byte_level_metadata("qwen2"))).encode("1212")) == 4


def made(metadata: dict[str, Any], *words: str, kind: int = 1, **fields: Any) -> Tokenizer:
    """The tokenizer of these fields, with more words in its vocabulary."""
    more = {
        "tokenizer.ggml.tokens": metadata["tokenizer.ggml.tokens"] + list(words),
        "tokenizer.ggml.token_type": metadata["tokenizer.ggml.token_type"] + [kind] * len(words),
    }
    named = {f"tokenizer.ggml.{name}": value for name, value in fields.items()}
    return Tokenizer(backend_from_gguf(metadata | more | named))


def pieces(tokenizer: Tokenizer, text: str) -> list[str]:
    ids = tokenizer.encode(text, add_special_tokens=False)
    return [tokenizer.backend.id_to_token(i) for i in ids]


# A byte-level piece has neither a space nor SentencePiece's; an added token may have both.
@pytest.mark.parametrize("name", ["<tool>", "<a tool>", "<a\u2581tool>"])
def test_user_defined_tokens_are_found_whole_and_shown(name: str) -> None:
    tokenizer = made(byte_level_metadata(), name, kind=4)
    assert pieces(tokenizer, f"he{name}ll") == ["he", name, "ll"]
    assert tokenizer.decode(tokenizer.encode(f"he{name}ll")) == f"he{name}ll"
    assert tokenizer.special_ids == {0, 1, 2}
    assert name not in pieces(made(byte_level_metadata(), name), f"he{name}ll")


def test_marked_tokens_are_found_in_the_text_as_it_is_written() -> None:
    """Before it is normalised: with a space put before it, the mark would be another."""
    metadata = sentencepiece_metadata()
    scores = [*metadata["tokenizer.ggml.scores"], 0.0]
    assert "<tool>" in pieces(made(metadata, "<tool>", kind=4, scores=scores), "he<tool>ll")
    tokenizer = Tokenizer(backend_from_gguf(sentencepiece_metadata()))
    assert pieces(tokenizer, "he</s>")[-1] == "</s>"
    assert pieces(tokenizer, "</s>he")[0] == "</s>"


@pytest.mark.parametrize(
    ("pre", "expected"),
    [
        ("gpt-2", "in|1999|'s| HTTPServer|/|x|,|  | 7"),
        ("starcoder", "in|1|9|9|9|'s| HTTPServer|/|x|,|   |7"),
        ("refact", "in|1|9|9|9|'s| HTTPServer|/|x|,|   |7"),
        ("falcon", "in|199|9|'|s| HTTPServer|/|x|,|  | |7"),
        ("dbrx", "in|199|9|'s| HTTPServer|/x|,|  | |7"),
        ("qwen2", "in|1|9|9|9|'s| HTTPServer|/x|,|  | |7"),
        ("gpt-4o", "in|199|9|'s| HTTPServer|/x|,|  | |7"),
        ("tekken", "in|1|9|9|9|'s| HTTPServer|/x|,|  | |7"),
    ],
)
def test_how_each_splits(pre: str, expected: str) -> None:
    pieces_of = PRE_TOKENIZERS[pre].make().pre_tokenize_str("in1999's HTTPServer/x,   7")
    assert "|".join(piece.replace("\u0120", " ") for piece, _ in pieces_of) == expected


def test_words_are_cut_where_capitals_follow_small_letters() -> None:
    for pre, expected in (("gpt-4o", ["camel", "Case"]), ("llama-bpe", ["camelCase"])):
        found = PRE_TOKENIZERS[pre].make().pre_tokenize_str("camelCase")
        assert [piece for piece, _ in found] == expected


@pytest.mark.parametrize("pre", PRE_TOKENIZERS)
def test_every_way_of_splitting_makes_a_tokenizer(pre: str) -> None:
    tokenizer = made(byte_level_metadata(pre))
    ids = tokenizer.encode("hello w\u20ac 12", add_special_tokens=False)
    assert tokenizer.decode(ids) == "hello w\u20ac 12"
    assert (tokenizer.encode("")[:1] == [2]) == PRE_TOKENIZERS[pre].adds_bos


@pytest.mark.parametrize(("pre", "whole"), [("llama-bpe", True), ("smollm", False)])
def test_words_that_no_merges_make(pre: str, whole: bool) -> None:
    tokenizer = made(byte_level_metadata(pre), "xyz")
    assert pieces(tokenizer, "xyz") == (["xyz"] if whole else ["x", "y", "z"])


@pytest.mark.parametrize(("pre", "same"), [("qwen2", True), ("smollm", False)])
def test_only_qwen_composes_characters(pre: str, same: bool) -> None:
    tokenizer = made(byte_level_metadata(pre))
    assert (pieces(tokenizer, "e\u0301") == pieces(tokenizer, "\u00e9")) == same


@pytest.mark.parametrize("pre", ["smollm", "gpt2", "llama-bpe", "qwen2"])
def test_no_merge_crosses_words(pre: str) -> None:
    metadata = byte_level_metadata(pre)
    crossing = [*metadata["tokenizer.ggml.merges"], "l \u0120", "( h"]
    tokenizer = made(metadata, "l\u0120", "(h", merges=crossing)
    assert "l\u0120" not in pieces(tokenizer, "hel wel")
    bracket = pre in ("llama-bpe", "qwen2")  # their words may begin with a mark
    assert ("(h" in pieces(tokenizer, "(hi")) == bracket


def test_what_no_token_stands_for_is_one_unknown() -> None:
    metadata = sentencepiece_metadata()
    for name in ("tokens", "scores", "token_type"):
        metadata[f"tokenizer.ggml.{name}"] = (
            metadata[f"tokenizer.ggml.{name}"][:3] + metadata[f"tokenizer.ggml.{name}"][-12:]
        )
    assert pieces(made(metadata, unknown_token_id=0), "hezzz") == ["\u2581", "he", "<unk>"]
    assert pieces(made(metadata, unknown_token_id=1), "hezzz") == ["\u2581", "he", "<s>"]


def test_added_tokens_are_counted() -> None:
    tokenizer = made(byte_level_metadata())
    size = tokenizer.vocab_size
    tokenizer.backend.add_tokens(["<new>"])
    assert Tokenizer(tokenizer.backend).vocab_size == size + 1


def test_bos_is_added_when_the_file_says_so() -> None:
    metadata = byte_level_metadata()
    assert Tokenizer(backend_from_gguf(metadata)).encode("he")[0] != 2
    with_bos = Tokenizer(backend_from_gguf(metadata | {"tokenizer.ggml.add_bos_token": True}))
    assert with_bos.encode("he")[0] == 2
    assert with_bos.encode("he", add_special_tokens=False)[0] != 2
    assert Tokenizer(backend_from_gguf(sentencepiece_metadata())).encode("he")[0] == 1


def test_sentencepiece_joins_by_score_and_falls_back_to_bytes() -> None:
    tokenizer = Tokenizer(backend_from_gguf(sentencepiece_metadata()))
    words = [tokenizer.backend.id_to_token(i) for i in tokenizer.encode("hello \u00e9")]
    assert words == ["<s>", "\u2581hello", "\u2581", "<0xC3>", "<0xA9>"]
    assert tokenizer.decode(tokenizer.encode("hello \u00e9")) == "hello \u00e9"


def test_a_directory_in_hugging_face_layout(tmp_path: Path) -> None:
    directory = write_directory(
        tmp_path, bos_token={"content": "<|bos|>"}, eos_token="<|end|>", chat_template=TEMPLATE
    )
    tokenizer = load_tokenizer(directory)
    assert (tokenizer.bos_token_id, tokenizer.eos_token_ids, tokenizer.eos_token_id) == (2, (0,), 0)
    text = tokenizer.apply_chat_template(USER, tokenize=False, add_generation_prompt=True)
    assert text == "<|bos|>[user]hello[assistant]"
    ids = tokenizer.apply_chat_template(USER)
    assert ids[0] == 2 and ids.count(2) == 1
    with pytest.raises(InvalidRequestError, match="no such role"):
        tokenizer.apply_chat_template([{"role": "bad", "content": ""}])


def test_a_gguf_file_has_its_tokenizer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The source is a path, an opened file, a directory with one file, or the default model."""
    metadata = sentencepiece_metadata()  # with the beginning and the end that `write_gguf` writes
    fields = {key: metadata[f"tokenizer.ggml.{key}"] for key in ("tokens", "scores", "token_type")}
    extra = {f"tokenizer.ggml.{key}": value for key, value in fields.items()}
    file = write_gguf(
        tmp_path / "m.gguf", tensors={}, extra={"tokenizer.ggml.model": "llama", **extra}
    )
    monkeypatch.setattr("jax_engine.models.checkpoints.resolve.default_model_path", lambda: file)
    for source in (file, str(file), open_gguf(file), tmp_path, None):
        tokenizer = load_tokenizer(source)
        assert tokenizer.encode("hello") == backend_from_gguf(metadata).encode("hello").ids
        assert (tokenizer.bos_token_id, tokenizer.eos_token_ids) == (1, (2,))


def test_the_tokenizer_of_a_hub_model_needs_no_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model is cached, and there is no network."""
    import huggingface_hub.constants as constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    repository = tmp_path / "models--owner--name"
    snapshot = repository / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    write_directory(snapshot, eos_token="<|end|>")
    (snapshot / "config.json").write_text("{}")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("abc")
    assert load_tokenizer("owner/name").eos_token_id == 0


def test_templates_in_other_places(tmp_path: Path) -> None:
    named = [{"name": "default", "template": "D"}, {"name": "tools", "template": "T"}]
    directory = write_directory(tmp_path, chat_template=named)
    assert load_tokenizer(directory).apply_chat_template(USER, tokenize=False) == "D"
    (directory / "chat_template.jinja").write_text("J")
    assert load_tokenizer(directory).apply_chat_template(USER, tokenize=False) == "J"


def test_what_is_refused(tmp_path: Path) -> None:
    directory = write_directory(tmp_path)
    with pytest.raises(ConfigError, match="chat_template="):
        load_tokenizer(directory).apply_chat_template(USER)
    (directory / "tokenizer.json").write_text("{}")
    with pytest.raises(WeightsError, match=r"tokenizer\.json"):
        load_tokenizer(directory)
    (directory / "tokenizer.json").unlink()
    with pytest.raises(ModelNotFoundError, match="skip_tokenizer_init"):
        load_tokenizer(directory)
    with pytest.raises(ConfigError, match="exotic"):
        backend_from_gguf(byte_level_metadata("exotic"))
    with pytest.raises(ConfigError, match="bert"):
        backend_from_gguf({"tokenizer.ggml.model": "bert"})
    with pytest.raises(ConfigError, match=r"no tokenizer\.ggml\.tokens: give a tokenizer="):
        backend_from_gguf({"tokenizer.ggml.model": "gpt2"})


@pytest.mark.model
def test_smollm2_round_trips_tricky_text(smollm2_path: Path) -> None:
    tokenizer = load_tokenizer(smollm2_path)
    text = "na\u00efve  caf\u00e9\n\n\t\u65e5\u672c\u8a9e \U0001f642 $1,299.99 don't <|im_end|> x"
    assert tokenizer.decode(tokenizer.encode(text), skip_special_tokens=False) == text
    assert tokenizer.vocab_size == 49152 and tokenizer.eos_token_ids == (2,)
