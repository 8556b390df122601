"""`python -m benchmarks.gpu.needs PART ...`: in a moment, which packages a GPU's machine lacks.

Prints what is missing and what that costs. Ends with 1 if a part cannot run at all. It imports
nothing but Python, and only looks whether a package is there.
"""

import sys
from importlib.util import find_spec

_KERNELS = ("jax", "jaxlib", "numpy", "jaxtyping")
REQUIRED = {
    "kernels": _KERNELS,
    "tune": _KERNELS,
    "engine": (
        *_KERNELS,
        *("flax", "huggingface_hub", "jinja2", "msgspec", "safetensors", "tokenizers", "tqdm"),
    ),
}
# Without these something is left out, and the rest runs.
USEFUL = {
    "kernels": {
        "pytest": "the kernels' tests",
        "hypothesis": "the kernels' tests",
        "xdist": "tests in several processes at once",
        "torch": "PyTorch's attention",
    },
    "tune": {},
    "engine": {
        "torch": "transformers beside the engine",
        "transformers": "transformers beside the engine",
    },
}


def missing(packages: tuple[str, ...] | dict[str, str]) -> list[str]:
    """Those that cannot be imported here."""
    return [name for name in packages if find_spec(name) is None]


def main() -> None:
    """Look for what the parts named on the command line need."""
    failed = False
    for part in sys.argv[1:]:
        lacking = missing(REQUIRED[part])
        if lacking:
            failed = True
            print(f"{part}: cannot run, because {', '.join(lacking)} cannot be imported")
        for name in missing(USEFUL[part]):
            print(f"{part}: no {name}, so without {USEFUL[part][name]}")
    sys.exit(failed)


if __name__ == "__main__":
    main()
