"""PyTorch's files are read without PyTorch, and none of what they ask for is run."""

import os
import pickle
import re
import struct
import tempfile
import tracemalloc
import zipfile
import zlib
from io import BytesIO
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jax_engine.errors import WeightsError
from jax_engine.models.checkpoints.pytorch import pickle_reader
from jax_engine.models.checkpoints.pytorch.pytorch_file import PytorchFile
from tests.models import pytorch_files as files
from tests.models.pytorch_files import STOP, View, call, name, number, of, storage, tensor, text

rng = np.random.default_rng(0)
SHARED = rng.standard_normal(24).astype(np.float32)
TENSORS: dict[str, np.ndarray | View] = {
    "f32": rng.standard_normal((3, 4)).astype(np.float32),
    "f64": rng.standard_normal(5),
    "f16": rng.standard_normal((2, 3)).astype(np.float16),
    "bf16": rng.standard_normal((2, 3)).astype(ml_dtypes.bfloat16),
    "i64": np.array([1, -(2**40)]),
    "i32": np.array([[1, -2]], np.int32),
    "i16": np.array([1, -2], np.int16),
    "i8": np.array([1, -2, 3], np.int8),
    "u8": np.array([1, 200], np.uint8),
    "bool": np.array([True, False, True]),
    "number": np.array(2.5, np.float32),
    "empty": np.empty((0, 4), np.float32),
    "first of shared": View(SHARED, 0, (2, 3), (3, 1)),
    "turned": View(SHARED, 6, (3, 4), (1, 3)),
    "with gaps": View(SHARED, 1, (2, 2, 2), (12, 4, 2)),
    "widened": View(SHARED, 2, (5, 3), (0, 1)),
    "nothing of shared": View(SHARED, 24, (0,), (1,)),
}
FLOAT8 = np.array([1, -2, 0.5], ml_dtypes.float8_e4m3fn)


def values(one: np.ndarray | View) -> np.ndarray:
    return one.values() if isinstance(one, View) else one


def check(path: Path, tensors: files.Tensors) -> None:
    file = PytorchFile(path)
    assert list(file.keys()) == list(tensors)
    for label, one in tensors.items():
        expected = values(one)
        found = file.raw(label)
        assert (file.shape(label), found.dtype) == (expected.shape, expected.dtype), label
        np.testing.assert_array_equal(found, expected)
        assert not found.flags.writeable or not found.size


@pytest.mark.parametrize("old", [False, True])
def test_tensors_of_every_kind(old: bool, tmp_path: Path) -> None:
    check(files.write_pytorch(tmp_path / "a.bin", TENSORS, old=old), TENSORS)
    check(files.write_pytorch(tmp_path / "b.bin", {}, old=old), {})


def test_parameters_dtypes_without_a_storage_and_compressed_archives(tmp_path: Path) -> None:
    tensors = TENSORS | {"f8": FLOAT8}
    pickled, data = files.state_dict(tensors, parameters=True)
    for number_, options in enumerate(
        ({}, {"folder": "pytorch_model"}, {"order": None}, {"method": zipfile.ZIP_DEFLATED})
    ):
        path = tmp_path / f"{number_}.bin"
        path.write_bytes(files.zipped(pickled, data, **options))  # type: ignore[arg-type]
        check(path, tensors)


def test_what_python_itself_pickles_newer_protocols(tmp_path: Path) -> None:
    """`pickle_protocol` of `torch.save`: names, texts and places of the memo are said otherwise."""
    words = b"\x80\x04\x95" + bytes(8) + b"\x8c\x0bcollections\x8c\x0bOrderedDict\x93\x94)R\x94("
    short = b"\x8c\x01w\x94"
    made = tensor(storage("FloatStorage", "0", 2), (2,), (1,))
    path = tmp_path / "a.bin"
    data = {"0": np.array([1, 2], np.float32).tobytes()}
    path.write_bytes(files.zipped(words + short + made + b"u" + STOP, data))
    assert PytorchFile(path).raw("w").tolist() == [1, 2]
    plain = b"\x80\x02}" + text("w") + made + b"s" + STOP
    path.write_bytes(files.zipped(plain, data))
    assert PytorchFile(path).raw("w").tolist() == [1, 2]


def test_tensors_of_one_storage_are_one_place_of_the_file(tmp_path: Path) -> None:
    tied = np.arange(6, dtype=np.float32)
    path = files.write_pytorch(tmp_path / "a.bin", {"embed": tied, "head": tied})
    assert path.stat().st_size < 2000
    file = PytorchFile(path)
    first, second = file.raw("embed"), file.raw("head")
    assert np.shares_memory(first, second) and np.shares_memory(first, file.raw("embed"))


