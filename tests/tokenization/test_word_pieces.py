"""BERT's vocab.txt without a tokenizer.json: ids and texts are those of transformers."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_engine.errors import ConfigError, ModelNotFoundError, WeightsError
from jax_engine.tokenization.tokenizer import Tokenizer, load_tokenizer
from jax_engine.tokenization.word_pieces import MAX_BYTES

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
LETTERS = "abcdefghijklmnopqrstuvwxyzABCÉéßøłIİıΣσς"
PIECES = [*LETTERS, *(f"##{letter}" for letter in LETTERS)]
WORDS = ["hello", "Hello", "##lo", "wor", "##ld", "un", "##aff", "##able", "cafe", "Café", "##s"]
SIGNS = [*".,!?'\"-_[]#$%&()~`^|\u3002\uff0c\u00bf", *"0123456789", "##0", "##1"]
OTHERS = [
    "你",
    "好",
    "##好",
    "你好",
    "안",
    "\u1100",
    "\u1161",
    "の",
    "न",
    "\u093f",
    "🙂",
    "\u2028",
    "\u0345",
]
VOCABULARY = [*SPECIAL, *PIECES, *WORDS, *SIGNS, *OTHERS]
TEXTS = [
    "",
    " ",
    "hello",
    "  Hello,\tworld!\r\n",
    "unaffable unaffablex xunaffable",
    "café CAFÉ Cafe\u0301 cafés",
    "İstanbul ıI ΣΑΣ straße ŁÓDŹ",
    "你好hello好 你 好。，",
    "안녕 のnの नि",
    "a\u00a0b\u2009c\u3000d\u200be\ufefff\u00adg",
    "a\x00b\x07c\ufffdd\x7fe\u0085f\u2028g",
    "[MASK] [mask] [CLS]x[SEP]y [UNK] [pad] [ MASK ]",
    "##hello ## #1 100% $5.50 it's _under_ `x` ^|~",
    "🙂🙂🏽 👨‍👩‍👧 x🙂y",
    "x" * 99 + " " + "x" * 100 + " " + "x" * 101 + " hello",
    "\u0301\u0301 e\u0301\u0302 \u0345",
    "<s> </s> <new> <new>hello Hello<new>",
]
CONFIGS: list[dict[str, Any]] = [
    {},
    {"do_lower_case": True},
    {"do_lower_case": False},
    {"do_lower_case": True, "strip_accents": False},
    {"do_lower_case": False, "strip_accents": True},
    {"tokenize_chinese_chars": False},
    {"do_basic_tokenize": True, "never_split": None, "model_max_length": 512},
    {"tokenizer_class": "BertTokenizer", "cls_token": "hello", "unk_token": "a"},
    {
        "sep_token": {"__type": "AddedToken", "content": "[SEP]", "lstrip": True, "rstrip": True},
        "mask_token": "[MASK]",
    },
    {"added_tokens_decoder": {str(len(VOCABULARY)): {"content": "<new>", "special": True}}},
    {"additional_special_tokens": ["<new>"]},
]


def write(folder: Path, vocabulary: list[str] | None = None, **config: Any) -> Path:
    """A directory of BERT's; without fields it has no tokenizer_config.json."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = VOCABULARY if vocabulary is None else vocabulary
    (folder / "vocab.txt").write_text("".join(f"{line}\n" for line in lines), "utf-8")
    (folder / "config.json").write_text(json.dumps({"model_type": "bert"}))
    if config:
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


def of_transformers(folder: Path) -> Any:
    from transformers import BertTokenizerFast

    return BertTokenizerFast.from_pretrained(str(folder))


def compare(ours: Tokenizer, theirs: Any, text: str) -> None:
    ids = ours.encode(text)
    assert ids == theirs(text).input_ids
    assert ours.encode(text, add_special_tokens=False) == theirs.encode(
        text, add_special_tokens=False
    )
    for skips in (True, False):
        expected = theirs.decode(ids, skip_special_tokens=skips)
        assert ours.decode(ids, skip_special_tokens=skips) == expected


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_awkward_texts(config: dict[str, Any], tmp_path: Path) -> None:
    ours, theirs = load_tokenizer(write(tmp_path, **config)), of_transformers(tmp_path)
    assert ours.vocab_size == len(theirs)
    for text in TEXTS:
        compare(ours, theirs, text)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Tokenizer, Any]]:
    pairs = []
    for number, config in enumerate(({}, {"do_lower_case": False})):
        folder = write(tmp_path_factory.mktemp(f"pieces{number}"), **config)
        pairs.append((load_tokenizer(folder), of_transformers(folder)))
    return pairs


@given(
    text=st.text(st.characters(codec="utf-8") | st.sampled_from("".join(VOCABULARY)), max_size=60)
)
def test_any_text(both: list[tuple[Tokenizer, Any]], text: str) -> None:
    for ours, theirs in both:
        assert ours.encode(text) == theirs(text).input_ids


