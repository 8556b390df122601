"""Registers, spills and shared memory of kernels, as NVIDIA's assembler reports them.

XLA dumps the PTX of a module where it is told to, and `ptxas -v` on that file prints one
paragraph a kernel; Mosaic prints the same paragraphs itself. XLA fixes the shared memory of a
kernel at its launch, so that is read from its list of launches ("thunks") instead.
"""

import importlib.util
import re
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

PARAGRAPH = re.compile(
    r"Compiling entry function '(?P<name>[^']+)'.*?"
    r"(?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads.*?"
    r"Used (?P<registers>\d+) registers(?P<rest>[^\n]*)",
    re.DOTALL,
)
STATIC_SHARED = re.compile(r"(\d+) bytes smem")
LAUNCH = re.compile(r"k(?:Custom)?Kernel\b.*?\] (\S+) grid:.*?shared_memory: (\d+) bytes")
MOSAIC_SHARED = re.compile(r"Resources\(smem_scratch_bytes=(\d+)")
ENTRY = re.compile(r"\.entry (?P<name>\w+)\(")
# Instructions on floats: operands and memory aside, what a kernel computes and in which order.
ON_FLOATS = re.compile(
    r"^\s*(?:@!?%p\d+\s+)?(wgmma\.mma_async\S*|mma\.sync\S*|shfl\.sync\S*"
    r"|(?:fma|add|sub|mul|div|max|ex2|lg2|sqrt|rsqrt|tanh)\.\S*f(?:16|32)\S*)",
    re.MULTILINE,
)
TARGET = re.compile(r"^\.target (\w+)", re.MULTILINE)


@dataclass(frozen=True)
class Resources:
    """The resources of one kernel.

    Attributes:
        name: name of the kernel's entry point.
        registers: registers of each thread.
        spilled: bytes of registers stored to and loaded from memory, a thread.
        shared: bytes of shared memory of a block.
    """

    name: str
    registers: int
    spilled: int
    shared: int


def find_ptxas() -> str:
    """Path of the assembler: from the nvidia-cuda-nvcc wheel, else on PATH.

    Raises:
        FileNotFoundError: there is none.
    """
    wheels = importlib.util.find_spec("nvidia")
    for folder in (wheels and wheels.submodule_search_locations) or ():
        for found in Path(folder).glob("*/bin/ptxas"):
            return str(found)
    on_path = shutil.which("ptxas")
    if on_path is None:
        raise FileNotFoundError("no ptxas: pip install nvidia-cuda-nvcc")
    return on_path


def assemble(ptx: Path, ptxas: str) -> str:
    """The assembler's report on a file of PTX.

    Raises:
        ValueError: the assembler refused it.
    """
    target = TARGET.search(ptx.read_text())
    command = [ptxas, "-v", str(ptx), "-o", "/dev/null"]
    if target:
        command.append(f"--gpu-name={target[1]}")
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise ValueError(f"ptxas: {done.stderr.strip()[:500]}")
    return done.stderr


def parse_report(report: str, shared: dict[str, int]) -> list[Resources]:
    """The kernels of an assembler's report; `shared` holds the bytes fixed at their launch."""
    kernels = []
    for found in PARAGRAPH.finditer(report):
        static = STATIC_SHARED.search(found["rest"])
        kernels.append(
            Resources(
                name=found["name"],
                registers=int(found["registers"]),
                spilled=int(found["stores"]) + int(found["loads"]),
                shared=(int(static[1]) if static else 0) + shared.get(found["name"], 0),
            )
        )
    return kernels


def arithmetic(dump: Path, names: tuple[str, ...]) -> set[tuple[str, ...]]:
    """The instructions on floats of each kernel whose name begins with one of `names`.

    First the name, without the number by which XLA tells kernels of one name apart.
    """
    found = set()
    for file in dump.glob("*.ptx"):
        text = file.read_text()
        entries = list(ENTRY.finditer(text))
        ends = [*(entry.start() for entry in entries), len(text)][1:]
        for entry, end in zip(entries, ends, strict=True):
            if entry["name"].startswith(names):
                name = entry["name"].rstrip("_0123456789")
                found.add((name, *ON_FLOATS.findall(text, entry.end(), end)))
    return found


def launched_memory(dump: Path) -> dict[str, int]:
    """Bytes of shared memory that XLA's launches ask for, by kernel."""
    return {
        name: int(size)
        for thunks in dump.glob("*.thunk_sequence.txt")
        for name, size in LAUNCH.findall(thunks.read_text())
    }


def xla_kernels(dump: Path, ptxas: str) -> list[Resources]:
    """The kernels that XLA and Triton compiled, from the folder that XLA dumped into."""
    shared = launched_memory(dump)
    reports: Iterable[str] = (assemble(file, ptxas) for file in sorted(dump.glob("*.ptx")))
    return [kernel for report in reports for kernel in parse_report(report, shared)]


def mosaic_kernels(printed: str) -> list[Resources]:
    """The kernels that Mosaic compiled, from what it printed meanwhile."""
    sizes = [int(size) for size in MOSAIC_SHARED.findall(printed)]
    kernels = parse_report(printed, {})
    # It prints the resources of each kernel when lowering it and assembles them in that order.
    dynamic = sizes if len(sizes) == len(kernels) else [max(sizes, default=0)] * len(kernels)
    return [
        Resources(kernel.name, kernel.registers, kernel.spilled, kernel.shared + size)
        for kernel, size in zip(kernels, dynamic, strict=True)
    ]