OS = (name("posix", "system"), name("os", "system"), name("nt", "system"))
GOOD = storage("FloatStorage", "0", 4)
GOOD_TENSOR = tensor(GOOD, (4,), (1,))


def entry(value: bytes) -> bytes:
    return b"\x80\x02}" + text("w") + value + b"s" + STOP


HOSTILE: dict[str, tuple[bytes, str]] = {
    **{
        f"a call of {one.split()[0].decode()}": (
            entry(call(one, text("touch hacked"))),
            "system', which is refused",
        )
        for one in OS
    },
    "a name alone": (entry(name("builtins", "eval")), "'builtins.eval', which is refused"),
    "a name on the stack": (
        entry(text("builtins") + text("exec") + b"\x93"),
        "'builtins.exec', which is refused",
    ),
    "a name of numbers": (entry(number(1) + number(2) + b"\x93"), "a name that is no text"),
    "a class by INST": (entry(b"(" + text("x") + b"iposix\nsystem\n"), "INST, which is refused"),
    "an object": (entry(b"(" + name("posix", "system") + b"o"), "posix.system"),
    "an extension": (entry(b"\x82\x01"), "EXT1, which is refused"),
    "NEWOBJ": (entry(name("torch", "Size") + b")\x81"), "NEWOBJ, which is refused"),
    "attributes of a tensor": (entry(GOOD_TENSOR + b"}b"), "a value into a StoredTensor"),
    "a call of a class": (entry(call(name("torch", "FloatStorage"))), "calls what is no function"),
    "a call of a text": (entry(call(text("x"))), "calls what is no function"),
    "a call with a list": (entry(name("torch", "Size") + b"]R"), "calls what is no function"),
    "torch's own loader": (
        entry(call(name("torch.storage", "_load_from_bytes"), text("x"))),
        "_load_from_bytes', which is refused",
    ),
    "a tensor of no storage": (entry(tensor(text("0"), (1,), (1,))), "without a storage"),
    "too few arguments": (
        entry(call(name("torch._utils", "_rebuild_tensor_v2"), GOOD)),
        "arguments",
    ),
    "a parameter of a text": (
        entry(call(name("torch._utils", "_rebuild_parameter"), text("x"), b"\x88", b"N")),
        "parameter that is no tensor",
    ),
    "a size beyond the storage": (entry(tensor(GOOD, (5,), (1,))), "ends at number 5 .* has 4"),
    "strides beyond it": (entry(tensor(GOOD, (2, 2), (3, 1))), "ends at number 5"),
    "an offset beyond it": (entry(tensor(GOOD, (1,), (1,), 4)), "ends at number 5"),
    "a negative stride": (entry(tensor(GOOD, (2,), (-1,), 1)), "are not numbers >= 0"),
    "a negative offset": (entry(tensor(GOOD, (1,), (1,), -1)), "are not numbers >= 0"),
    "a negative size": (entry(tensor(GOOD, (-1,), (1,))), "are not numbers >= 0"),
    "sizes of texts": (
        entry(call(name("torch._utils", "_rebuild_tensor"), GOOD, b"K\0", text("1"), of())),
        "are not numbers >= 0",
    ),
    "a huge size of stride 0": (entry(tensor(GOOD, (2**47, 4), (0, 0))), "at most 2.48 numbers"),
    "a size of 2^100": (entry(tensor(GOOD, (2**100,), (0,))), "are not numbers >= 0"),
    "other strides than sizes": (entry(tensor(GOOD, (2, 2), (1,))), "2 sizes and 1 strides"),
    "17 axes": (entry(tensor(GOOD, (1,) * 17, (1,) * 17)), "17 sizes"),
    "a storage that is not there": (entry(tensor(storage("FloatStorage", "7", 1), (1,), (1,))),
                                    "'7' of 4 bytes is not in the archive"),
    "a storage out of the folder": (
        entry(tensor(storage("FloatStorage", "../data/0", 4), (1,), (1,))), "is not in the archive"
    ),
    "a storage of another size": (
        entry(tensor(storage("FloatStorage", "0", 5), (1,), (1,))), "has 16 bytes there"
    ),
    "a storage of no size": (
        entry(of(text("storage"), name("torch", "FloatStorage"), text("0"), text("cpu"), b"N")
              + b"Q"), "persistent id of a wrong form"
    ),
    "a persistent id of a module": (entry(of(text("module"), text("x")) + b"Q"), "no storage"),
    "a persistent text": (entry(text("0") + b"Q"), "names no storage"),
    "a persistent line": (entry(b"P0\n"), "PERSID, which is refused"),
    "a view of a storage": (entry(storage("FloatStorage", "0", 4, text("x"))), "view of a storage"),
    "a dictionary of dictionaries": (entry(b"}"), "'w' it holds a dict.*save that dictionary"),
    "a text": (entry(text("x")), "'w' it holds a str, not a tensor"),
    "a list": (b"\x80\x02]" + STOP, "a list, not a dictionary"),
    "a key of a tuple": (b"\x80\x02}" + of() + b"Ns" + STOP, "a tuple as a key"),
    "a dictionary of pairs of tuples": (
        entry(call(name("collections", "OrderedDict"), b"](" + of(of(), b"N") + b"e")), "as a key"
    ),
    "a dictionary of one": (
        entry(call(name("collections", "OrderedDict"), b"](" + of(b"N") + b"e")), "wrong form"
    ),
    "nothing": (b"", "pickle"),
    "no end": (b"\x80\x02}", "pickle"),
    "an empty stack": (b"\x80\x02.", "damaged"),
    "a value of an empty memo": (b"\x80\x02h\x07.", "damaged"),
    "a text of 4 GiB": (b"\x80\x02X\xff\xff\xff\xff" + STOP, "expected 4294967295 bytes"),
    "a text of 2^63": (b"\x80\x02\x8d" + b"\xff" * 8 + STOP, "unicodestring8 byte count"),
    "a number of 2 GiB": (b"\x80\x02\x8b\xff\xff\xff\x7f" + STOP, "long4|expected"),
}  # fmt: skip


