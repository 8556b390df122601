"""A process that compiles the cases named on its standard input and prints outcomes as JSON.

    python -m pallas_kernels.aot.worker TARGET MODULE...

`environment()` is what must be set before JAX is imported.
"""

import dataclasses
import importlib
import json
import os
import sys

from pallas_kernels.aot.rocm import plugin


def environment(platform: str = "cuda") -> dict[str, str]:
    """Environment in which JAX compiles without a GPU, and the compilers leave what we read."""
    return {
        **os.environ,
        "JAX_PLATFORMS": "cpu",
        "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1",
        "MOSAIC_GPU_DUMP_PTXAS": "1",
        "MOSAIC_GPU_DUMP_RESOURCES": "1",
        **(plugin.ENVIRONMENT if platform == "rocm" else {}),
    }


def main() -> None:
    """Serves cases until the input ends."""
    from pallas_kernels.aot.compiling import compile_case
    from pallas_kernels.aot.targets import TARGETS

    target_name, *names = sys.argv[1:]
    target = TARGETS[target_name]
    if target.platform == "rocm":
        plugin.prepare()
    modules = [importlib.import_module(name) for name in names]
    cases = {name: c for module in modules for name, c in module.cases(target).items()}
    for line in sys.stdin:
        name = line.strip()
        outcome = compile_case(name, target_name, target, cases[name])
        print(json.dumps(dataclasses.asdict(outcome)), flush=True)


if __name__ == "__main__":
    main()
