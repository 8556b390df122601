"""Folders after a download or a copy that went wrong: what messages say, and what still loads."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jax_engine.errors import ConfigError, JaxEngineError, ModelNotFoundError, WeightsError
from jax_engine.models.checkpoints.resolve import resolve_model
from jax_engine.models.model_loader import open_model
from jax_engine.tokenization.gguf_tokenizer import backend_from_gguf
from jax_engine.tokenization.tokenizer import load_tokenizer
from tests.golden import tiny_checkpoints as tiny
from tests.models.checkpoints import write_checkpoint
from tests.models.test_gguf import write_gguf
from tests.tokenization.conftest import byte_level_metadata

CONFIG = tiny.CONFIGS["plain"]
MAC = b"\0\5\26\7\0\2\0\0Mac OS X        "  # what macOS writes beside files of other disks
INSTEAD = {
    "git LFS, and not the file itself: run `git lfs pull`": b"version https://git-lfs.github.com/spec"
    b"/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 9\n",
    "a page in HTML or XML": b"\n<!DOCTYPE html>\n<html><title>Sign in</title></html>",
    "HTML or XML, such as a login": b'<?xml version="1.0"?><Error><Code>Denied</Code></Error>',
    "It is empty: download it again": b"",
    "text in UTF-16: save it in UTF-8": "{}".encode("utf-16"),
    "UTF-16: save": b"\xfe\xff" + "{}".encode("utf-16-be"),
    "a zip archive: unpack it": b"PK\x03\x04" + bytes(40),
    "compressed with gzip": b"\x1f\x8b" + bytes(40),
}


def write(folder: Path, num_shards: int = 1) -> Path:
    write_checkpoint(folder, CONFIG, num_shards=num_shards)
    backend_from_gguf(byte_level_metadata()).save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text("{}")
    return folder


def load(path: Path) -> None:
    """What is read of a model before its weights are."""
    open_model(str(path))
    load_tokenizer(path)


def refused(path: Path, kind: type[JaxEngineError] = WeightsError) -> str:
    with pytest.raises(kind) as error:
        load(path)
    return str(error.value)


@pytest.mark.parametrize("said", INSTEAD)
@pytest.mark.parametrize(
    "name",
    [
        "model.safetensors", "model-00002-of-00002.safetensors", "config.json",
        "generation_config.json", "model.safetensors.index.json", "tokenizer.json",
        "tokenizer_config.json", "chat_template.jinja", "tokenizer.model", "m.gguf",
    ],
)  # fmt: skip
def test_something_else_in_the_place_of_a_file(name: str, said: str, tmp_path: Path) -> None:
    folder = write(tmp_path / "model", num_shards=2 if "model-" in name or "index" in name else 1)
    if name == "tokenizer.model":
        (folder / "tokenizer.json").unlink()
    (folder / name).write_bytes(INSTEAD[said])
    if name == "chat_template.jinja" and "UTF-16" not in said:
        return  # any text may be a template
    message = refused(folder / name if name == "m.gguf" else folder)
    assert said in message and str(folder / name) in message


@pytest.mark.parametrize(
    "name", ["config.json", "model.safetensors", "model-00001-of-00002.safetensors",
             "tokenizer.json", "tokenizer_config.json", "generation_config.json"]
)  # fmt: skip
def test_a_link_to_what_is_not_there(name: str, tmp_path: Path) -> None:
    """The hub's cache holds links: a copy of its snapshot alone holds links to nothing."""
    folder = write(tmp_path / "model", num_shards=2 if "model-" in name else 1)
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to("../../blobs/4d7a")
    message = refused(folder, JaxEngineError)
    assert name in message and "cp -L" in message
    assert "s a link to ../../blobs/4d7a, which is not there" in message