def refused(path: Path) -> str:
    with pytest.raises(WeightsError) as error:
        PytorchFile(path)
    assert str(error.value).startswith(f"{path} is no PyTorch file that is read: ")
    return str(error.value)


@pytest.mark.parametrize("old", [False, True])
def test_hostile_pickles_are_refused_by_name(
    old: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file and what is refused are named; nothing is run, and nothing large allocated."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "system", lambda _: pytest.fail("code of a file was run"))
    path, data = tmp_path / "a.bin", {"0": bytes(16)}
    for label, (pickled, said) in HOSTILE.items():
        if label == "a far place of the memo" or (old and "storage" in label):
            continue
        made = files.in_a_row(pickled, data, {"0": 4}) if old else files.zipped(pickled, data)
        path.write_bytes(made)
        tracemalloc.start()
        try:
            message = refused(path)
            assert tracemalloc.get_traced_memory()[1] < 4 << 20, label
        finally:
            tracemalloc.stop()
        others = "|which no tensor has|damaged" if old else ""
        assert re.search(said + others, message), (label, message)
    assert not (tmp_path / "hacked").exists()


def nested(depth: int) -> bytes:
    """Each tuple holds the one before twice: 2^depth values, if they were counted."""
    return b"\x80\x02}" + text("w") + b")" + b"q\0h\0\x86" * depth + b"s" + STOP


@pytest.mark.parametrize(
    ("pickled", "said"),
    [
        (nested(5_000), "'w' it holds a tuple"),
        (b"\x80\x02}" + text("w") + b"]" * 5_000 + b"a" * 4_999 + b"s" + STOP, "holds a list"),
        (b"\x80\x02}(" + b"2" * 9 + STOP, "DUP, which is refused"),
        (b"\x80\x02" + b"}r\xff\xff\xff\x7f" * 100 + STOP, None),
        (b"\x80\x02(" + text("k") + nested(30)[12:-2] + b"t}N" + b"s" + STOP, "pickle"),
    ],
)
def test_what_would_grow_without_bound_does_not(
    pickled: bytes, said: str | None, tmp_path: Path
) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(files.zipped(pickled, {}))
    tracemalloc.start()
    try:
        if said is None:
            assert not PytorchFile(path).keys()
        else:
            assert said in refused(path)
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()


def test_a_program_without_an_end_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pickle_reader, "MAX_STEPS", 1000)
    path = tmp_path / "a.bin"
    path.write_bytes(files.zipped(b"\x80\x02" + b"N" * 2000 + STOP, {}))
    assert "more than 1000 instructions" in refused(path)


PICKLED, DATA = files.state_dict(TENSORS)
WHOLE = files.zipped(PICKLED, DATA)


