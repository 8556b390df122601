"""Registers, spills and local memory of kernels, as the notes of AMD's code objects say.

XLA links each kernel to a file of its own, an ELF file, and keeps it where it is told to. A note
in it describes the kernel. XLA fixes the local memory (LDS) at the launch, as for NVIDIA's GPUs.
Source: LLVM, "User Guide for AMDGPU Backend", Code Object V5 Metadata.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pallas_kernels.aot.ptx import Resources, launched_memory
from pallas_kernels.aot.rocm.elf import notes
from pallas_kernels.aot.rocm.message_pack import decode

METADATA = 32  # the kind of the note
REGISTER = 4  # bytes that a thread has of one
KERNEL = re.compile(
    r"^define [^\n]*amdgpu_kernel void @(?P<name>\w+)\(.*?^}", re.MULTILINE | re.DOTALL
)
# Operations on floats in LLVM's language: what a kernel computes and in which order.
ON_FLOATS = re.compile(
    r"= (?:tail )?(?:call )?[^@\n]*?"
    r"(\bf(?:add|sub|mul|div|neg|cmp)\b|@llvm\.amdgcn\.mfma\.\w+(?:\.\w+)*"
    r"|@llvm\.amdgcn\.(?:update\.dpp|ds\.swizzle|ds\.bpermute|readlane)[.\w]*"
    r"|@llvm\.(?:amdgcn\.)?(?:fma|fmuladd|exp2|log2?|sqrt|rsq|maxnum|maximum|maximumnum)[.\w]*)"
)


@contextmanager
def kept_in(folder: Path) -> Iterator[None]:
    """Lets XLA's temporary files lie in a folder. It leaves them there if the process began with
    TF_ROCM_KEEP_XLA_TEMPFILES=1."""
    before = os.environ.get("TMPDIR")
    os.environ["TMPDIR"] = str(folder)
    try:
        yield
    finally:
        if before is None:
            del os.environ["TMPDIR"]
        else:
            os.environ["TMPDIR"] = before


def kernels(dump: Path) -> list[Resources]:
    """The kernels that XLA and Triton compiled, from the folder that XLA wrote to.

    Raises:
        ValueError: a code object has no description.
    """
    shared = launched_memory(dump)
    found = {}
    for file in sorted(dump.glob("*.hsaco")):
        for kernel in described(file.read_bytes()):
            found[kernel[".name"]] = resources(kernel, shared.get(kernel[".name"], 0))
    return list(found.values())


def described(code_object: bytes) -> list[dict[str, Any]]:
    """The descriptions of a code object's kernels.

    Raises:
        ValueError: it has none.
    """
    for owner, kind, content in notes(code_object):
        if (owner, kind) == ("AMDGPU", METADATA):
            kernels: list[dict[str, Any]] = decode(content)["amdhsa.kernels"]
            return kernels
    raise ValueError("a code object has no note that describes its kernels")


def resources(kernel: dict[str, Any], launched: int) -> Resources:
    """The resources of a described kernel that is launched with so many bytes of local memory.

    Scalar registers that are spilled to vector registers are not counted: they take no memory.
    """
    spilled = max(kernel[".private_segment_fixed_size"], REGISTER * kernel[".vgpr_spill_count"])
    shared = kernel[".group_segment_fixed_size"] + launched
    return Resources(kernel[".name"], kernel[".vgpr_count"], spilled, shared)


def arithmetic(dump: Path, names: tuple[str, ...]) -> set[tuple[str, ...]]:
    """The operations on floats of each kernel whose name begins with one of `names`.

    First the name, without the number by which XLA tells kernels of one name apart.
    """
    found = set()
    for file in dump.glob("*_opt.ll"):
        for kernel in KERNEL.finditer(file.read_text()):
            if kernel["name"].startswith(names):
                name = kernel["name"].rstrip("_0123456789")
                found.add((name, *ON_FLOATS.findall(kernel[0])))
    return found
