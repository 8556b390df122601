"""`python -m jax_engine.quantize` is `jax-engine quantize`."""

import sys

from jax_engine.cli import main

if __name__ == "__main__":
    sys.exit(main(["quantize", *sys.argv[1:]]))
