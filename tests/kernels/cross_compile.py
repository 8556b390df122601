"""The CPU's kernels for other processors: `python -m tests.kernels.cross_compile FOLDER`.

Numba compiles for the machine that it runs on. What it gives LLVM for an unknown processor is taken
here, and has LLVM make object code of it for each target. Writes a file for each kernel and target.
"""

import importlib
import itertools
import re
import sys
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
from numba.core.codegen import JITCodeLibrary, JITCPUCodegen

from cpu_kernels.calls import kernel
from cpu_kernels.compiling import jit
from cpu_kernels.compiling.availability import ATTENTION, ON_DEMAND, OTHERS
from cpu_kernels.compiling.parts import WholeCompiler

TARGETS = {
    "aarch64-unknown-linux-gnu": ("generic", "neoverse-v1"),
    "arm64-apple-darwin": ("apple-m1",),
}


def kernels() -> dict[str, str]:
    """LLVM's code of each kernel as Numba makes it, by name, before any processor's own."""
    found: dict[str, str] = {}

    def remember(library: Any) -> None:
        name = re.sub("[^A-Za-z_]", "", library.name)
        found[f"{len(found)}-{name}"] = library.get_llvm_str()

    def no_address(library: Any, name: str) -> int:
        library._ensure_finalized()
        return 0

    # No machine code for this machine: to make it, LLVM would rewrite what is wanted here.
    JITCodeLibrary._finalize_specific = remember
    JITCodeLibrary.get_pointer_to_function = no_address
    JITCPUCodegen.set_env = lambda codegen, name, environment: None
    jit.cached = lambda compiler, *signature: compiler(*signature, pipeline_class=WholeCompiler)
    kernel.register = lambda name, handler: None
    for name in (*OTHERS, *itertools.chain(*ON_DEMAND.values()), ATTENTION):
        importlib.import_module(name)
    return found


def compile_for(code: str, triple: str, processor: str) -> bytes:
    """An object file."""
    machine = llvm.Target.from_triple(triple).create_target_machine(cpu=processor, opt=3)
    code = re.sub(r"(?m)^target (triple|datalayout) = .*$", "", code)
    module = llvm.parse_assembly(code)
    module.triple, module.data_layout = triple, str(machine.target_data)
    module.verify()
    compiled: bytes = machine.emit_object(module)
    return compiled


def main() -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    for name, code in kernels().items():
        for triple, processors in TARGETS.items():
            for processor in processors:
                file = Path(sys.argv[1]) / triple / processor / f"{name}.o"
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(compile_for(code, triple, processor))


if __name__ == "__main__":
    main()
