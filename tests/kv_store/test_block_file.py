"""A block's file is read back as it was written, or not at all."""

import os
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jax_engine.core.prefix_cache import Node, Salt
from jax_engine.kv_store.block_file import (
    BadFileError,
    BlockForm,
    describe,
    name_of,
    parts_of,
    read_into,
)

FORM = BlockForm(b"f" * 32, 3, 16)
PAYLOAD = np.arange(16, dtype=np.uint8)
FIRST = Node(None, (1, 2, 2**31 - 1), None)
SECOND = Node(FIRST, (4, 5, 6), None)
SALTS = st.one_of(
    st.none(), st.text(), st.tuples(st.text(), st.one_of(st.none(), st.text()))
)  # fmt: skip


def write(path: Path, form: BlockForm, node: Node, payload: np.ndarray = PAYLOAD) -> bytes:
    """The file of a block, and what it holds."""
    written = b"".join([bytes(part) for part in parts_of(form, node, payload)])
    path.write_bytes(written)
    assert len(written) == form.file_size(node)
    return written


def read(path: Path, form: BlockForm, node: Node) -> np.ndarray:
    out = np.zeros(form.num_bytes, np.uint8)
    read_into(str(path), form, node, out)
    return out


@given(salt=SALTS, payload=st.binary(min_size=16, max_size=16))
@example(salt="\ud800", payload=bytes(16))
@example(salt=("", None), payload=bytes(16))
def test_a_block_comes_back(
    tmp_path_factory: pytest.TempPathFactory, salt: Salt, payload: bytes
) -> None:
    path = tmp_path_factory.mktemp("one") / "file"
    node = Node(Node(None, (1, 2, 3), salt), (4, 5, 6), salt)
    write(path, FORM, node, np.frombuffer(payload, np.uint8))
    assert read(path, FORM, node).tobytes() == payload
    said = describe(str(path), FORM)
    assert node.parent is not None
    assert (said.name, said.parent) == (name_of(node), name_of(node.parent))
    assert (said.tokens, said.salt) == (node.tokens, salt)


def test_a_name_is_the_same_in_each_process() -> None:
    """Known by heart: a change makes all files of all users useless."""
    assert name_of(SECOND).hex()[:16] == "8cb3a94410657360"
    assert FORM.file_name(SECOND).startswith("6666666666666666-") and FORM.prefix == "6" * 16 + "-"


@given(one=SALTS, other=SALTS, tokens=st.lists(st.integers(0, 2), min_size=3, max_size=3))
def test_other_contents_have_other_names(one: Salt, other: Salt, tokens: list[int]) -> None:
    same = one == other and tuple(tokens) == FIRST.tokens
    assert (
        name_of(Node(None, tuple(tokens), one)) == name_of(Node(None, FIRST.tokens, other))
    ) is same
    below = Node(Node(None, tuple(tokens), one), SECOND.tokens, other)
    assert name_of(below) != name_of(SECOND)


def test_a_deep_chain_has_a_name() -> None:
    node = None
    for token in range(5000):
        node = Node(node, (token, 0, 0), None)
    assert node is not None and len(name_of(node)) == 32


@given(data=st.data())
def test_any_other_bytes_are_refused(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("one") / "file"
    whole = bytearray(write(path, FORM, SECOND))
    kind = data.draw(st.sampled_from(["flip", "cut", "more", "noise"]))
    place = data.draw(st.integers(0, len(whole) - 1))
    if kind == "flip":
        whole[place] ^= data.draw(st.integers(1, 255))
    elif kind == "cut":
        del whole[place:]
    elif kind == "more":
        whole += data.draw(st.binary(min_size=1, max_size=9))
    else:
        whole[place : place + 8] = data.draw(st.binary(min_size=8, max_size=8))[
            : len(whole) - place
        ]
        if whole == write(path, FORM, SECOND):
            return
    path.write_bytes(whole)
    with pytest.raises(BadFileError):
        read(path, FORM, SECOND)
    with suppress(BadFileError):  # what is said may be right, where the payload is not
        describe(str(path), FORM)


@pytest.mark.parametrize(
    ("form", "node"),
    [
        (FORM, FIRST),
        (FORM, Node(FIRST, (4, 5, 7), None)),
        (FORM, Node(Node(None, (9, 9, 9), None), (4, 5, 6), None)),
        (FORM, Node(FIRST, (4, 5, 6), "a")),
        (BlockForm(b"g" * 32, 3, 16), SECOND),
        (BlockForm(b"f" * 32, 3, 15), SECOND),
    ],
)
def test_another_block_s_file_is_refused(tmp_path: Path, form: BlockForm, node: Node) -> None:
    """The same bytes under its name: another block, text, salt, model, or another size."""
    write(tmp_path / "file", FORM, SECOND)
    with pytest.raises(BadFileError):
        read(tmp_path / "file", form, node)


def test_lengths_in_a_header_are_not_followed(tmp_path: Path) -> None:
    whole = bytearray(write(tmp_path / "file", FORM, SECOND))
    for first in (104, 108, 112):  # tokens, salt, payload
        huge = bytearray(whole)
        huge[first : first + 4] = b"\xff" * 4
        (tmp_path / "file").write_bytes(huge)
        for reads in (
            lambda: read(tmp_path / "file", FORM, SECOND),
            lambda: describe(str(tmp_path / "file"), FORM),
        ):
            with pytest.raises(BadFileError):
                reads()


def test_what_is_no_file_is_refused_at_once(tmp_path: Path) -> None:
    """A folder, a link to a right file, a pipe that nobody writes to, a device."""
    write(tmp_path / "file", FORM, SECOND)
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "file")
    os.mkfifo(tmp_path / "pipe")
    for name in ("folder", "link", "pipe"):
        with pytest.raises(BadFileError):
            read(tmp_path / name, FORM, SECOND)
    with pytest.raises(BadFileError):
        read(Path("/dev/zero"), FORM, SECOND)
    with pytest.raises(FileNotFoundError):
        read(tmp_path / "none", FORM, SECOND)
    with pytest.raises(FileNotFoundError):
        describe(str(tmp_path / "none"), FORM)


@pytest.mark.parametrize("salt", [b"[", b"[" * 60_000, b"7", b"[1, 2]", b"\xff\xfe"])
def test_a_salt_that_is_none_is_refused(tmp_path: Path, salt: bytes) -> None:
    whole = write(tmp_path / "file", FORM, SECOND)
    head = bytearray(whole[:132])
    head[108:112] = len(salt).to_bytes(4, "little")
    (tmp_path / "file").write_bytes(bytes(head) + salt + whole[132:])
    with pytest.raises(BadFileError):
        describe(str(tmp_path / "file"), FORM)
