"""Tokens that files beside tokenizer.json describe: ids and flags are those of transformers."""

import json
import logging
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Backend

from jax_engine.errors import WeightsError
from jax_engine.tokenization.tokenizer import Tokenizer, load_tokenizer

WORDS = ["[unk]", "a", "b", "c", "<s>", "</s>", "<x>", "A"]
MARKS = ["<s>", "</s>", "<x>", "<y>", "<z>", "[T]"]
NAMES = ["bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "image_token"]
TEXTS = ["a<x> b", "a <y> <z>b", "<s>a</s> c", "a<X>b[t]c", "[T]a[T] <y>", "b<z>"]


def write(folder: Path, own: list[AddedToken], **files: Any) -> Path:
    """tokenizer.json with these added tokens, and JSON files by their names."""
    vocabulary = {word: index for index, word in enumerate(WORDS)}
    backend = Backend(models.WordLevel(vocabulary, unk_token="[unk]"))
    backend.normalizer = normalizers.Lowercase()
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.decoder = decoders.Fuse()
    backend.add_tokens(own)
    backend.save(str(folder / "tokenizer.json"))
    for name, content in files.items():
        if content is not None:
            (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


def flags_of(token: AddedToken) -> tuple[Any, ...]:
    strips = (token.lstrip, token.rstrip, token.single_word)
    return (token.content, *strips, token.normalized, token.special)


def same_as_transformers(folder: Path) -> Tokenizer:
    """Loads the directory with both and compares; returns ours."""
    from transformers import PreTrainedTokenizerFast

    ours = load_tokenizer(folder)
    theirs = PreTrainedTokenizerFast.from_pretrained(str(folder))
    added = theirs.added_tokens_decoder
    found = ours.backend.get_added_tokens_decoder()
    assert {i: flags_of(one) for i, one in found.items()} == {
        i: flags_of(one) for i, one in added.items()
    }
    assert ours.vocab_size == len(theirs)
    assert ours.special_ids == {index for index, one in added.items() if one.special}
    assert (ours.bos_token_id, ours.eos_token_id) == (theirs.bos_token_id, theirs.eos_token_id)
    for text in TEXTS:
        for special in (True, False):
            ids = ours.encode(text, add_special_tokens=special)
            assert ids == theirs.encode(text, add_special_tokens=special)
            for skip in (True, False):
                wanted = theirs.decode(ids, skip_special_tokens=skip)
                assert ours.decode(ids, skip_special_tokens=skip) == wanted
    return ours


def added(content: str, **flags: bool) -> dict[str, Any]:
    off = dict.fromkeys(("lstrip", "rstrip", "single_word", "normalized", "special"), False)
    return {"content": content, **off, **flags}


def test_the_flags_of_tokenizer_config(tmp_path: Path) -> None:
    """They replace those of tokenizer.json, and name what it lacks."""
    listed = {
        "8": added("<y>", special=True, lstrip=True),
        "9": added("<z>", rstrip=True),
        "6": added("<x>", special=True, rstrip=True),
    }
    own = [AddedToken("<y>", special=False)]
    write(tmp_path, own, tokenizer_config={"added_tokens_decoder": listed})
    ours = same_as_transformers(tmp_path)
    assert ours.special_ids == {6, 8}
    assert ours.encode("a <y> b") == [1, 8, 2]
    assert ours.encode("a<z>  b") == [1, 9, 2]
    assert ours.decode([1, 8, 2, 9]) == "ab<z>"


@pytest.mark.parametrize("key", ["additional_special_tokens", "extra_special_tokens"])
@pytest.mark.parametrize("file", ["tokenizer_config", "special_tokens_map"])
def test_special_tokens_without_a_name(key: str, file: str, tmp_path: Path) -> None:
    files = {"tokenizer_config": {}, file: {key: ["<y>", "<x>"], "eos_token": "</s>"}}
    ours = same_as_transformers(write(tmp_path, [], **files))
    assert ours.special_ids == {8, 6, 5} and ours.eos_token_ids == (5,)
    assert ours.encode("a<y>b<x></s>") == [1, 8, 2, 6, 5]
    assert ours.decode([1, 8, 2, 6, 5]) == "ab"


def test_the_older_file_of_added_tokens(tmp_path: Path) -> None:
    files = {"added_tokens": {"<y>": 8, "<z>": 9}, "special_tokens_map": {"eos_token": "<z>"}}
    ours = same_as_transformers(write(tmp_path, [], tokenizer_config={}, **files))
    assert ours.encode("a<y>b<z>") == [1, 8, 2, 9] and ours.special_ids == {9}
    assert ours.eos_token_ids == (9,)


def test_a_special_token_of_the_vocabulary_is_special(tmp_path: Path) -> None:
    """tokenizer.json does not say so. The token is found in text, and not shown."""
    ours = same_as_transformers(write(tmp_path, [], tokenizer_config={"eos_token": "</s>"}))
    assert ours.encode("a</s>b") == [1, 5, 2] and ours.decode([1, 5, 2]) == "ab"


def test_a_model_s_own_names(tmp_path: Path) -> None:
    config = {"image_token": "<y>", "extra_special_tokens": {"sound_token": "<z>"}}
    ours = same_as_transformers(write(tmp_path, [], tokenizer_config=config))
    assert ours.special_ids == {8, 9}
    text = ours.apply_chat_template(
        [{"role": "user", "content": ""}],
        chat_template="{{ image_token }}{{ sound_token }}",
        tokenize=False,
    )
    assert text == "<y><z>"


def test_an_id_that_is_not_the_next_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path, [], tokenizer_config={"added_tokens_decoder": {"20": added("<y>")}})
    with caplog.at_level(logging.WARNING):
        assert same_as_transformers(tmp_path).encode("<y>") == [8]
    assert "the added token '<y>' has the id 8, where the files say 20" in caplog.text


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"added_tokens": {"<y>": "8"}}, r"added_tokens\.json: .*an integer, got"),
        ({"tokenizer_config": {"additional_special_tokens": [5]}}, r"special_tokens\[0\] must be"),
        (
            {"tokenizer_config": {"added_tokens_decoder": {"8": {"content": "y", "lstrip": 1}}}},
            "lstrip must be true or false, got",
        ),
        ({"special_tokens_map": {"eos_token": {}}}, r"eos_token\.content is missing"),
    ],
)
def test_damaged_files(files: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=message):
        load_tokenizer(write(tmp_path, [], **files))


