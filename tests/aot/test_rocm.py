"""What compiling for AMD's GPUs needs, without their compilers: ELF files, notes, stand-ins."""

import ctypes
import platform
import struct
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pallas_kernels.aot.ptx import Resources
from pallas_kernels.aot.rocm import code_objects, elf, plugin, stand_ins
from pallas_kernels.aot.rocm.message_pack import decode
from pallas_kernels.aot.targets import TARGETS

LINUX = (platform.system(), platform.machine()) == ("Linux", "x86_64")
# As LLVM describes a kernel of this project, but for its arguments.
KERNEL: dict[str, Any] = {
    ".agpr_count": 0,
    ".args": [{".address_space": "global", ".offset": 0, ".size": 8, ".value_kind": "global"}],
    ".group_segment_fixed_size": 512,
    ".kernarg_segment_size": 16,
    ".max_flat_workgroup_size": 256,
    ".name": "paged_prefill",
    ".private_segment_fixed_size": 0,
    ".sgpr_count": 14,
    ".sgpr_spill_count": 0,
    ".uses_dynamic_stack": False,
    ".vgpr_count": 194,
    ".vgpr_spill_count": 0,
    ".wavefront_size": 64,
}
EXTENSION = Path(msgspec._core.__file__)
LAUNCH = (
    "002: kCustomKernel [a] paged_prefill grid: [1, 1, 1] threads: [256] shared_memory: {} bytes"
)


