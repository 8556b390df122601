"""Damaged model files, at random: whatever is in them, loading succeeds or says what is wrong.

Bytes are flipped, cut, spliced and written over with extreme counts; values of JSON files are
replaced by values of other types. Each attempt is bounded in time, and in memory by a limit on
addresses. `HYPOTHESIS_PROFILE=thorough` takes an hour.
"""

import faulthandler
import json
import resource
import shutil
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from jax_engine.errors import JaxEngineError
from jax_engine.host_memory import _address_space
from jax_engine.models.model_loader import load_model
from jax_engine.tokenization.gguf_tokenizer import backend_from_gguf
from jax_engine.tokenization.tokenizer import load_tokenizer
from tests.golden import tiny_checkpoints as tiny
from tests.golden.families.checkpoints import tensors_of
from tests.models.checkpoints import write_checkpoint
from tests.models.llama_cpp import write_case
from tests.models.test_families import CASES
from tests.models.test_gguf import write_gguf
from tests.support.patience import HANG_S
from tests.tokenization.conftest import byte_level_metadata, sentencepiece_metadata

CONFIG = tiny.CONFIGS["llama3"]
EXTRA_BYTES = 2 << 30
MESSAGES = [{"role": "user", "content": "hello"}]
JSON_FILES = (
    "config.json",
    "generation_config.json",
    "tokenizer_config.json",
    "model.safetensors.index.json",
    "tokenizer.json",
)
# Llama with two kinds of tokenizers; models with experts, fused tensors, and RoPE's.
TOKENIZERS = ("byte-level.gguf", "sentencepiece.gguf")
OTHERS = {"qwen2_moe.gguf": "qwen2moe", "granitemoe.gguf": "granitemoe", "phi3_long.gguf": "phi3"}
GGUF_FILES = (*TOKENIZERS, *OTHERS)
# An example takes a twentieth of a second.
EXAMPLES = settings(max_examples=min(12_000, 2 * settings.default.max_examples))


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory in Hugging Face layout with all files that are read, and two GGUF files."""
    folder = write_checkpoint(tmp_path_factory.mktemp("fuzz") / "pristine", CONFIG, num_shards=2)
    (folder / "generation_config.json").write_text('{"eos_token_id": [2, 3], "top_p": 0.9}')
    backend_from_gguf(byte_level_metadata()).save(str(folder / "tokenizer.json"))
    named = [{"name": "default", "template": "{{ bos_token }}{{ messages[0]['content'] }}"}]
    tokens = {"bos_token": {"content": "<|bos|>"}, "eos_token": "<|end|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(tokens | {"chat_template": named}))
    (folder / "chat_template.jinja").write_text(
        "{% for m in messages %}{{ m.content }}{% endfor %}"
    )
    for file, arch in OTHERS.items():
        case = CASES[file.removesuffix(".gguf")]
        write_case(folder / file, case, tensors_of(case), arch, byte_level_metadata())
    for file, fields in zip(
        TOKENIZERS, (byte_level_metadata(), sentencepiece_metadata()), strict=True
    ):
        write_gguf(
            folder / file,
            tiny.CONFIGS["plain"],
            extra={key: value for key, value in fields.items() if not key.endswith("os_token_id")},
        )
    for file in (None, *GGUF_FILES):
        load_weights(folder if file is None else folder / file)
        use_tokenizer(folder if file is None else folder / file)
    return folder


@contextmanager
def bounded() -> Iterator[None]:
    """Ends the process, with a trace, where this takes too long; memory that is refused raises."""
    faulthandler.dump_traceback_later(HANG_S, exit=True)
    before, taken = resource.getrlimit(resource.RLIMIT_AS), _address_space()
    if taken:  # else this system does not say
        resource.setrlimit(resource.RLIMIT_AS, (taken + EXTRA_BYTES, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
        faulthandler.cancel_dump_traceback_later()


def load_weights(path: Path) -> None:
    load_model(str(path))


def use_tokenizer(path: Path) -> None:
    """Uses a tokenizer as far as is needed to show what is wrong with it."""
    tokenizer = load_tokenizer(path)
    tokenizer.decode(tokenizer.encode("hello h€ 12<|end|>"))
    if tokenizer.chat.template is not None:
        tokenizer.apply_chat_template(MESSAGES)


def attempt(path: Path) -> None:
    """Loading and using what is there: done, or one of this package's errors with some words."""
    for read in (load_weights, use_tokenizer):
        with bounded():
            try:
                read(path)
                event(f"{read.__name__}: done")
            except JaxEngineError as error:
                event(f"{read.__name__}: {type(error).__name__}")
                assert len(str(error)) > 20