some_flags = st.fixed_dictionaries(
    {name: st.booleans() for name in ("lstrip", "rstrip", "special", "normalized")}
)
marks = st.sampled_from(MARKS)
own_tokens = st.lists(st.builds(lambda c, f: (c, f), marks, some_flags), max_size=3)
some_added = st.builds(lambda c, f: added(c, **f), marks, some_flags)
decoders_of = st.dictionaries(st.integers(4, 12).map(str), some_added, max_size=4)
named = st.dictionaries(st.sampled_from(NAMES), marks, max_size=3)
extras = st.lists(marks, max_size=3, unique=True)


@st.composite
def described(draw: st.DrawFn) -> dict[str, Any]:
    """Files beside tokenizer.json, any of which may be absent."""
    config: dict[str, Any] = dict(draw(named))
    if draw(st.booleans()):
        config["added_tokens_decoder"] = draw(decoders_of)
    key = draw(st.sampled_from(["additional_special_tokens", "extra_special_tokens", None]))
    if key is not None:
        config[key] = draw(extras)
    files: dict[str, Any] = {"tokenizer_config": config}
    if draw(st.booleans()):
        files["added_tokens"] = draw(st.dictionaries(marks, st.integers(4, 12), max_size=3))
    if "added_tokens_decoder" not in config and draw(st.booleans()):
        key = draw(st.sampled_from(["additional_special_tokens", "extra_special_tokens"]))
        files["special_tokens_map"] = dict(draw(named)) | {key: draw(extras)}
    return files


@given(own=own_tokens, files=described())
@example(own=[], files={"tokenizer_config": {"eos_token": "</s>"}})
@example(
    own=[],
    files={
        "tokenizer_config": {"additional_special_tokens": []},
        "special_tokens_map": {"additional_special_tokens": ["<s>"]},
    },
)
@example(own=[], files={"tokenizer_config": {"image_token": "<y>", "bos_token": "<z>"}})
@example(own=[], files={"tokenizer_config": {}, "special_tokens_map": {"image_token": "</s>"}})
def test_any_files_mean_what_they_mean_to_transformers(
    own: list[tuple[str, dict[str, bool]]], files: dict[str, Any]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        tokens = [AddedToken(content, **flags) for content, flags in own]
        same_as_transformers(write(Path(folder), tokens, **files))