def code_object(*kernels: dict[str, Any], owner: bytes = b"AMDGPU\0") -> bytes:
    """An ELF file whose second section has a note on these kernels."""
    note = msgspec.msgpack.encode({"amdhsa.kernels": kernels, "amdhsa.version": [1, 2]})
    content = struct.pack("<III", len(owner), len(note), 32) + owner.ljust(8, b"\0")
    content += note.ljust(-(-len(note) // 4) * 4, b"\0")
    header = (elf.HEADER + b"\1").ljust(40, b"\0")
    header += struct.pack("<QIHHHHHH", 64 + len(content), 0, 64, 0, 0, 64, 2, 0)
    table = bytes(64) + struct.pack("<IIQQQQIIQQ", 0, elf.NOTE, 0, 0, 64, len(content), 0, 0, 4, 0)
    return header + content + table


def test_the_resources_of_each_kernel(tmp_path: Path) -> None:
    """Local memory of the code and of the launch are added up; the same kernel counts once."""
    (tmp_path / "a.thunk_sequence.txt").write_text(LAUNCH.format(1024))
    (tmp_path / "a.hsaco").write_bytes(code_object(KERNEL))
    (tmp_path / "b.hsaco").write_bytes(code_object(KERNEL, KERNEL | {".name": "other"}))
    assert code_objects.kernels(tmp_path) == [
        Resources("paged_prefill", registers=194, spilled=0, shared=1536),
        Resources("other", registers=194, spilled=0, shared=512),
    ]


@pytest.mark.parametrize(
    ("changes", "spilled"),
    [
        ({".vgpr_spill_count": 63}, 252),
        ({".private_segment_fixed_size": 260, ".vgpr_spill_count": 63}, 260),
        ({".private_segment_fixed_size": 8}, 8),
        ({".sgpr_spill_count": 5}, 0),  # to lanes of vector registers
    ],
)
def test_what_goes_to_memory_is_spilled(changes: dict[str, int], spilled: int) -> None:
    assert code_objects.resources(KERNEL | changes, 0).spilled == spilled


def test_a_code_object_without_a_description_is_refused() -> None:
    with pytest.raises(ValueError, match="no note that describes its kernels"):
        code_objects.described(code_object(KERNEL, owner=b"GNU\0"))
    with pytest.raises(ValueError, match="no 64-bit little-endian ELF file: it begins with b'BC"):
        code_objects.described(b"BC\xc0\xde")


LLVM = """\
define amdgpu_kernel void @paged_decode_2(ptr %0) #0 {
  %1 = fadd contract float %a, %b
  %2 = tail call contract float @llvm.fma.f32(float %1, float %1, float %b)
  %3 = add i32 %c, %d
  %4 = tail call <4 x float> @llvm.amdgcn.mfma.f32.16x16x16bf16.1k(<4 x i16> %x, i32 0)
  %5 = fmul <2 x float> %y, %y
  %6 = load float, ptr %0
}

define amdgpu_kernel void @loop_add_fusion(ptr %0) #0 {
  %1 = fadd float %a, %b
}
"""


def test_operations_on_floats_of_some_kernels_in_their_order(tmp_path: Path) -> None:
    (tmp_path / "x_opt.ll").write_text(LLVM)
    (tmp_path / "x.ll").write_text(LLVM.replace("fadd", "fsub"))  # before the optimisation
    mfma = "@llvm.amdgcn.mfma.f32.16x16x16bf16.1k"
    found = ("paged_decode", "fadd", "@llvm.fma.f32", mfma, "fmul")
    assert code_objects.arithmetic(tmp_path, ("paged_",)) == {found}


def test_temporary_files_lie_where_they_are_told_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for before in ("/elsewhere", None):
        monkeypatch.setenv("TMPDIR", before) if before else monkeypatch.delenv("TMPDIR")
        with code_objects.kept_in(tmp_path):
            assert code_objects.os.environ["TMPDIR"] == str(tmp_path)
        assert code_objects.os.environ.get("TMPDIR") == before


words = st.text(max_size=40)
numbers = st.integers(-(2**63), 2**64 - 1)
values = st.recursive(
    st.none() | st.booleans() | numbers | words,
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(words, inner, max_size=20),
    max_leaves=40,
)


@given(values)
@example(["x" * 300, "y" * 70000, list(range(20)), {str(n): n for n in range(20)}])
@example([0, 127, 128, 255, 256, 2**16, 2**32, -1, -32, -33, -129, -(2**15) - 1, -(2**31) - 1])
def test_messages_are_decoded(value: Any) -> None:
    message = msgspec.msgpack.encode(value)
    assert decode(message) == value
    with pytest.raises(ValueError, match="goes on behind its value"):
        decode(message + b"\0")
    with pytest.raises(ValueError, match="cut off"):
        decode(message[:-1])


def test_a_message_of_another_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="kind 0xcb at byte 1"):
        decode(b"\x91" + msgspec.msgpack.encode(1.5))


def test_hashes_are_those_of_the_format() -> None:
    known = {"": 0, "printf": 0x077905A6, "exit": 0x0006CF04, "syscall": 0x0B09985C}
    assert {name: stand_ins.hash_of(name) for name in known} == known


@pytest.mark.skipif(not LINUX, reason="the libraries are for Linux on x86-64")
def test_what_a_library_needs_is_read() -> None:
    needed = elf.needs(EXTENSION.read_bytes())
    assert "GLIBC_2.2.5" in needed.versions["libc.so.6"]
    assert "memcpy" in needed.symbols["libc.so.6"]
    assert "PyLong_FromLong" in needed.symbols[""]
    assert set(needed.symbols) == {"", *needed.versions}


@pytest.mark.skipif(not LINUX, reason="the libraries are for Linux on x86-64")
@pytest.mark.parametrize("versions", [[], ["hip_4.2", "hip_6.0"]])
def test_a_stand_in_is_loaded_and_its_functions_return_errors(
    tmp_path: Path, versions: list[str]
) -> None:
    names = ["hipInit", "hipGetErrorString", "__hipRegisterFatBinary", "numa_available"]
    name = f"libhip-{len(versions)}.so.7"
    path = tmp_path / name
    path.write_bytes(stand_ins.library(name, names, versions))
    loaded = ctypes.CDLL(str(path))
    assert loaded["hipInit"]() == stand_ins.NO_DEVICE
    assert loaded["numa_available"]() == -1
    for symbol, kind in (("hipGetErrorString", ctypes.c_char_p), (names[2], ctypes.c_void_p)):
        function = loaded[symbol]
        function.restype = kind
        assert function()
    assert not hasattr(loaded, "hipMalloc")
    # A second load by the name alone finds the library that is in the process.
    assert ctypes.CDLL(name)._handle == loaded._handle


@pytest.mark.skipif(not LINUX, reason="the libraries are for Linux on x86-64")
def test_only_what_the_machine_lacks_is_stood_in_for() -> None:
    assert stand_ins.load([EXTENSION]) == []


def test_a_stand_in_has_unversioned_symbols_but_those_of_python() -> None:
    symbols = {"": {"rocblas_create", "PyObject_Call", "_ZNSt6vectorIiED1Ev"}, "a.so": {"one"}}
    code = stand_ins.stand_in("a.so", elf.Needs({"a.so": {"V1"}}, symbols))
    assert b"\0rocblas_create\0" in code and b"\0one\0" in code and b"\0V1\0" in code
    assert b"PyObject_Call" not in code and b"_ZNSt6vector" not in code


def test_a_target_says_how_wide_its_warps_are_and_for_which_compilers() -> None:
    widths = {name: (one.platform, one.wave_size) for name, one in TARGETS.items()}
    assert widths.pop("mi300x") == ("rocm", 64)
    assert set(widths.values()) == {("cuda", 32)}


@pytest.mark.parametrize(
    ("system", "machine", "installed", "lack"),
    [
        ("Linux", "x86_64", True, None),
        ("Linux", "x86_64", False, r"plugin for ROCm in .*: `make .venv-aot/.installed-rocm`"),
        ("Darwin", "arm64", True, r"Linux on x86-64.*\(this is Darwin on arm64\)"),
    ],
)
def test_what_is_lacking_is_said(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    system: str,
    machine: str,
    installed: bool,
    lack: str | None,
) -> None:
    here = SimpleNamespace(system=lambda: system, machine=lambda: machine)
    monkeypatch.setattr(plugin, "platform", here)
    monkeypatch.setattr(plugin, "FOLDER", tmp_path)
    if installed:
        (tmp_path / "jax_plugins" / "xla_rocm7").mkdir(parents=True)
    if lack is None:
        assert plugin.lacking() is None
    else:
        with pytest.raises(RuntimeError, match=lack):
            plugin.prepare()


def test_the_plugin_is_for_the_interpreter_that_runs() -> None:
    assert str(plugin.FOLDER) == f"{sys.prefix}/rocm"