def with_damage(pristine: Path, name: str, data: bytes) -> Path:
    """The directory with one file replaced; for a GGUF file its own path."""
    damaged = pristine.parent / "damaged"
    shutil.rmtree(damaged, ignore_errors=True)
    damaged.mkdir()
    if name in GGUF_FILES:
        (damaged / name).write_bytes(data)
        return damaged / name
    for file in pristine.iterdir():
        if file.name not in (*GGUF_FILES, name):
            (damaged / file.name).symlink_to(file)
    (damaged / name).write_bytes(data)
    return damaged


places = st.floats(0, 1, exclude_max=True) | st.floats(0, 0.02)  # headers come first
EXTREMES = [0, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**64 - 1, 10**7, 8, 9, 12]
operations = st.one_of(
    st.tuples(st.just("flip"), places, st.integers(1, 255)),
    st.tuples(st.just("cut"), places, st.just(0)),
    st.tuples(st.just("drop"), places, st.integers(1, 64)),
    st.tuples(st.just("insert"), places, st.binary(min_size=1, max_size=16)),
    st.tuples(st.just("count32"), places, st.sampled_from(EXTREMES)),
    st.tuples(st.just("count64"), places, st.sampled_from(EXTREMES)),
    st.tuples(st.just("splice"), places, places),
)


def damage(data: bytes, steps: list[tuple[str, float, Any]]) -> bytes:
    """The bytes after these operations; places are shares of their length."""
    for kind, place, what in steps:
        at = int(place * len(data))
        if kind == "flip" and data:
            data = data[:at] + bytes([data[at] ^ what]) + data[at + 1 :]
        elif kind == "cut":
            data = data[:at]
        elif kind == "drop":
            data = data[:at] + data[at + what :]
        elif kind == "insert":
            data = data[:at] + what + data[at:]
        elif kind in ("count32", "count64"):
            code, size = ("<I", 4) if kind == "count32" else ("<Q", 8)
            data = data[:at] + struct.pack(code, what % 2 ** (8 * size)) + data[at + size :]
        elif kind == "splice":
            source = int(what * len(data))
            data = data[:at] + data[source : source + 64] + data[at + 64 :]
    return data


@EXAMPLES
@given(st.sampled_from(GGUF_FILES), st.lists(operations, min_size=1, max_size=4))
def test_gguf_files(pristine: Path, name: str, steps: list[tuple[str, float, Any]]) -> None:
    attempt(with_damage(pristine, name, damage((pristine / name).read_bytes(), steps)))


@EXAMPLES
@given(
    st.sampled_from((*JSON_FILES, "chat_template.jinja", "model-00001-of-00002.safetensors")),
    st.lists(operations, min_size=1, max_size=4),
)
def test_directories(pristine: Path, name: str, steps: list[tuple[str, float, Any]]) -> None:
    attempt(with_damage(pristine, name, damage((pristine / name).read_bytes(), steps)))


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 300)
    | st.sampled_from([*EXTREMES, 10**400, -(10**30)])
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["\ud800", "../x", "</s>", "1e-5", "LlamaForCausalLM", "\0", "[a", "(" * 50]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=5,
)


def replaced(raw: Any, path: list[float], value: Any, delete: bool) -> Any:
    """A copy of a JSON value in which what lies on the path is another value, or gone."""
    if not path or not isinstance(raw, dict | list) or not raw:
        return value
    keys = list(raw) if isinstance(raw, dict) else list(range(len(raw)))
    key = keys[int(path[0] * len(keys))]
    changed = raw.copy()
    if delete and len(path) == 1:
        del changed[key]
    else:
        changed[key] = replaced(raw[key], path[1:], value, delete)
    return changed


changes = st.lists(
    st.tuples(st.lists(st.floats(0, 1, exclude_max=True), max_size=4), values, st.booleans()),
    min_size=1,
    max_size=3,
)


@EXAMPLES
@given(st.sampled_from(JSON_FILES), changes)
def test_values_of_json_files(
    pristine: Path, name: str, changes: list[tuple[list[float], Any, bool]]
) -> None:
    raw = json.loads((pristine / name).read_text())
    for path, value, delete in changes:
        raw = replaced(raw, path, value, delete)
    attempt(with_damage(pristine, name, json.dumps(raw).encode()))
