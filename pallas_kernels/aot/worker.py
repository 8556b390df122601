"""A process that compiles the cases named on its standard input and prints outcomes as JSON.

    python -m pallas_kernels.aot.worker TARGET

`environment()` is what must be set before JAX is imported.
"""

import dataclasses
import importlib
import importlib.util
import json
import os
import sys
from types import ModuleType

# Each has `cases(target)`: a function that builds the program of each case, by name. A package
# that is not installed is left out: the kernels need no engine.
CASE_MODULES = ("pallas_kernels.aot.cases", "jax_engine.aot_cases")


def environment() -> dict[str, str]:
    """Variables under which JAX compiles for CUDA without a GPU, and Mosaic says what it did."""
    return {
        **os.environ,
        "JAX_PLATFORMS": "cpu",
        "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1",
        "MOSAIC_GPU_DUMP_PTXAS": "1",
        "MOSAIC_GPU_DUMP_RESOURCES": "1",
    }


def case_modules() -> list[ModuleType]:
    """The modules with cases that are installed."""
    packages = {name: importlib.util.find_spec(name.split(".")[0]) for name in CASE_MODULES}
    return [importlib.import_module(name) for name, spec in packages.items() if spec]


def main() -> None:
    """Serve until the input ends."""
    from pallas_kernels.aot.compiling import compile_case
    from pallas_kernels.aot.targets import TARGETS

    target_name = sys.argv[1]
    target = TARGETS[target_name]
    cases = {name: c for module in case_modules() for name, c in module.cases(target).items()}
    for line in sys.stdin:
        name = line.strip()
        outcome = compile_case(name, target_name, target, cases[name])
        print(json.dumps(dataclasses.asdict(outcome)), flush=True)


if __name__ == "__main__":
    main()