def test_pairs_have_types(tmp_path: Path) -> None:
    ours, theirs = load_tokenizer(write(tmp_path)), of_transformers(tmp_path)
    found, expected = ours.backend.encode("hello world", "café!"), theirs("hello world", "café!")
    assert (found.ids, found.type_ids) == (expected.input_ids, expected.token_type_ids)
    assert found.type_ids.count(1) == len(ours.encode("café!")) - 1
    assert ours.around == (1, 1)


def test_case_and_accents(tmp_path: Path) -> None:
    """By hand: the default is lower case without accents, as in the first BERT."""
    tokens = {token: number for number, token in enumerate(VOCABULARY)}
    lower = load_tokenizer(write(tmp_path / "lower"))
    cased = load_tokenizer(write(tmp_path / "cased", do_lower_case=False))
    words = ["[CLS]", "cafe", "##s", "hello", "[SEP]"]
    assert lower.encode("Cafés HELLO") == [tokens[one] for one in words]
    words = ["[CLS]", "Café", "##s", "Hello", "[UNK]", "[SEP]"]
    assert cased.encode("Cafés Hello HELLO") == [tokens[one] for one in words]
    assert cased.special_ids == frozenset(range(5))


def test_lines_end_in_more_than_one_way(tmp_path: Path) -> None:
    """Carriage returns, no end of the last line, a mark before the first one."""
    expected = load_tokenizer(write(tmp_path)).backend.get_vocab()
    text = "\ufeff" + "\r\n".join(VOCABULARY)
    (tmp_path / "vocab.txt").write_bytes(text.encode())
    assert load_tokenizer(tmp_path).backend.get_vocab() == expected


@pytest.mark.parametrize("model", [{}, {"model_type": "bert"}, {"model_type": "nomic_bert"}])
def test_the_model_may_be_unnamed(model: dict[str, Any], tmp_path: Path) -> None:
    """The first files of BERT name neither class nor model."""
    folder = write(tmp_path)
    (folder / "config.json").write_text(json.dumps(model | {"architectures": ["BertModel"]}))
    assert load_tokenizer(folder).encode("hello") == [2, VOCABULARY.index("hello"), 3]


@pytest.mark.parametrize("where", ["config.json", "tokenizer_config.json"])
def test_another_class_is_not_read_as_bert_s(where: str, tmp_path: Path) -> None:
    """Japanese BERTs split words with a dictionary: without its package there is no tokenizer."""
    folder = write(tmp_path)
    fields = {"model_type": "bert", "tokenizer_class": "BertJapaneseTokenizer"}
    (folder / where).write_text(json.dumps(fields))
    with pytest.raises(ModelNotFoundError, match="could not make a tokenizer of its files"):
        load_tokenizer(folder)


@pytest.mark.parametrize(
    ("vocabulary", "config", "words"),
    [
        ([one for one in VOCABULARY if one != "[SEP]"], {}, r"no sep_token '\[SEP\]'"),
        ([one for one in VOCABULARY if one != "[UNK]"], {}, r"no unk_token '\[UNK\]'"),
        (["<s>", "a"], {}, r"no unk_token '\[UNK\]': it is no vocabulary of BERT's"),
        ([], {}, "it has 0 bytes, between 1 and .* It is empty: download it again"),
        (VOCABULARY, {"do_lower_case": "yes"}, "do_lower_case"),
    ],
)
def test_damaged_vocabularies(
    vocabulary: list[str], config: dict[str, Any], words: str, tmp_path: Path
) -> None:
    with pytest.raises(WeightsError, match=words):
        load_tokenizer(write(tmp_path, vocabulary, **config))


def test_other_files_under_the_name(tmp_path: Path) -> None:
    file = write(tmp_path) / "vocab.txt"
    file.write_bytes(b"[PAD]\n\xff\xfe\n")
    with pytest.raises(WeightsError, match=r"is no vocabulary: .*can't decode"):
        load_tokenizer(tmp_path)
    with file.open("r+b") as opened:
        opened.truncate(MAX_BYTES + 1)
    with pytest.raises(WeightsError, match=f"between 1 and {MAX_BYTES} are read"):
        load_tokenizer(tmp_path)
    file.unlink()
    file.symlink_to(tmp_path / "nowhere")
    with pytest.raises(WeightsError, match="is a link to"):
        load_tokenizer(tmp_path)


def test_a_setting_that_is_not_supported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="do_basic_tokenize False"):
        load_tokenizer(write(tmp_path, do_basic_tokenize=False))


def test_neither_file(tmp_path: Path) -> None:
    folder = write(tmp_path, do_lower_case=True)
    (folder / "vocab.txt").unlink()
    with pytest.raises(ModelNotFoundError, match="has no vocabulary of a tokenizer"):
        load_tokenizer(folder)