@pytest.mark.parametrize("num_shards", [1, 2])
@pytest.mark.parametrize("named", [True, False], ids=["index", "no index"])
def test_what_macos_writes_beside_files_is_not_looked_at(
    named: bool, num_shards: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = write(tmp_path / "model", num_shards)
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "tool_use.jinja").write_text("{{ tools }}")
    if not named and num_shards == 1:
        (folder / "model.safetensors").rename(folder / "weights.safetensors")
    elif not named:
        (folder / "model.safetensors.index.json").unlink()
    for file in list(folder.rglob("*.*")):
        file.with_name(f"._{file.name}").write_bytes(MAC)
    load(folder)
    assert caplog.text == ""


def test_what_macos_writes_beside_a_gguf_file(tmp_path: Path) -> None:
    write_gguf(tmp_path / "m.gguf", extra=byte_level_metadata())
    (tmp_path / "._m.gguf").write_bytes(MAC)
    assert resolve_model(str(tmp_path)) == tmp_path / "m.gguf"


@pytest.mark.parametrize(
    "end", ["part", "partial", "incomplete", "crdownload", "download", "aria2"]
)
@pytest.mark.parametrize("kind", ["safetensors", "gguf"])
def test_an_unfinished_download_is_named(kind: str, end: str, tmp_path: Path) -> None:
    if kind == "safetensors":
        write_checkpoint(tmp_path, CONFIG)
        (tmp_path / "model.safetensors").rename(tmp_path / f"model.safetensors.{end}")
    else:
        (tmp_path / f"m.gguf.{end}").write_bytes(b"GGUF")
    with pytest.raises(JaxEngineError, match=rf"only m\w*\.{kind}\.{end} \(an unfinished download"):
        open_model(str(tmp_path))


@pytest.mark.parametrize("place", ["SmolLM2", "snapshots/abc"])
def test_a_model_one_folder_deeper_is_named(place: str, tmp_path: Path) -> None:
    """An archive was unpacked into a folder of its own; or it is the folder of the hub's cache."""
    inner = write(tmp_path / place)
    with pytest.raises(ModelNotFoundError, match=f"There is one in {inner}: give that path"):
        resolve_model(str(tmp_path))
    write(tmp_path / "another")
    with pytest.raises(ModelNotFoundError, match=r"has no config\.json") as error:
        resolve_model(str(tmp_path))
    assert "There is one" not in str(error.value)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_file_of_a_folder_in_the_place_of_the_folder(name: str, tmp_path: Path) -> None:
    message = refused(write(tmp_path) / name)
    assert "is not a little-endian GGUF file" in message
    assert f"give the directory: {tmp_path}" in message


def test_a_mark_of_utf_8_before_a_tokenizer(tmp_path: Path) -> None:
    folder = write(tmp_path)
    text = (folder / "tokenizer.json").read_bytes()
    expected = load_tokenizer(folder).encode("hello")
    (folder / "tokenizer.json").write_bytes(b"\xef\xbb\xbf" + text)
    assert load_tokenizer(folder).encode("hello") == expected


QUANTIZATION = {"group_size": 32, "bits": 4}


@pytest.mark.parametrize(
    "fields",
    [
        {"quantization": QUANTIZATION},
        {"quantization": QUANTIZATION, "quantization_config": QUANTIZATION},
        {"quantization": QUANTIZATION | {"lm_head": False, "mode": "affine"}},
    ],
)
def test_codes_of_mlx_are_named(fields: dict[str, Any], tmp_path: Path) -> None:
    codes = dict[str, np.ndarray]()
    for name, value in tiny.weights(CONFIG).items():
        if value.ndim == 1:
            codes[name] = value
            continue
        rows, columns = value.shape
        codes[name] = np.zeros((rows, columns // 8), np.uint32)
        codes[name.replace("weight", "scales")] = np.ones((rows, columns // 32), np.float16)
        codes[name.replace("weight", "biases")] = np.zeros((rows, columns // 32), np.float16)
    write_checkpoint(tmp_path, CONFIG | fields, codes)
    with pytest.raises(ConfigError, match=r"codes of MLX .*4 bits.*GGUF"):
        open_model(str(tmp_path))


def test_a_word_of_mlx_without_its_fields_is_nothing(tmp_path: Path) -> None:
    open_model(str(write_checkpoint(tmp_path, CONFIG | {"quantization": "none"})))