def archive(change: dict[str, bytes], names: dict[str, str] | None = None) -> bytes:
    """The archive with other contents or other names of members."""
    members = {"archive/data.pkl": PICKLED, "archive/version": b"3\n"}
    members |= {f"archive/data/{key}": one for key, one in DATA.items()} | change
    out = BytesIO()
    with zipfile.ZipFile(out, "w") as made:
        for member, one in members.items():
            made.writestr((names or {}).get(member, member), one)
    return out.getvalue()


def with_entry(field: int, value: bytes, member: bytes = b"archive/data/0") -> bytes:
    """The archive whose directory says something else of a member, so far into its entry."""
    start = WHOLE.rfind(member) - 46 + field
    return WHOLE[:start] + value + WHOLE[start + len(value) :]


SIZE = struct.pack("<I", 1 << 31)
BAD_ARCHIVES: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "It is empty"),
    "a page": (b"<html>", "page in HTML"),
    "a pointer": (b"version https://git-lfs.github.com/spec/v1\n", "git LFS"),
    "a tar": (b"\0" * 600, "neither as a zip archive nor as a pickle"),
    "a pickle of Python's": (pickle.dumps({"w": [1, 2]}, 2), "but not of tensors that torch.save"),
    "a NumPy array": (pickle.dumps(np.zeros(2), 2), "numpy.* is refused|which is refused"),
    "no pickle": (archive({}, {"archive/data.pkl": "archive/x.pkl"}), "0 members data.pkl"),
    "two pickles": (archive({"b/data.pkl": b""}), "2 members data.pkl"),
    "a pickle elsewhere": (archive({}, {"archive/data.pkl": "data.pkl"}), "0 members data.pkl"),
    "a name that climbs": (archive({"archive/../../x": b""}), "'archive/../../x' leads out"),
    "an absolute name": (archive({"/etc/x": b""}), "'/etc/x' leads out"),
    "big-endian": (files.zipped(PICKLED, DATA, order="big"), "byte order of another machine"),
    "an order of a gigabyte": (files.zipped(PICKLED, DATA, order="l" * 40), "byte order"),
    "cut in half": (WHOLE[: len(WHOLE) // 2], "its end is missing"),
    "without its last byte": (WHOLE[:-1], "its end is missing|cut off|damaged"),
    "a lying size": (with_entry(24, SIZE), "says that it has 2147483648"),
    "two lying sizes": (with_entry(20, SIZE * 2), "cut off or damaged"),
    "a lying place": (with_entry(42, SIZE), "cut off or damaged"),
    "a place within": (with_entry(42, struct.pack("<I", 3)), "not where the directory says"),
    "encrypted": (with_entry(8, b"\x01\x00"), "encrypted"),
    "LZMA": (with_entry(10, b"\x0e\x00"), "compressed in an unknown way"),
    "deflated, it says": (with_entry(10, b"\x08\x00", b"archive/data.pkl"), "damaged|says that"),
    "a wrong checksum": (with_entry(16, b"\0\0\0\0", b"archive/data.pkl"), "checksum"),
    "a name that is no text": (with_entry(46, b"\xff\xfe"), "directory .* damaged"),
    "a directory of another place": (WHOLE[:-6] + struct.pack("<I", 7) + WHOLE[-2:], "damaged"),
    "a huge directory": (
        WHOLE[:-10] + struct.pack("<II", 0xFFFFFFFE, 0) + WHOLE[-2:], "at most 67108864 are read"
    ),
}  # fmt: skip


def test_archives_that_lie_are_refused(tmp_path: Path) -> None:
    for label, (made, said) in BAD_ARCHIVES.items():
        path = tmp_path / "a.bin"
        path.write_bytes(made)
        message = refused(path)
        assert re.search(said, message), (label, message)
    with pytest.raises(WeightsError, match="No such file"):
        PytorchFile(tmp_path / "none.bin")


def test_a_member_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    with zipfile.ZipFile(path, "w") as made:
        made.writestr("archive/data.pkl", PICKLED)
        with pytest.warns(UserWarning, match="Duplicate name"):
            made.writestr("archive/data.pkl", b"")
    assert "'archive/data.pkl' is there twice" in refused(path)


def test_a_bomb_is_not_inflated(tmp_path: Path) -> None:
    """A pickle of 64 MiB of zeros takes 64 KiB; storages must have the size that tensors say."""
    path = tmp_path / "a.bin"
    bomb = files.zipped(bytes(64 << 20), {}, method=zipfile.ZIP_DEFLATED)
    path.write_bytes(bomb)
    tracemalloc.start()
    try:
        assert "its pickle has 67108864 bytes" in refused(path)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()
    small = entry(tensor(storage("FloatStorage", "0", 4), (4,), (1,)))
    path.write_bytes(files.zipped(small, {"0": bytes(8 << 20)}, method=zipfile.ZIP_DEFLATED))
    assert "of 16 bytes has 8388608 bytes there" in refused(path)


def test_a_size_that_deflate_does_not_keep(tmp_path: Path) -> None:
    """The directory says 16 bytes, the stream has more, or less."""
    small = entry(tensor(storage("FloatStorage", "0", 4), (4,), (1,)))
    for size in (15, 17, 1 << 20):
        made = bytearray(
            files.zipped(small, {"0": bytes(size)}, method=zipfile.ZIP_DEFLATED, order=None)
        )
        start = made.rfind(b"archive/data/0") - 46
        made[start + 24 : start + 28] = struct.pack("<I", 16)
        path = tmp_path / "a.bin"
        path.write_bytes(made)
        with pytest.raises(WeightsError, match="says that it has 16 bytes"):
            PytorchFile(path).raw("w")


def test_damaged_numbers_are_refused_when_they_are_read(tmp_path: Path) -> None:
    made = bytearray(WHOLE)
    made[WHOLE.find(DATA["0"])] ^= 1
    path = tmp_path / "a.bin"
    path.write_bytes(made)
    file = PytorchFile(path)
    with pytest.raises(WeightsError, match=rf"{path}, tensor f32: the member .* checksum"):
        file.raw("f32")
    np.testing.assert_array_equal(file.raw("f64"), values(TENSORS["f64"]))


def old_file(little: bool = True) -> bytes:
    pickled, data = files.state_dict({"w": SHARED}, old=True)
    return files.in_a_row(pickled, data, {"0": SHARED.size}, little=little)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (old_file(little=False), "byte order of another machine"),
        (old_file()[:-1], "cut off or has another size"),
        (old_file()[: -SHARED.nbytes - 8], "cut off or has another size"),
        (old_file()[: -SHARED.nbytes - 8 - 30], "pickle|damaged"),
        (old_file().replace(struct.pack("<q", 24), struct.pack("<q", 25)), "another size"),
        (files.in_a_row(PICKLED, {}, {}), "is not in the file"),
        (files.in_a_row(b"\x80\x02}.", {"9": b""}, {"9": 0}), "'9', which no tensor has"),
        (
            files.in_a_row(
                entry(tensor(storage("FloatStorage", "0", 2**40, b"N"), (1,), (1,))), {}, {}
            ),
            "larger than the file",
        ),
    ],
)
def test_older_files_that_lie_are_refused(made: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(made)
    assert re.search(said, refused(path))


OLD = old_file()
Edit = tuple[int, int, bytes]
EDITS = st.lists(
    st.tuples(st.integers(0, 4000), st.integers(0, 6), st.binary(max_size=8)), max_size=4
)


def edited(whole: bytes, edits: list[Edit]) -> bytes:
    made = bytearray(whole)
    for place, length, new in edits:
        start = place % (len(made) + 1)
        made[start : start + length] = new
    return bytes(made)


@given(EDITS)
@example([(WHOLE.find(PICKLED) + 30, 1, b"\xff")])
@example([(len(WHOLE) - 4, 4, b"")])
def test_any_damage_is_refused_or_harmless(edits: list[Edit]) -> None:
    """The archive's checksums tell: what is read is what was written."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.bin")
        path.write_bytes(edited(WHOLE, edits))
        try:
            file = PytorchFile(path)
            for label in file.keys():  # noqa: SIM118  not a mapping
                np.testing.assert_array_equal(file.raw(label), values(TENSORS[label]))
        except WeightsError:
            pass


@given(EDITS, st.booleans())
def test_any_pickle_is_refused_or_gives_tensors_within_the_file(
    edits: list[Edit], old: bool
) -> None:
    """Without a checksum that tells: an older file, or a pickle that was changed on purpose."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.bin")
        changed = edited(OLD, edits) if old else files.zipped(edited(PICKLED, edits), DATA)
        path.write_bytes(changed)
        try:
            file = PytorchFile(path)
            for label in file.keys():  # noqa: SIM118  not a mapping
                found = file.raw(label)
                assert found.shape == file.shape(label)
                if found.size < 1 << 20:
                    zlib.crc32(np.ascontiguousarray(found).tobytes())
        except WeightsError:
            pass
